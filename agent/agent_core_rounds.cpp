// The part of an agent's core that prepares, begins and stops rounds and passes on what happens to
// their workers.
#include "agent/agent_core.h"
#include "agent/failure_report.h"
#include "proto/limits.h"

#include <fmt/format.h>

#include <signal.h>

#include <algorithm>
#include <utility>

namespace ddprun {

namespace {

/// For the end of the job to come back, once the rendezvous knows that the workers are gone.
constexpr std::chrono::seconds kLastWord{2};

int stop_signal_of(const StopRound& message) {
    return message.signal > 0 ? message.signal : SIGTERM;
}

group_event::Stop::Origin origin_of(StopKind kind) {
    using Origin = group_event::Stop::Origin;
    if (kind == StopKind::job_stopped) {
        return Origin::user;
    }
    const bool for_membership = kind == StopKind::node_joined || kind == StopKind::node_left;
    return for_membership ? Origin::membership : Origin::failure;
}

}  // namespace

void AgentCore::take(const PrepareRound& message) {
    const bool seen = (prepared_ && *prepared_ >= message.round) ||
                      (newest_seen_ && *newest_seen_ >= message.round);
    if (!seen && !ending_) {
        prepared_ = message.round;
        is_spare_ = false;
        actions_.emplace_back(agent_action::BindStore{message.round, address_});
    }
}

void AgentCore::on(const agent_event::StoreBound& event) {
    report(StoreReady{.sequence = {}, .round = event.round, .port = event.port});
}

void AgentCore::on(const agent_event::StoreFailed& event) {
    report_store_trouble(event.round, event.reason, event.wall_time_ms);
    newest_seen_ = std::max(newest_seen_.value_or(event.round), event.round);
}

void AgentCore::report_store_trouble(Round round, const Error& reason, std::int64_t wall_time_ms) {
    tell(LogLevel::error, reason.context);
    WorkerFailure failure;
    failure.host = settings_.group.host;
    failure.kind = FailureKind::agent;
    failure.wall_time_ms = wall_time_ms;
    failure.message = reason.context;
    report(WorkerFailed{.sequence = {}, .round = round, .failure = std::move(failure)});
    const bool is_pending = pending_ && pending_->plan.round == round;
    if (is_pending && workers_present()) {
        pending_->stopped = true;  // to be answered when the old workers are gone
        return;
    }
    if (is_pending) {
        pending_.reset();
    }
    report(RoundStopped{.sequence = {}, .round = round, .later_failures = {}});
}

void AgentCore::on(const agent_event::StoreReached& event) {
    if (pending_ && pending_->plan.round == event.round) {
        pending_->reached = true;
        try_begin();
    }
}

void AgentCore::on(const agent_event::StoreUnreachable& event) {
    const bool is_of_interest =
        pending_ && pending_->plan.round == event.round && !pending_->stopped && stop_signal_ == 0;
    if (is_of_interest) {
        report_store_trouble(event.round, event.reason, event.wall_time_ms);
    }
}

void AgentCore::take(const BeginRound& message) {
    const Round round = message.plan.round;
    if (ending_ || stop_signal_ != 0 || (newest_seen_ && *newest_seen_ >= round)) {
        return;
    }
    newest_seen_ = round;
    job_began_ = true;
    is_spare_ = false;
    // Who holds the store has bound it itself.
    const bool is_ours = message.place.group_rank == GroupRank{0};
    pending_ = PendingRound{message.plan, message.place, is_ours, false};
    if (!is_ours) {
        actions_.emplace_back(agent_action::ReachStore{
            round, message.plan.master_address, message.plan.master_port});
    }
    if (workers_present()) {
        // The rendezvous has given up on the old round; its workers end before new ones start.
        step_group(group_event::Stop{SIGTERM});
        return;
    }
    try_begin();
}

void AgentCore::try_begin() {
    const bool wanted = pending_ && !pending_->stopped && !ending_ && stop_signal_ == 0;
    if (wanted && pending_->reached && !workers_present()) {
        begin_round(*std::exchange(pending_, std::nullopt));
    }
}

void AgentCore::begin_round(PendingRound round) {
    std::erase_if(reports_, [](const Report& report) {
        return report.acknowledged && !std::holds_alternative<StopJob>(report.message) &&
               !std::holds_alternative<Leave>(report.message);
    });
    plan_ = std::move(round.plan);
    place_ = round.place;
    actions_.emplace_back(agent_action::DropStoresBefore{plan_->round});
    actions_.emplace_back(agent_action::PrepareWorkers{*plan_, place_});
    if (plan_->reason != RoundReason::first_start) {
        tell(
            LogLevel::info,
            fmt::format(
                "round {} begins (restart {} of {}): {}",
                plan_->round,
                plan_->restart_count,
                plan_->max_restarts,
                plan_->reason_text
            )
        );
    }
    group_.emplace(*plan_, place_, settings_.group, WorkerId{next_worker_id_});
    next_worker_id_ += group_->size();
    perform(group_->begin(now_));
}

void AgentCore::take(const StopRound& message) {
    const bool is_ours = group_ && group_->round() == message.round;
    if (is_ours) {
        if (group_->state() < WorkerGroup::State::stopping) {
            const bool from_here = message.signal != 0 && message.signal == stop_signal_;
            if (!message.reason.empty() && !from_here) {
                tell(LogLevel::info, fmt::format("stopping the workers: {}", message.reason));
            }
            step_group(group_event::Stop{stop_signal_of(message), origin_of(message.kind)});
        } else if (group_->state() == WorkerGroup::State::stopped) {
            // A rendezvous that was restarted doesn't know it yet.
            report(RoundStopped{.sequence = {}, .round = message.round, .later_failures = {}});
        }
        return;
    }
    if (pending_ && pending_->plan.round == message.round) {
        if (workers_present()) {
            pending_->stopped = true;
        } else {
            pending_.reset();
            report(RoundStopped{.sequence = {}, .round = message.round, .later_failures = {}});
        }
        return;
    }
    if (newest_seen_ && *newest_seen_ >= message.round) {
        return;
    }
    newest_seen_ = message.round;
    report(RoundStopped{.sequence = {}, .round = message.round, .later_failures = {}});
}

bool AgentCore::workers_present() const {
    return group_ && group_->state() != WorkerGroup::State::stopped;
}

void AgentCore::on(const agent_event::WorkersStarted& event) {
    step_group(event.started);
}

void AgentCore::on(const agent_event::WorkerEnded& event) {
    step_group(group_event::Ended{event.end});
}

void AgentCore::on(const agent_event::WorkerHangs& event) {
    tell(
        LogLevel::error,
        fmt::format(
            "a worker lives on {:g} s after SIGKILL and is awaited no longer: {}",
            std::chrono::duration<double>(limits::kKillTimeMax).count(),
            event.hangs.where
        )
    );
    step_group(event.hangs);
}

void AgentCore::on(const agent_event::Swept&) {
    step_group(group_event::Swept{});
}

void AgentCore::step_group(const GroupEvent& event) {
    if (group_) {
        perform(group_->step(event, now_));
    }
}

void AgentCore::perform(const GroupActions& group_actions) {
    for (const GroupAction& action : group_actions) {
        std::visit([&](const auto& a) { perform(a); }, action);
    }
}

void AgentCore::perform(const group_action::Spawn& action) {
    actions_.emplace_back(agent_action::Spawn{action.id, action.local_rank});
}

void AgentCore::perform(const group_action::Assign& action) {
    actions_.emplace_back(agent_action::Assign{
        action.id,
        action.round,
        action.ranks,
        worker_environment(settings_.environment, *plan_, place_, action.ranks.local_rank),
    });
}

void AgentCore::perform(const group_action::SignalWorker& action) {
    actions_.emplace_back(agent_action::SignalWorker{action.id, action.signal});
}

void AgentCore::perform(const group_action::KillGroup& action) {
    actions_.emplace_back(agent_action::KillGroup{action.id});
}

void AgentCore::perform(const group_action::GiveUp& action) {
    actions_.emplace_back(agent_action::GiveUp{action.id});
}

void AgentCore::perform(const group_action::Sweep&) {
    actions_.emplace_back(agent_action::Sweep{});
}

void AgentCore::perform(const group_action::Failed& action) {
    if (action.failure.kind != FailureKind::exec) {  // which ends the job: the report tells it
        tell(LogLevel::warning, describe_failure(action.failure));
    }
    report(WorkerFailed{.sequence = {}, .round = group_->round(), .failure = action.failure});
}

void AgentCore::perform(const group_action::Succeeded&) {
    report(WorkersSucceeded{.sequence = {}, .round = group_->round()});
}

void AgentCore::perform(const group_action::Stopped& action) {
    if (!job_over_) {
        report(RoundStopped{
            .sequence = {},
            .round = group_->round(),
            .later_failures = action.later_failures,
            .stopped = action.stopped});
    }
    if (leaving_ && !ending_) {
        ending_ = left_job();
    }
    if (give_up_ && link_up_ && interrupts_ < 2) {
        // Workers that took longer than the grace time took it from the rendezvous, which learns of
        // their end only now.
        give_up_ = std::max(*give_up_, now_ + kLastWord);
    }
    if (pending_ && !ending_ && stop_signal_ == 0) {
        if (pending_->stopped) {
            const Round round = pending_->plan.round;
            pending_.reset();
            report(RoundStopped{.sequence = {}, .round = round, .later_failures = {}});
        } else {
            try_begin();
        }
    }
}

}  // namespace ddprun
