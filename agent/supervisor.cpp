#include "agent/supervisor.h"

#include "agent/agent_core.h"
#include "agent/agent_setup.h"
#include "agent/child_process.h"
#include "agent/error_file.h"
#include "agent/expand_arguments.h"
#include "agent/job_folder.h"
#include "agent/memory_folder.h"
#include "agent/output_pump.h"
#include "agent/signal_inbox.h"
#include "agent/sweeper.h"
#include "agent/worker_streams.h"
#include "proto/assert.h"
#include "proto/exit_codes.h"

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

std::int64_t wall_time_ms() {
    const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch).count();
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
    void watch_front();
    [[noreturn]] void end_with_front();
    [[nodiscard]] std::set<pid_t> owned_children() const;
    void finish_step();

    boost::asio::io_context& io_context_;
    AgentSettings settings_;
    std::unique_ptr<RendezvousLink> link_;
    Log& log_;
    SignalInbox signals_;
    JobFolder folder_;
    MemoryFolder memory_;
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

    Sweeper sweeper_;
    boost::asio::posix::stream_descriptor front_;

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
      signals_(io_context, watched_signals(*settings_.at_start, settings_.forward_signals)),
      folder_(settings_.output, log),
      memory_(log),
      pump_(io_context, settings_.output, log),
      core_(core_settings(settings_, folder_.path(), memory_.path())),
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
    folder_.remove();
    memory_.remove();
    log_.error("ddprun was killed, its workers are ended");
    ::_exit(exit_code::from_signal(SIGKILL));
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
    sweeper_.stop();
    front_.close();
    signals_.stop();
    stores_.clear();
    folder_.remove();
    memory_.remove();
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
