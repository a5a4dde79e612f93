#include "agent/supervisor.h"

#include "agent/agent_core.h"
#include "agent/allowed_cpus.h"
#include "agent/child_process.h"
#include "agent/error_file.h"
#include "agent/expand_arguments.h"
#include "agent/job_folder.h"
#include "agent/output_pump.h"
#include "agent/signal_inbox.h"
#include "agent/worker_streams.h"
#include "proto/assert.h"
#include "proto/limits.h"
#include "proto/worker_env.h"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace ddprun {

namespace {

using Clock = std::chrono::steady_clock;

std::int64_t wall_time_ms() {
    const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch).count();
}

/// A program started with closed standard descriptors would get them as pipes of its own.
void ensure_standard_descriptors() {
    int fd = -1;
    do {
        // Numbers 0, 1 and 2 are taken on purpose and kept, for workers too.
        fd = ::open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= 2);
    if (fd > 2) {
        ::close(fd);
    }
}

/// Pipes and pidfds of all workers beside what the program has open anyway; workers get the limit
/// that we were given.
void raise_descriptor_limit(const ProcessState& state, LocalWorldSize workers) {
    constexpr std::uint64_t kPerWorker = 4;
    constexpr std::uint64_t kOthers = 256;
    const std::uint64_t wanted =
        kOthers + kPerWorker * static_cast<std::uint64_t>(std::max(1, workers.value()));
    if (state.descriptors_soft != 0 && state.descriptors_soft < wanted) {
        const rlimit limit{std::min(wanted, state.descriptors_hard), state.descriptors_hard};
        ::setrlimit(RLIMIT_NOFILE, &limit);
    }
}

std::set<int> watched_signals(const AgentSettings& settings) {
    std::set<int> signals{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD};
    signals.insert(settings.forward_signals.begin(), settings.forward_signals.end());
    for (const int ignored : settings.at_start->ignored_signals) {
        signals.erase(ignored);
    }
    return signals;
}

AgentSettings completed(AgentSettings settings) {
    if (!settings.at_start) {
        settings.at_start = capture_process_state();
    }
    return settings;
}

AgentCoreSettings core_settings(
    const AgentSettings& settings, const std::string& run_folder, const std::string& mark
) {
    AgentCoreSettings core;
    core.join = Join{
        .job = settings.job,
        .node = settings.node,
        .incarnation = settings.incarnation,
        .info = settings.info,
        .spec = settings.spec,
        .requested_rank = settings.requested_rank,
        .current_round = std::nullopt,
    };
    EnvironmentSettings& environment = core.environment;
    environment.inherited = inherited_environment(settings.environment);
    environment.job = settings.job;
    environment.role = settings.role;
    environment.run_folder = run_folder;
    environment.worker_mark = mark;
    environment.signals_to_handle = settings.signals_to_handle;
    environment.virtual_local_rank = settings.virtual_local_rank;
    environment.omp_num_threads = settings.omp_num_threads;
    environment.tty_columns = settings.tty_columns;
    const bool omp_is_open = !settings.omp_num_threads &&
                             !find_variable(environment.inherited, worker_env::kOmpNumThreads);
    environment.allowed_cpus = omp_is_open ? allowed_cpus() : 1;
    core.group = GroupSettings{
        .host = settings.info.host,
        .program = settings.program,
        .grace = settings.shutdown_timeout,
    };
    return core;
}

}  // namespace

class Supervisor::Implementation {
public:
    Implementation(
        boost::asio::io_context& io_context,
        AgentSettings settings,
        std::unique_ptr<RendezvousLink> link,
        Log& log
    );
    Implementation(const Implementation&) = delete;
    Implementation& operator=(const Implementation&) = delete;
    ~Implementation();

    void run(std::function<void(int)> done);

private:
    struct Worker {
        LocalRank local_rank;
        std::optional<agent_action::Assign> assignment;  ///< until it is started
        std::string error_file;
        std::unique_ptr<ChildProcess> child;
    };

    void step(const AgentEvent& event);
    void perform(const agent_action::Send& action);
    void perform(const agent_action::BindStore& action);
    void perform(const agent_action::DropStoresBefore& action);
    void perform(const agent_action::PrepareWorkers& action);
    void perform(const agent_action::Spawn& action);
    void perform(agent_action::Assign& action);
    void perform(const agent_action::SignalWorker& action);
    void perform(const agent_action::KillGroup& action);
    void perform(const agent_action::Sweep& action);
    void perform(const agent_action::Tell& action);
    void perform(const agent_action::PrintReport& action);
    void perform(const agent_action::Finish& action);

    void arm_timer();
    void start_assigned();
    Result<void> start(WorkerId id, Worker& worker);
    void results_known(const std::vector<StartError>& errors);
    void worker_ended(WorkerId id, ExitStatus status);
    void child_signalled();
    void sweep_once();
    [[nodiscard]] std::set<pid_t> owned_children() const;
    void finish_step();

    boost::asio::io_context& io_context_;
    AgentSettings settings_;
    std::unique_ptr<RendezvousLink> link_;
    Log& log_;
    const std::string mark_;
    SignalInbox signals_;
    JobFolder folder_;
    OutputPump pump_;
    AgentCore core_;
    boost::asio::steady_timer timer_;
    std::optional<TimePoint> timer_due_;
    UniqueFd null_;

    std::optional<RoundPlan> plan_;
    std::map<WorkerId, Worker> workers_;
    bool assigned_ = false;
    std::unique_ptr<ChildBatch> batch_;
    std::vector<WorkerId> batch_ids_;  ///< by index of the batch
    std::vector<StartFailure> start_failures_;
    std::map<Round, std::shared_ptr<void>> stores_;

    std::set<pid_t> foreign_children_;  ///< ours before we were this program
    boost::asio::steady_timer sweep_timer_;
    std::optional<TimePoint> sweep_until_;
    boost::asio::steady_timer reap_timer_;
    bool reap_armed_ = false;

    std::string report_;
    int exit_status_ = 0;
    int finish_waits_ = 0;
    std::function<void(int)> done_;
};

Supervisor::Implementation::Implementation(
    boost::asio::io_context& io_context,
    AgentSettings settings,
    std::unique_ptr<RendezvousLink> link,
    Log& log
)
    : io_context_(io_context),
      settings_(completed(std::move(settings))),
      link_(std::move(link)),
      log_(log),
      mark_(fmt::format("{:016x}", settings_.incarnation.value())),
      signals_(io_context, watched_signals(settings_)),
      folder_(settings_.output, log),
      pump_(io_context, settings_.output, log),
      core_(core_settings(settings_, folder_.path(), mark_)),
      timer_(io_context),
      null_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
      foreign_children_(children_of_this_process()),
      sweep_timer_(io_context),
      reap_timer_(io_context) {
    if (const Result<void> reaper = become_reaper(); !reaper) {
        log_.warning("{}", reaper.error().context);
    }
    raise_descriptor_limit(*settings_.at_start, settings_.info.local_world_size);
}

Supervisor::Implementation::~Implementation() {
    for (auto& [id, worker] : workers_) {
        if (worker.child) {
            worker.child->abandon();
        }
    }
}

void Supervisor::Implementation::run(std::function<void(int)> done) {
    DDPRUN_ASSERT(!done_);
    done_ = std::move(done);
    signals_.start([this](int signal) {
        if (signal == SIGCHLD) {
            child_signalled();
        } else {
            step(agent_event::Signal{signal});
        }
    });
    link_->start(RendezvousLink::Handlers{
        .on_connected =
            [this](const std::string& address) {
                if (settings_.info.address.empty()) {
                    settings_.info.address = address;
                }
                step(agent_event::LinkUp{address});
            },
        .on_message = [this](const ServerMessage& m) { step(agent_event::FromServer{m}); },
        .on_disconnected = [this](const Error& reason) { step(agent_event::LinkDown{reason}); },
        .on_lost = [this](const Error& reason) { step(agent_event::LinkLost{reason}); },
    });
}

void Supervisor::Implementation::step(const AgentEvent& event) {
    AgentActions actions = core_.step(event, Clock::now());
    for (AgentAction& action : actions) {
        std::visit([this](auto& a) { perform(a); }, action);
    }
    if (std::exchange(assigned_, false)) {
        start_assigned();
    }
    arm_timer();
}

void Supervisor::Implementation::arm_timer() {
    const std::optional<TimePoint> due = core_.deadline();
    if (due == timer_due_) {
        return;
    }
    timer_due_ = due;
    timer_.cancel();
    if (!due) {
        return;
    }
    timer_.expires_at(*due);
    timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error) {
            timer_due_.reset();
            step(agent_event::Tick{});
        }
    });
}

// ---- link, store, words
// --------------------------------------------------------------------------

void Supervisor::Implementation::perform(const agent_action::Send& action) {
    link_->send(action.message);
}

void Supervisor::Implementation::perform(const agent_action::BindStore& action) {
    Result<BoundStore> store = settings_.bind_store(action.round, action.address);
    AgentEvent event;
    if (store) {
        stores_[action.round] = std::move(store->owner);
        event = agent_event::StoreBound{action.round, store->port};
    } else {
        event = agent_event::StoreFailed{action.round, store.error(), wall_time_ms()};
    }
    boost::asio::post(io_context_, [this, event] { step(event); });
}

void Supervisor::Implementation::perform(const agent_action::DropStoresBefore& action) {
    stores_.erase(stores_.begin(), stores_.lower_bound(action.round));
}

void Supervisor::Implementation::perform(const agent_action::Tell& action) {
    log_.write(action.level, action.text);
}

void Supervisor::Implementation::perform(const agent_action::PrintReport& action) {
    report_ = action.text;
}

// ---- workers
// -------------------------------------------------------------------------------------

void Supervisor::Implementation::perform(const agent_action::PrepareWorkers& action) {
    plan_ = action.plan;
    folder_.prepare(*plan_, settings_.info.local_world_size);
}

void Supervisor::Implementation::perform(const agent_action::Spawn& action) {
    workers_[action.id].local_rank = action.local_rank;
}

void Supervisor::Implementation::perform(agent_action::Assign& action) {
    assigned_ = true;
    const WorkerId id = action.id;
    workers_[id].assignment = std::move(action);
}

/// Forks all, then waits for all exec results at once.
void Supervisor::Implementation::start_assigned() {
    batch_ = std::make_unique<ChildBatch>(io_context_.get_executor());
    batch_ids_.clear();
    start_failures_.clear();
    for (auto& [id, worker] : workers_) {
        if (!worker.assignment) {
            continue;
        }
        const Result<void> started = start(id, worker);
        worker.assignment.reset();
        if (!started) {
            start_failures_.push_back(StartFailure{id, "fork", 0, started.error().context});
        }
    }
    batch_->async_results([this](const std::vector<StartError>& errors) { results_known(errors); });
}

Result<void> Supervisor::Implementation::start(WorkerId id, Worker& worker) {
    agent_action::Assign& assignment = *worker.assignment;
    const bool several = settings_.info.local_world_size.value() > 1;
    const PrefixValues values{
        .role = settings_.role,
        .host = settings_.info.host,
        .ranks = assignment.ranks,
        .round = assignment.round,
    };
    const std::string folder = folder_.worker_folder(*plan_, worker.local_rank);
    Result<OutputPump::WorkerEnds> ends =
        pump_.add(id, streams_of(settings_.output, values, folder));
    if (!ends) {
        return fail(std::move(ends.error()));
    }
    worker.error_file = folder_.error_file(*plan_, worker.local_rank);
    const LocalRank reader = settings_.stdin_rank.value_or(LocalRank{several ? -1 : 0});
    ChildSpec spec;
    spec.program = settings_.program;
    spec.argv = settings_.argv;
    for (std::size_t i = settings_.expand_from.value_or(spec.argv.size()); i < spec.argv.size();
         ++i) {
        spec.argv[i] = expand_argument(spec.argv[i], worker.local_rank);
    }
    spec.environment = std::move(assignment.environment);
    spec.working_folder = settings_.working_folder;
    spec.stdin_fd = reader == worker.local_rank ? STDIN_FILENO : null_.get();
    spec.stdout_fd = ends->out.get();
    spec.stderr_fd = ends->err.get();
    spec.state = *settings_.at_start;
    Result<std::unique_ptr<ChildProcess>> child = batch_->start(spec);
    batch_ids_.push_back(id);
    if (!child) {
        return fail(std::move(child.error()));
    }
    worker.child = std::move(*child);
    worker.child->async_wait([this, id](ExitStatus status) { worker_ended(id, status); });
    return {};
}

void Supervisor::Implementation::results_known(const std::vector<StartError>& errors) {
    group_event::Started started;
    started.wall_time_ms = wall_time_ms();
    for (const WorkerId id : batch_ids_) {
        if (const auto& child = workers_[id].child; child) {
            started.pids.emplace_back(id, child->pid());
        }
    }
    started.failures = std::move(start_failures_);
    for (const StartError& error : errors) {
        started.failures.push_back(StartFailure{
            batch_ids_.at(error.index), error.step, error.error_number, {}});
    }
    step(agent_event::WorkersStarted{std::move(started)});
}

void Supervisor::Implementation::worker_ended(WorkerId id, ExitStatus status) {
    WorkerEnd end;
    end.id = id;
    end.status = status;
    end.wall_time_ms = wall_time_ms();
    end.stderr_tail = pump_.take_tail(id);
    if (!status.succeeded()) {
        ErrorFileContent content = read_error_file(workers_[id].error_file);
        end.message = std::move(content.message);
        end.traceback = std::move(content.traceback);
    }
    pump_.worker_ended(id);
    step(agent_event::WorkerEnded{std::move(end)});
}

void Supervisor::Implementation::perform(const agent_action::SignalWorker& action) {
    const auto& child = workers_[action.id].child;
    if (!child) {
        return;
    }
    if (settings_.signal_groups) {
        child->signal_group(action.signal);
    } else {
        child->send_signal(action.signal);
    }
    // A stopped process takes a signal only when it goes on.
    if (action.signal == SIGTERM) {
        child->send_signal(SIGCONT);
    }
}

void Supervisor::Implementation::perform(const agent_action::KillGroup& action) {
    if (const auto& child = workers_[action.id].child; child) {
        child->signal_group(SIGKILL);
    }
}

// ---- what workers leave behind
// -------------------------------------------------------------------

std::set<pid_t> Supervisor::Implementation::owned_children() const {
    std::set<pid_t> owned;
    for (const auto& [id, worker] : workers_) {
        if (worker.child) {
            owned.insert(worker.child->pid());
        }
    }
    return owned;
}

void Supervisor::Implementation::perform(const agent_action::Sweep&) {
    for (auto& [id, worker] : workers_) {
        if (worker.child) {
            worker.child->release();
        }
    }
    workers_.clear();
    sweep_until_ = Clock::now() + limits::kSweepTimeMax;
    boost::asio::post(io_context_, [this] { sweep_once(); });
}

/// Kills orphans until there are none: each that dies may hand its own children over to us.
void Supervisor::Implementation::sweep_once() {
    if (!sweep_until_) {
        return;
    }
    std::set<pid_t> spared = owned_children();
    spared.insert(foreign_children_.begin(), foreign_children_.end());
    // Among strangers (an init process adopts whatever is orphaned) only what carries our mark.
    const bool strangers = ::getpid() == 1 || !foreign_children_.empty();
    const std::string mark =
        strangers ? fmt::format("{}={}", worker_env::kWorkerMark, mark_) : std::string{};
    const std::set<pid_t> alive = kill_orphans(spared, mark);
    const bool too_long = Clock::now() >= *sweep_until_;
    if (alive.empty() || too_long) {
        for (const pid_t pid : alive) {
            log_.warning("process {} lives on after SIGKILL (it may hang in the kernel)", pid);
        }
        sweep_until_.reset();
        sweep_timer_.cancel();
        step(agent_event::Swept{});
        return;
    }
    // SIGCHLD brings us back; the timer is for one that is merged with another.
    sweep_timer_.expires_after(limits::kSweepInterval);
    sweep_timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error) {
            sweep_once();
        }
    });
}

void Supervisor::Implementation::child_signalled() {
    if (sweep_until_) {
        sweep_once();
        return;
    }
    if (std::exchange(reap_armed_, true)) {
        return;
    }
    // Workers are awaited by their pidfds; orphans can wait until several are reaped at once.
    reap_timer_.expires_after(limits::kReapDelay);
    reap_timer_.async_wait([this](const boost::system::error_code& error) {
        reap_armed_ = false;
        if (!error) {
            reap_orphans(owned_children());
        }
    });
}

// ---- the end
// -------------------------------------------------------------------------------------

void Supervisor::Implementation::perform(const agent_action::Finish& action) {
    exit_status_ = action.exit_status;
    finish_waits_ = 2;
    link_->close([this] { finish_step(); });
    pump_.drain([this] {
        pump_.write_own(report_);
        pump_.drain([this] { finish_step(); });
    });
}

void Supervisor::Implementation::finish_step() {
    if (--finish_waits_ > 0) {
        return;
    }
    timer_.cancel();
    reap_timer_.cancel();
    signals_.stop();
    stores_.clear();
    folder_.remove();
    boost::asio::post(io_context_, [done = done_, status = exit_status_] { done(status); });
}

// ---- the front
// -----------------------------------------------------------------------------------

Supervisor::Supervisor(
    boost::asio::io_context& io_context,
    AgentSettings settings,
    std::unique_ptr<RendezvousLink> link,
    Log& log
) {
    ensure_standard_descriptors();
    implementation_ =
        std::make_unique<Implementation>(io_context, std::move(settings), std::move(link), log);
}

Supervisor::~Supervisor() = default;

void Supervisor::run(std::function<void(int exit_status)> done) {
    implementation_->run(std::move(done));
}

}  // namespace ddprun
