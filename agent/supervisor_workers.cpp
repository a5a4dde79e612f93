// The part of Supervisor that starts, signals, reaps and gives up workers.
#include "agent/agent_setup.h"
#include "agent/error_file.h"
#include "agent/exec_trouble.h"
#include "agent/expand_arguments.h"
#include "agent/kernel_wait.h"
#include "agent/numa.h"
#include "agent/supervisor_implementation.h"
#include "agent/worker_streams.h"
#include "proto/limits.h"

#include <boost/asio/post.hpp>

#include <signal.h>
#include <unistd.h>

#include <utility>

namespace ddprun {

// ---- workers
// -------------------------------------------------------------------------------------

void Supervisor::Implementation::perform(const agent_action::PrepareWorkers& action) {
    plan_ = action.plan;
    error_files_.clear();
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
    cgroup_.begin_round(plan_->round);
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
    // The terminal of a job in the foreground would stop whoever reads it for good.
    const bool inherits_input = reads_input(worker) && !terminal_.is_of_others();
    const int own_input = inherits_input ? STDIN_FILENO : null_.get();
    spec.stdin_fd = terminal->input.valid() ? terminal->input.get() : own_input;
    spec.stdout_fd = ends->out.valid() ? ends->out.get() : terminal->input.get();
    spec.stderr_fd = ends->err.valid() ? ends->err.get() : terminal->error.get();
    spec.has_terminal = !ends->out.valid();
    spec.cgroup_fd = cgroup_.fd();
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
            batch_ids_.at(error.index),
            error.step,
            error.error_number,
            error.step == kExecuteStep ? exec_trouble_of(settings_.program, error.error_number)
                                       : std::string{}});
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
        std::string text = read_error_text(worker.error_file);
        ErrorFileContent content = text.empty() ? ErrorFileContent{} : parse_error_file(text);
        if (!text.empty() && !handed_on_path_.empty()) {
            error_files_[worker.child->pid()] = std::move(text);
        }
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
    const auto send = [&](int signal) {
        if (settings_.signal_groups) {
            child->signal_group(signal);
        } else {
            child->send_signal(signal);
        }
    };
    send(action.signal);
    // A stopped process takes a signal only when it goes on.
    if (is_stop_signal(action.signal)) {
        send(SIGCONT);
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
    cgroup_.kill();
    sweeper_.sweep([this] { step(agent_event::Swept{}); });
}

}  // namespace ddprun
