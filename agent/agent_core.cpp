#include "agent/agent_core.h"

#include "agent/failure_report.h"
#include "proto/assert.h"
#include "proto/exit_codes.h"
#include "proto/limits.h"
#include "rendezvous/endpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <signal.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace ddprun {

namespace {

int stop_signal_of(const StopRound& message) {
    return message.signal > 0 ? message.signal : SIGTERM;
}

double seconds_of(std::chrono::milliseconds time) {
    constexpr double kMillisecondsPerSecond = 1000.0;
    return static_cast<double>(time.count()) / kMillisecondsPerSecond;
}

}  // namespace

AgentCore::AgentCore(AgentCoreSettings settings) : settings_(std::move(settings)) {}

AgentActions AgentCore::step(const AgentEvent& event, TimePoint now) {
    now_ = now;
    if (!finished_) {
        std::visit([&](const auto& e) { on(e); }, event);
        finish_if_over();
    }
    return std::exchange(actions_, {});
}

std::optional<TimePoint> AgentCore::deadline() const {
    std::optional<TimePoint> earliest;
    const std::optional<TimePoint> group = group_ ? group_->deadline() : std::nullopt;
    const auto give_up = workers_present() ? std::nullopt : give_up_;
    for (const std::optional<TimePoint>& candidate : {group, next_heartbeat_, give_up}) {
        if (candidate && (!earliest || *candidate < *earliest)) {
            earliest = candidate;
        }
    }
    return finished_ ? std::nullopt : earliest;
}

// ---- the link
// ------------------------------------------------------------------------------------

void AgentCore::on(const agent_event::LinkUp& event) {
    link_up_ = true;
    welcomed_ = false;
    Join join = settings_.join;
    // Whoever is reached over a network has nodes on other machines, which loopback can't reach.
    const bool only_here = is_loopback(join.info.address) && !is_loopback(event.local_address);
    if (only_here && !ever_welcomed_) {
        tell(
            LogLevel::warning,
            fmt::format(
                "other nodes can't reach {}, the address that was asked for; {} is published",
                join.info.address,
                event.local_address
            )
        );
    }
    if (join.info.address.empty() || only_here) {
        join.info.address = event.local_address;
    }
    address_ = join.info.address;
    if (pending_) {
        join.current_round = pending_->plan.round;
    } else if (workers_present()) {
        join.current_round = group_->round();
    }
    join.job_began = job_began_;
    join.newest_round = newest_round();
    join.claim = claim();
    send(std::move(join));
}

std::optional<Round> AgentCore::newest_round() const {
    return std::max(prepared_, newest_seen_);
}

std::optional<RoundClaim> AgentCore::claim() const {
    if (!pending_ && !group_) {
        return std::nullopt;
    }
    const RoundPlan& plan = pending_ ? pending_->plan : *plan_;
    return RoundClaim{
        .round = plan.round,
        .group_rank = pending_ ? pending_->place.group_rank : place_.group_rank,
        .nodes = plan.nodes,
        .restart_count = plan.restart_count,
        .master_address = plan.master_address,
        .master_port = plan.master_port,
    };
}

void AgentCore::on(const agent_event::LinkDown& event) {
    link_up_ = false;
    const bool was_welcomed = std::exchange(welcomed_, false);
    next_heartbeat_.reset();
    if (give_up_) {
        // The others can't be told, so their workers' grace time isn't waited for.
        give_up_ = std::min(*give_up_, now_ + limits::kGiveUpAfterStop);
    }
    // What happens before a welcome the link tells, at its own rhythm.
    if (!ending_ && was_welcomed) {
        is_away_ = true;
        tell(
            LogLevel::warning,
            fmt::format(
                "connection to the rendezvous lost ({}), connecting again{}",
                event.reason.context,
                workers_present() ? "; the workers run on" : ""
            )
        );
    }
}

void AgentCore::on(const agent_event::LinkLost& event) {
    link_up_ = false;
    welcomed_ = false;
    next_heartbeat_.reset();
    if (ending_) {
        return;
    }
    if (group_ && group_->succeeded() && stop_signal_ == 0) {
        tell(
            LogLevel::warning,
            fmt::format(
                "all workers of this node have succeeded; whether those of the other nodes did is "
                "not known: {}",
                event.reason.context
            )
        );
        end_without_word(exit_code::kSuccess, event.reason.context, SIGTERM);
        return;
    }
    std::string reason = ever_welcomed_ ? fmt::format(
                                              "the rendezvous{}{} is lost: {}",
                                              rendezvous_host_.empty() ? "" : " on ",
                                              rendezvous_host_,
                                              event.reason.context
                                          )
                                        : event.reason.context;
    tell(LogLevel::error, reason);
    const int exit_status = stop_signal_ != 0 ? exit_code::from_signal(stop_signal_)
                            : ever_welcomed_  ? exit_code::kRendezvousLost
                                              : exit_code::kUnavailable;
    end_without_word(exit_status, std::move(reason), SIGTERM);
}

void AgentCore::on(const agent_event::FromServer& event) {
    std::visit([&](const auto& message) { take(message); }, event.message);
}

void AgentCore::take(const Welcome& message) {
    welcomed_ = true;
    ever_welcomed_ = true;
    if (std::exchange(is_away_, false) && !ending_) {
        tell(LogLevel::info, "connected to the rendezvous again");
    }
    heartbeat_interval_ = message.heartbeat_interval;
    next_heartbeat_ = now_ + heartbeat_interval_;
    rendezvous_host_ = message.host;
    for (const Report& report : reports_) {
        if (!report.acknowledged || message.send_again) {
            send(report.message);
        }
    }
}

void AgentCore::take(const Refused& message) {
    if (ending_) {
        return;
    }
    std::string reason = fmt::format("the rendezvous declined this node: {}", message.text);
    tell(LogLevel::error, reason);
    end_without_word(exit_code::kRefused, std::move(reason), SIGTERM);
}

void AgentCore::take(const Waiting& message) {
    if (message.spare) {
        job_began_ = true;
        is_spare_ = true;
        tell(LogLevel::info, "the job runs without this node, which waits as a spare");
        return;
    }
    if (message.restart_in.count() > 0) {
        tell(
            LogLevel::info,
            fmt::format("the job starts again in {:g} s", seconds_of(message.restart_in))
        );
        return;
    }
    tell(
        LogLevel::info,
        fmt::format(
            "waiting for nodes: {} joined, {} missing; here: {}{}{}",
            message.present,
            message.missing,
            fmt::join(message.joined, ", "),
            message.refused.empty() ? "" : "; refused: ",
            fmt::join(message.refused, "; ")
        )
    );
}

void AgentCore::take(const Ack& message) {
    for (Report& report : reports_) {
        report.acknowledged = report.acknowledged || report.sequence <= message.sequence.value();
    }
}

// ---- rounds
// --------------------------------------------------------------------------------------

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
            const bool for_membership =
                message.kind == StopKind::node_joined || message.kind == StopKind::node_left;
            step_group(group_event::Stop{stop_signal_of(message), for_membership});
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

void AgentCore::take(const EndJob& message) {
    if (ending_) {
        return;
    }
    job_over_ = true;
    const bool failed = message.exit_status != exit_code::kSuccess;
    Ending ending{message, failed && !leaving_, false};
    if (is_spare_ && failed && stop_signal_ == 0) {
        ending.is_reported = false;
        ending.of_spare = true;
        tell(
            LogLevel::info,
            fmt::format(
                "the job has ended with status {}, this node was a spare to the end: {}",
                message.exit_status,
                message.reason
            )
        );
    }
    if (leaving_) {
        ending.outcome.exit_status = exit_code::from_signal(stop_signal_);
    }
    end_with(std::move(ending), SIGTERM);
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
            seconds_of(limits::kKillTimeMax),
            event.hangs.where
        )
    );
    step_group(event.hangs);
}

void AgentCore::on(const agent_event::Swept&) {
    step_group(group_event::Swept{});
}

void AgentCore::on(const agent_event::Tick&) {
    step_group(group_event::Tick{});
    if (next_heartbeat_ && now_ >= *next_heartbeat_) {
        send(Heartbeat{});
        next_heartbeat_ = now_ + heartbeat_interval_;
    }
    if (give_up_ && now_ >= *give_up_ && !ending_ && !workers_present()) {
        constexpr const char* kReason = "the rendezvous doesn't answer, ending without it";
        tell(LogLevel::warning, kReason);
        end_without_word(exit_code::from_signal(stop_signal_), kReason, SIGTERM);
    }
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
    tell(LogLevel::warning, describe_failure(action.failure));
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

void AgentCore::send(AgentMessage message) {
    if (link_up_) {
        actions_.emplace_back(agent_action::Send{std::move(message)});
    }
}

void AgentCore::tell(LogLevel level, std::string text) {
    actions_.emplace_back(agent_action::Tell{level, std::move(text)});
}

}  // namespace ddprun
