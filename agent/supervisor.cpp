#include "agent/supervisor.h"

#include "agent/agent_core.h"
#include "agent/agent_setup.h"
#include "agent/child_process.h"
#include "agent/error_file.h"
#include "agent/expand_arguments.h"
#include "agent/job_folder.h"
#include "agent/job_report.h"
#include "agent/kernel_wait.h"
#include "agent/out_of_memory.h"
#include "agent/output_pump.h"
#include "agent/signal_inbox.h"
#include "agent/store_probe.h"
#include "agent/sweeper.h"
#include "agent/terminal.h"
#include "agent/worker_streams.h"
#include "proto/assert.h"
#include "proto/exit_codes.h"
#include "proto/limits.h"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <set>
#include <utility>

namespace ddprun {

namespace {

using Clock = std::chrono::steady_clock;

/// Besides those that the front passes on: the user's window has another size.
std::set<int> inbox_signals(const AgentSettings& settings, const Terminal& terminal) {
    std::set<int> signals = watched_signals(*settings.at_start, settings.forward_signals);
    if (terminal.kind_for(true) == Terminal::Kind::pseudo_terminal) {
        signals.insert(SIGWINCH);
    }
    return signals;
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
        double started = 0;   ///< seconds after the boot
        bool killed = false;  ///< by us
    };

    void step(const AgentEvent& event);
    void perform(const agent_action::Send& action);
    void perform(const agent_action::BindStore& action);
    void perform(const agent_action::ReachStore& action);
    void perform(const agent_action::DropStoresBefore& action);
    void perform(const agent_action::PrepareWorkers& action);
    void perform(const agent_action::Spawn& action);
    void perform(agent_action::Assign& action);
    void perform(const agent_action::SignalWorker& action);
    void perform(const agent_action::KillGroup& action);
    void perform(const agent_action::GiveUp& action);
    void perform(const agent_action::Sweep& action);
    void perform(const agent_action::Tell& action);
    void perform(const agent_action::PrintReport& action);
    void perform(const agent_action::Finish& action);

    void arm_timer();
    void start_assigned();
    Result<void> start(WorkerId id, Worker& worker);
    [[nodiscard]] bool reads_input(const Worker& worker) const;
    Result<Terminal::WorkerEnds> terminal_of(const Worker& worker);
    void results_known(const std::vector<StartError>& errors);
    void worker_ended(WorkerId id, ExitStatus status);
    void watch_front();
    [[noreturn]] void end_with_front();
    [[nodiscard]] std::set<pid_t> owned_children() const;
    void write_report(const EndJob& outcome);
    void finish_step();

    boost::asio::io_context& io_context_;
    AgentSettings settings_;
    std::unique_ptr<RendezvousLink> link_;
    Log& log_;
    Terminal terminal_;
    SignalInbox signals_;
    JobFolder folder_;
    OutputPump pump_;
    AgentCore core_;
    boost::asio::steady_timer timer_;
    std::optional<TimePoint> timer_due_;
    UniqueFd null_;

    std::optional<RoundPlan> plan_;
    std::map<WorkerId, Worker> workers_;
    OutOfMemoryWatch out_of_memory_ = OutOfMemoryWatch::of_machine();
    std::set<pid_t> hung_;  ///< lived on after SIGKILL and were given up
    bool assigned_ = false;
    std::unique_ptr<ChildBatch> batch_;
    std::vector<WorkerId> batch_ids_;  ///< by index of the batch
    std::vector<StartFailure> start_failures_;
    std::map<Round, std::shared_ptr<void>> stores_;
    std::unique_ptr<StoreProbe> probe_;  ///< of another node's store, before a round

    Sweeper sweeper_;
    boost::asio::posix::stream_descriptor front_;

    std::int64_t started_ms_ = wall_time_ms();
    std::vector<ReportedRound> rounds_;
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
      terminal_(io_context),
      signals_(io_context, inbox_signals(settings_, terminal_)),
      folder_(settings_.output, log),
      pump_(io_context, settings_.output, log),
      core_(core_settings(settings_, folder_.path())),
      timer_(io_context),
      null_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
      sweeper_(
          io_context,
          worker_mark_entry(settings_.incarnation),
          [this] { return owned_children(); },
          log
      ),
      front_(io_context) {
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
    watch_front();
    signals_.start([this](int signal) {
        if (signal == SIGCHLD) {
            sweeper_.child_signalled();
            return;
        }
        if (signal == SIGWINCH) {
            terminal_.window_changed();
        }
        if (signal != SIGWINCH || settings_.forward_signals.contains(signal)) {
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

void Supervisor::Implementation::perform(const agent_action::ReachStore& action) {
    probe_ = std::make_unique<StoreProbe>(
        io_context_,
        action.address,
        action.port,
        [this, round = action.round](const Result<void>& reached) {
            probe_.reset();
            if (reached) {
                step(agent_event::StoreReached{round});
            } else {
                step(agent_event::StoreUnreachable{round, reached.error(), wall_time_ms()});
            }
        }
    );
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
    if (rounds_.size() == limits::kReportRoundsMax) {
        rounds_.erase(rounds_.begin());
    }
    rounds_.push_back(ReportedRound{plan_->round, plan_->reason, plan_->reason_text, wall_time_ms()}
    );
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
    out_of_memory_.begin();
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
    const PrefixValues values{
        .role = settings_.role,
        .host = settings_.info.host,
        .ranks = assignment.ranks,
        .round = assignment.round,
    };
    const std::string folder = folder_.worker_folder(*plan_, worker.local_rank);
    Result<Terminal::WorkerEnds> terminal = terminal_of(worker);
    if (!terminal) {
        return fail(std::move(terminal.error()));
    }
    Result<OutputPump::WorkerEnds> ends = pump_.add(
        id,
        streams_of(settings_.output, values, folder),
        {std::move(terminal->our_out), std::move(terminal->our_error)}
    );
    if (!ends) {
        return fail(std::move(ends.error()));
    }
    worker.error_file = folder_.error_file(*plan_, worker.local_rank);
    ChildSpec spec;
    spec.program = settings_.program;
    spec.argv = settings_.argv;
    for (std::size_t i = settings_.expand_from.value_or(spec.argv.size()); i < spec.argv.size();
         ++i) {
        spec.argv[i] = expand_argument(spec.argv[i], worker.local_rank);
    }
    spec.environment = std::move(assignment.environment);
    spec.working_folder = settings_.working_folder;
    const int own_input = reads_input(worker) ? STDIN_FILENO : null_.get();
    spec.stdin_fd = terminal->input.valid() ? terminal->input.get() : own_input;
    spec.stdout_fd = ends->out.valid() ? ends->out.get() : terminal->input.get();
    spec.stderr_fd = ends->err.valid() ? ends->err.get() : terminal->error.get();
    spec.has_terminal = !ends->out.valid();
    spec.passed_fds = settings_.passed_fds;
    spec.state = *settings_.at_start;
    const auto place = static_cast<std::size_t>(worker.local_rank.value());
    if (place < settings_.bindings.size()) {
        spec.cpus = bit_mask(settings_.bindings[place].cpus);
        spec.memory_nodes = bit_mask(settings_.bindings[place].memory_nodes);
    }
    worker.started = seconds_since_boot();
    Result<std::unique_ptr<ChildProcess>> child = batch_->start(spec);
    batch_ids_.push_back(id);
    if (!child) {
        return fail(std::move(child.error()));
    }
    worker.child = std::move(*child);
    worker.child->async_wait([this, id](ExitStatus status) { worker_ended(id, status); });
    return {};
}

bool Supervisor::Implementation::reads_input(const Worker& worker) const {
    const bool is_alone = settings_.info.local_world_size.value() == 1;
    return worker.local_rank == settings_.stdin_rank.value_or(LocalRank{is_alone ? 0 : -1});
}

/// Nothing for a worker that doesn't read our terminal, or where there is none.
Result<Terminal::WorkerEnds> Supervisor::Implementation::terminal_of(const Worker& worker) {
    if (!reads_input(worker)) {
        return Terminal::WorkerEnds{};
    }
    // What goes to files should look as without a terminal.
    const auto to_file = [&](StreamKind kind) {
        return settings_.output.redirects.has(worker.local_rank, kind) ||
               settings_.output.tee.has(worker.local_rank, kind);
    };
    const bool shows_all = settings_.info.local_world_size.value() == 1 &&
                           !to_file(StreamKind::out) && !to_file(StreamKind::err);
    const Terminal::Kind kind = terminal_.kind_for(shows_all);
    if (kind == Terminal::Kind::none) {
        return Terminal::WorkerEnds{};
    }
    return terminal_.open(kind);
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
    const Worker& worker = workers_[id];
    const bool by_kill =
        status.kind() == ExitStatus::Kind::signaled && status.value() == SIGKILL && !worker.killed;
    end.out_of_memory = by_kill && out_of_memory_.was_killed(worker.child->pid(), worker.started);
    if (!status.succeeded()) {
        ErrorFileContent content = read_error_file(worker.error_file);
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
    Worker& worker = workers_[action.id];
    if (worker.child) {
        worker.killed = true;
        worker.child->signal_group(SIGKILL);
    }
}

void Supervisor::Implementation::perform(const agent_action::GiveUp& action) {
    const auto found = workers_.find(action.id);
    if (found == workers_.end() || !found->second.child) {
        return;
    }
    ChildProcess& child = *found->second.child;
    group_event::Hangs hangs;
    hangs.id = action.id;
    hangs.where = describe_kernel_wait("/proc", child.pid());
    hangs.wall_time_ms = wall_time_ms();
    hung_.insert(child.pid());
    child.abandon();
    workers_.erase(found);
    pump_.worker_ended(action.id);
    boost::asio::post(io_context_, [this, hangs = std::move(hangs)] {
        step(agent_event::WorkerHangs{hangs});
    });
}

// ---- what workers leave behind
// -------------------------------------------------------------------

std::set<pid_t> Supervisor::Implementation::owned_children() const {
    std::set<pid_t> owned = hung_;
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
    sweeper_.sweep([this] { step(agent_event::Swept{}); });
}

// ---- the front
// -----------------------------------------------------------------------------------

void Supervisor::Implementation::watch_front() {
    if (settings_.front_fd < 0) {
        return;
    }
    front_.assign(settings_.front_fd);
    front_.async_wait(
        boost::asio::posix::stream_descriptor::wait_read,
        [this](const boost::system::error_code& error) {
            if (!error) {
                end_with_front();
            }
        }
    );
}

/// The process whose agent we are was killed: so is everything that we started, at once.
void Supervisor::Implementation::end_with_front() {
    for (auto& [id, worker] : workers_) {
        if (worker.child) {
            worker.child->signal_group(SIGKILL);
        }
    }
    for (auto& [id, worker] : workers_) {
        if (worker.child) {
            worker.child->abandon();
        }
    }
    workers_.clear();
    sweeper_.sweep_now();
    terminal_.give_back();
    folder_.remove();
    log_.error("ddprun was killed, its workers are ended");
    ::_exit(exit_code::from_signal(SIGKILL));
}

// ---- the end
// -------------------------------------------------------------------------------------

void Supervisor::Implementation::perform(const agent_action::Finish& action) {
    exit_status_ = action.exit_status;
    write_report(action.outcome);
    finish_waits_ = 2;
    link_->close([this] { finish_step(); });
    pump_.drain([this] {
        pump_.write_own(report_);
        pump_.drain([this] { finish_step(); });
    });
}

void Supervisor::Implementation::write_report(const EndJob& outcome) {
    if (settings_.report_file.empty()) {
        return;
    }
    const std::string text = format_report(JobReport{
        .job = settings_.job,
        .outcome = outcome,
        .started_ms = started_ms_,
        .ended_ms = wall_time_ms(),
        .rounds = std::move(rounds_),
    });
    if (const Result<void> written = write_report_file(settings_.report_file, text); !written) {
        log_.error("{}", written.error().context);
    }
}

void Supervisor::Implementation::finish_step() {
    if (--finish_waits_ > 0) {
        return;
    }
    timer_.cancel();
    terminal_.give_back();
    probe_.reset();
    sweeper_.stop();
    front_.close();
    signals_.stop();
    stores_.clear();
    folder_.remove();
    boost::asio::post(io_context_, [done = done_, status = exit_status_] { done(status); });
}

// ---- the interface
// -------------------------------------------------------------------------------

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
