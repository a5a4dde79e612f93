#include "agent/agent_core.h"

#include "proto/exit_codes.h"
#include "proto/limits.h"
#include "rendezvous/endpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <signal.h>

#include <algorithm>
#include <utility>

namespace ddprun {

namespace {

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

void AgentCore::send(AgentMessage message) {
    if (link_up_) {
        actions_.emplace_back(agent_action::Send{std::move(message)});
    }
}

void AgentCore::tell(LogLevel level, std::string text) {
    actions_.emplace_back(agent_action::Tell{level, std::move(text)});
}

}  // namespace ddprun
