#include "agent/worker_group.h"

#include "proto/assert.h"
#include "proto/exit_codes.h"
#include "proto/limits.h"

#include <fmt/format.h>

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <system_error>

namespace ddprun {

namespace {

bool is_missing(int error_number) {
    return error_number == ENOENT || error_number == ENOTDIR || error_number == ELOOP ||
           error_number == ENAMETOOLONG;
}

}  // namespace

WorkerGroup::WorkerGroup(
    const RoundPlan& plan, const NodePlace& place, GroupSettings settings, WorkerId first_id
)
    : round_(plan.round),
      settings_(std::move(settings)) {
    const std::int32_t count = place.local_world_size.value();
    for (std::int32_t local = 0; local < count; ++local) {
        Worker worker;
        worker.id = WorkerId{first_id.value() + static_cast<std::uint64_t>(local)};
        worker.ranks = ranks_of(plan, place, LocalRank{local});
        workers_.push_back(worker);
    }
}

GroupActions WorkerGroup::begin(TimePoint now) {
    GroupActions actions;
    for (Worker& worker : workers_) {
        worker.started = now;
        actions.emplace_back(group_action::Spawn{worker.id, worker.ranks.local_rank});
    }
    for (const Worker& worker : workers_) {
        actions.emplace_back(group_action::Assign{worker.id, round_, worker.ranks});
    }
    return actions;
}

GroupActions WorkerGroup::step(const GroupEvent& event, TimePoint now) {
    GroupActions actions;
    std::visit([&](const auto& e) { on(e, now, actions); }, event);
    return actions;
}

std::size_t WorkerGroup::alive() const {
    return static_cast<std::size_t>(
        std::count_if(workers_.begin(), workers_.end(), [](const Worker& w) { return !w.ended; })
    );
}

WorkerGroup::Worker* WorkerGroup::find(WorkerId id) {
    const auto found =
        std::find_if(workers_.begin(), workers_.end(), [&](const Worker& w) { return w.id == id; });
    return found == workers_.end() ? nullptr : &*found;
}

void WorkerGroup::on(const group_event::Started& event, TimePoint now, GroupActions& actions) {
    DDPRUN_ASSERT(held_ends_.size() <= workers_.size());
    for (const auto& [id, pid] : event.pids) {
        if (Worker* worker = find(id); worker != nullptr) {
            worker->pid = pid;
        }
    }
    if (state_ == State::spawning) {
        state_ = stop_requested_ ? State::stopping : State::running;
    }
    for (const StartFailure& start : event.failures) {
        Worker* worker = find(start.id);
        if (worker == nullptr) {
            continue;
        }
        worker->failed_start = true;
        // Without a process no end will follow.
        worker->ended = worker->ended || worker->pid == 0;
        take_failure(failure_of(*worker, start, event.wall_time_ms), now, actions);
    }
    for (const int signal : std::exchange(held_signals_, {})) {
        on(group_event::Forward{signal}, now, actions);
    }
    for (const WorkerEnd& end : std::exchange(held_ends_, {})) {
        take_end(end, now, actions);
    }
    settle(actions);
}

void WorkerGroup::on(const group_event::Ended& event, TimePoint now, GroupActions& actions) {
    const Worker* worker = find(event.end.id);
    if (worker == nullptr || worker->ended) {
        return;
    }
    if (worker->pid == 0) {
        held_ends_.push_back(event.end);
        return;
    }
    take_end(event.end, now, actions);
    settle(actions);
}

void WorkerGroup::take_end(const WorkerEnd& end, TimePoint now, GroupActions& actions) {
    Worker* worker = find(end.id);
    if (worker == nullptr || worker->ended) {
        return;
    }
    worker->ended = true;
    const bool is_failure =
        !end.status.succeeded() && !worker->failed_start && !notice_until_.has_value();
    if (is_failure && !was_stopped_by_us(*worker, end.status)) {
        take_failure(failure_of(*worker, end, now), now, actions);
    } else if (!worker->failed_start && (worker->signaled_with != 0 || worker->killed)) {
        stopped_.push_back(StoppedWorker{worker->ranks.rank, worker->killed});
    }
}

void WorkerGroup::take_failure(WorkerFailure failure, TimePoint now, GroupActions& actions) {
    if (failed_ || stop_requested_) {
        if (later_failures_.size() < static_cast<std::size_t>(limits::kFailuresPerReportMax)) {
            later_failures_.push_back(std::move(failure));
        }
        return;
    }
    failed_ = true;
    actions.emplace_back(group_action::Failed{std::move(failure)});
    if (state_ == State::running) {
        stop_all(SIGTERM, now, actions);
    }
}

void WorkerGroup::on(const group_event::Stop& event, TimePoint now, GroupActions& actions) {
    if (state_ == State::sweeping || state_ == State::stopped) {
        return;
    }
    stopped_by_user_ = stopped_by_user_ || event.origin == group_event::Stop::Origin::user;
    const bool for_membership = event.origin == group_event::Stop::Origin::membership;
    if (for_membership && settings_.membership_signal != 0 && state_ == State::running &&
        !stop_requested_) {
        give_notice(now, actions);
    } else {
        stop_all(event.signal, now, actions);
    }
    settle(actions);
}

void WorkerGroup::give_notice(TimePoint now, GroupActions& actions) {
    stop_requested_ = true;
    state_ = State::stopping;
    notice_until_ = now + settings_.membership_grace;
    for (const Worker& worker : workers_) {
        if (!worker.ended) {
            actions.emplace_back(group_action::SignalWorker{worker.id, settings_.membership_signal}
            );
        }
    }
}

void WorkerGroup::stop_all(int signal, TimePoint now, GroupActions& actions) {
    stop_requested_ = true;
    notice_until_.reset();
    if (state_ == State::running) {
        state_ = State::stopping;
    }
    if (!deadline_) {
        deadline_ = now + settings_.grace;
    }
    for (Worker& worker : workers_) {
        if (!worker.ended && worker.signaled_with != signal) {
            worker.signaled_with = signal;
            actions.emplace_back(group_action::SignalWorker{worker.id, signal});
        }
    }
}

void WorkerGroup::on(const group_event::Kill&, TimePoint now, GroupActions& actions) {
    if (state_ != State::sweeping && state_ != State::stopped) {
        kill_all(now, actions);
        settle(actions);
    }
}

void WorkerGroup::kill_all(TimePoint now, GroupActions& actions) {
    stop_requested_ = true;
    notice_until_.reset();
    if (state_ == State::running) {
        state_ = State::stopping;
    }
    if (!std::exchange(killed_, true)) {
        deadline_ = now + limits::kKillTimeMax;
    }
    for (Worker& worker : workers_) {
        if (!worker.ended && !worker.killed) {
            worker.killed = true;
            actions.emplace_back(group_action::KillGroup{worker.id});
        }
    }
}

void WorkerGroup::on(const group_event::Forward& event, TimePoint, GroupActions& actions) {
    if (state_ == State::spawning) {
        // Between fork and exec nobody handles it: it would end the worker.
        if (held_signals_.size() < limits::kHeldSignalsMax) {
            held_signals_.push_back(event.signal);
        }
        return;
    }
    for (const Worker& worker : workers_) {
        if (!worker.ended) {
            actions.emplace_back(group_action::SignalWorker{worker.id, event.signal});
        }
    }
}

void WorkerGroup::give_up_all(GroupActions& actions) {
    deadline_.reset();
    for (const Worker& worker : workers_) {
        if (!worker.ended) {
            actions.emplace_back(group_action::GiveUp{worker.id});
        }
    }
}

void WorkerGroup::on(const group_event::Hangs& event, TimePoint now, GroupActions& actions) {
    Worker* worker = find(event.id);
    if (worker == nullptr || worker->ended) {
        return;
    }
    worker->ended = true;
    WorkerFailure failure = describe(*worker);
    failure.kind = FailureKind::agent;
    failure.wall_time_ms = event.wall_time_ms;
    failure.uptime_ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(now - worker->started).count();
    failure.message = fmt::format("it lives on after SIGKILL: {}", event.where);
    stopped_.push_back(StoppedWorker{worker->ranks.rank, true});
    take_failure(std::move(failure), now, actions);
    settle(actions);
}

void WorkerGroup::on(const group_event::Swept&, TimePoint, GroupActions& actions) {
    if (state_ == State::sweeping) {
        state_ = State::stopped;
        actions.emplace_back(group_action::Stopped{
            std::exchange(later_failures_, {}), std::exchange(stopped_, {})});
    }
}

void WorkerGroup::on(const group_event::Tick&, TimePoint now, GroupActions& actions) {
    if (notice_until_ && now >= *notice_until_) {
        stop_all(SIGTERM, now, actions);
        return;
    }
    if (!deadline_ || now < *deadline_) {
        return;
    }
    if (killed_) {
        give_up_all(actions);
    } else {
        kill_all(now, actions);
    }
}

void WorkerGroup::settle(GroupActions& actions) {
    if (state_ == State::spawning || alive() > 0) {
        return;
    }
    if (state_ == State::stopping) {
        state_ = State::sweeping;
        deadline_.reset();
        notice_until_.reset();
        actions.emplace_back(group_action::Sweep{});
    } else if (state_ == State::running && !failed_ && !success_reported_) {
        success_reported_ = true;
        actions.emplace_back(group_action::Succeeded{});
    }
}

/// A worker that ends as one does that was asked to is stopped; one that crashes, or exits with
/// another code although nobody but a failure made us ask, has failed too, only later.
bool WorkerGroup::was_stopped_by_us(const Worker& worker, const ExitStatus& status) const {
    if (worker.killed) {
        return true;
    }
    if (worker.signaled_with == 0) {
        return false;
    }
    switch (status.kind()) {
        case ExitStatus::Kind::running: return false;
        case ExitStatus::Kind::signaled: return status.value() == worker.signaled_with;
        case ExitStatus::Kind::exited:
            return stopped_by_user_ ||
                   status.value() == exit_code::from_signal(worker.signaled_with);
    }
    return false;
}

WorkerFailure WorkerGroup::describe(const Worker& worker) const {
    WorkerFailure failure;
    failure.host = settings_.host;
    failure.group_rank = worker.ranks.group_rank;
    failure.rank = worker.ranks.rank;
    failure.local_rank = worker.ranks.local_rank;
    failure.pid = worker.pid;
    return failure;
}

WorkerFailure WorkerGroup::failure_of(const Worker& worker, const WorkerEnd& end, TimePoint now)
    const {
    WorkerFailure failure = describe(worker);
    const bool by_signal = end.status.kind() == ExitStatus::Kind::signaled;
    failure.kind = end.out_of_memory ? FailureKind::out_of_memory
                   : by_signal       ? FailureKind::signaled
                                     : FailureKind::exited;
    failure.code = end.status.value();
    failure.core_dumped = end.status.core_dumped();
    failure.wall_time_ms = end.wall_time_ms;
    failure.uptime_ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(now - worker.started).count();
    failure.message = end.message;
    failure.traceback = end.traceback;
    failure.stderr_tail = end.stderr_tail;
    return failure;
}

WorkerFailure WorkerGroup::failure_of(
    const Worker& worker, const StartFailure& start, std::int64_t wall_time_ms
) const {
    WorkerFailure failure = describe(worker);
    failure.wall_time_ms = wall_time_ms;
    const bool by_exec = start.step == kExecuteStep;
    failure.kind = by_exec ? FailureKind::exec : FailureKind::agent;
    if (by_exec) {
        failure.code =
            is_missing(start.error_number) ? exit_code::kNotFound : exit_code::kNotExecutable;
    }
    failure.message = !start.message.empty()
                          ? start.message
                          : fmt::format(
                                "{} {}: {}",
                                start.step,
                                settings_.program,
                                std::generic_category().message(start.error_number)
                            );
    return failure;
}

}  // namespace ddprun
