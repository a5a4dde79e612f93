// The part of the membership core that decides what follows when a round has stopped: a restart, at
// once or after a delay, a round of other nodes, or the end.
#include "proto/exit_codes.h"
#include "proto/limits.h"
#include "rendezvous/membership.h"
#include "rendezvous/membership_texts.h"

#include <fmt/format.h>

#include <utility>

namespace ddprun {

RestartDecision Membership::restart_decision() const {
    const std::chrono::milliseconds lived{
        state_.first_failure_at->value() - state_.round_began.value()};
    return decide_restart(*state_.spec, state_.restarts, state_.failures.front(), lived);
}

bool Membership::failure_is_final() const {
    return restart_decision().verdict != RestartVerdict::restart;
}

void Membership::after_failure() {
    const RestartDecision decision = restart_decision();
    if (decision.verdict != RestartVerdict::restart) {
        std::string reason = state_.cause.text;
        const std::string why = describe_verdict(*state_.spec, decision);
        if (!why.empty()) {
            reason += fmt::format(" ({})", why);
        }
        end_job(exit_status_of(state_.failures.front()), std::move(reason));
        return;
    }
    state_.restarts = decision.after;
    if (decision.delay.count() > 0) {
        begin_delay(decision.delay);
    } else {
        next_round(RoundReason::worker_failure, state_.cause.text);
    }
}

/// As next_round(), but the nodes are gathered later.
void Membership::begin_delay(std::chrono::milliseconds delay) {
    leave_round(RoundReason::worker_failure, state_.cause.text);
    state_.phase = Phase::delaying;
    state_.restart_at = after(delay);
    Waiting message = waiting();
    message.restart_in = delay;
    for (const Node& node : state_.nodes) {
        send(node, message);
    }
}

void Membership::after_membership_change(RoundReason reason) {
    const bool short_lived =
        now_.value() - state_.round_began.value() < limits::kShortRound.count();
    state_.short_membership_rounds = short_lived ? state_.short_membership_rounds + 1 : 0;
    if (state_.short_membership_rounds > state_.spec->membership_rounds_max) {
        end_job(
            exit_code::kJoinTimeout,
            fmt::format(
                "the nodes changed {} times in a row within {} of a round's start "
                "(membership_rounds_max); the last time: {}",
                state_.short_membership_rounds,
                describe_time(limits::kShortRound),
                state_.cause.text
            )
        );
        return;
    }
    next_round(reason, state_.cause.text);
}

void Membership::next_round(RoundReason reason, const std::string& text) {
    leave_round(reason, text);
    state_.phase = Phase::gathering;
    gather();
}

/// Of the sealed round nothing is left but the failures and the reason for the next one.
void Membership::leave_round(RoundReason reason, const std::string& text) {
    state_.next_reason = reason;
    state_.next_reason_text = text;
    state_.store_deadline.reset();
    state_.rebuild_deadline.reset();
    state_.seats.clear();
    for (Node& node : state_.nodes) {
        node.second.seat.reset();
    }
    state_.active_seats = 0;
    state_.succeeded_seats = 0;
}

}  // namespace ddprun
