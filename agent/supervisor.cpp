#include "agent/supervisor.h"

#include "agent/agent_setup.h"
#include "agent/error_file.h"
#include "agent/store_probe.h"
#include "agent/supervisor_implementation.h"
#include "proto/assert.h"
#include "proto/exit_codes.h"
#include "proto/worker_env.h"

#include <boost/asio/post.hpp>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

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
      memory_(log),
      pump_(io_context, settings_.output, log),
      core_(core_settings(settings_, folder_.path(), memory_.path())),
      timer_(io_context),
      null_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
      cgroup_(worker_cgroup_name(settings_.incarnation)),
      sweeper_(
          io_context,
          worker_mark_entry(settings_.incarnation),
          [this] { return owned_children(); },
          log
      ),
      front_(io_context),
      started_ms_(wall_time_ms()),
      handed_on_path_(
          find_variable(settings_.environment, worker_env::kErrorFile).value_or(std::string_view{})
      ) {
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
        if (is_stop_signal(signal)) {
            pump_.hurry();
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
    if (!store && !stores_.empty()) {
        // A narrow --port_range: the round before has ended, its store may still hold the last one.
        stores_.clear();
        store = settings_.bind_store(action.round, action.address);
    }
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
    if (log_.enabled(action.level)) {
        pump_.end_line();
    }
    log_.write(action.level, action.text);
}

void Supervisor::Implementation::perform(const agent_action::PrintReport& action) {
    report_ = action.text;
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
    cgroup_.kill();
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
    cgroup_.remove();
    terminal_.give_back();
    folder_.remove();
    memory_.remove();
    log_.error("ddprun was killed, its workers are ended");
    ::_exit(exit_code::from_signal(SIGKILL));
}

// ---- the end
// -------------------------------------------------------------------------------------

void Supervisor::Implementation::perform(const agent_action::Finish& action) {
    exit_status_ = action.exit_status;
    const int signal = exit_status_ - exit_code::from_signal(0);
    if (action.outcome.failures.empty() && is_stop_signal(signal)) {
        pump_.hurry();  // another node was told to stop
    } else if (exit_status_ != exit_code::kSuccess) {
        pump_.expect_progress();  // the report shall come, whatever became of who reads stdout
    }
    write_report(action.outcome);
    hand_on_error_file(action.outcome);
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

/// Where this launcher was started by another, that one finds the first failure in the place that
/// it gave, if it happened here.
void Supervisor::Implementation::hand_on_error_file(const EndJob& outcome) {
    if (handed_on_path_.empty() || outcome.failures.empty()) {
        return;
    }
    const WorkerFailure& first = outcome.failures.front();
    const auto found = error_files_.find(first.pid);
    if (found == error_files_.end() || first.host != settings_.info.host) {
        return;
    }
    const bool by_signal =
        first.kind == FailureKind::signaled || first.kind == FailureKind::out_of_memory;
    const std::string text = with_error_code(found->second, by_signal ? -first.code : first.code);
    if (const Result<void> written = write_report_file(handed_on_path_, text); !written) {
        log_.warning(
            "{} in {}: {}", worker_env::kErrorFile, handed_on_path_, written.error().context
        );
    }
}

void Supervisor::Implementation::finish_step() {
    if (--finish_waits_ > 0) {
        return;
    }
    timer_.cancel();
    terminal_.give_back();
    probe_.reset();
    cgroup_.remove();
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
