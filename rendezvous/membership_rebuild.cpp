// The part of the membership core that goes on with a job of which a rendezvous before this one
// knew: a restarted daemon has nothing but what the agents tell it. Each claims its place in the
// round and sends everything of that round again; when all have come, or time is over, the round
// has what it had before.
#include "proto/limits.h"
#include "rendezvous/membership.h"
#include "rendezvous/membership_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ddprun {

/// A number that an agent has seen is never given to another round.
void Membership::remember_rounds(const Join& join) {
    if (join.newest_round) {
        state_.next_round =
            Round{std::max(state_.next_round.value(), join.newest_round->value() + 1)};
    }
    if (join.claim) {
        state_.restarts.restarts = std::max(state_.restarts.restarts, join.claim->restart_count);
    }
}

/// True where the node has its place in the round again.
bool Membership::adopt(Node& node, const RoundClaim& claim) {
    const bool is_new = state_.phase == Phase::gathering && state_.rounds_sealed == 0;
    if (!is_new && !state_.rebuild_deadline) {
        return false;
    }
    if (claim.nodes > state_.spec->max_nodes) {
        return false;
    }
    if (state_.seats.empty() || claim.round > state_.plan.round) {
        adopt_round(claim);
    }
    if (claim.round != state_.plan.round ||
        claim.nodes.value() != static_cast<std::int32_t>(state_.seats.size())) {
        return false;
    }
    const Seat& seat = state_.seats.at(static_cast<std::size_t>(claim.group_rank.value()));
    if (!seat.node.value().empty()) {
        return false;
    }
    take_seat(node, claim);
    return true;
}

void Membership::adopt_round(const RoundClaim& claim) {
    const Round former = state_.plan.round;
    for (Node& node : state_.nodes) {
        // It claimed an older round, whose workers are of no use beside those of this one.
        if (std::exchange(node.second.seat, std::nullopt)) {
            mark_unclean(node, former);
        }
    }
    await_former_nodes();
    state_.phase = Phase::running;
    state_.join_deadline.reset();
    state_.last_call_deadline.reset();
    state_.waiting_due.reset();
    state_.failures.clear();
    state_.first_failure_at.reset();
    state_.adopted = true;
    state_.rounds_sealed = std::max<std::int64_t>(state_.rounds_sealed, 1);
    state_.next_round = Round{std::max(state_.next_round.value(), claim.round.value() + 1)};
    state_.round_began = now_;

    state_.plan = RoundPlan{};
    state_.plan.round = claim.round;
    state_.plan.reason_text = "begun by a rendezvous before this one";
    state_.plan.restart_count = claim.restart_count;
    state_.plan.max_restarts = state_.spec->max_restarts;
    state_.plan.master_address = claim.master_address;
    state_.plan.master_port = claim.master_port;
    state_.plan.nodes = claim.nodes;
    state_.seats.assign(static_cast<std::size_t>(claim.nodes.value()), Seat{});
    state_.active_seats = claim.nodes.value();
    state_.succeeded_seats = 0;
}

void Membership::take_seat(Node& node, const RoundClaim& claim) {
    const auto index = static_cast<std::size_t>(claim.group_rank.value());
    Seat& seat = state_.seats[index];
    seat.node = node.first;
    seat.incarnation = node.second.incarnation;
    node.second.seat = claim.group_rank;
    node.second.last_rank = claim.group_rank;
    if (state_.phase == Phase::stopping) {
        say_again(node);
    }
    const bool is_whole =
        std::none_of(state_.seats.begin(), state_.seats.end(), [](const Seat& each) {
            return each.node.value().empty() && each.state == SeatState::running;
        });
    if (is_whole) {
        finish_rebuild();
    }
}

void Membership::await_former_nodes() {
    if (!state_.rebuild_deadline && state_.rounds_sealed == 0) {
        const auto patience = state_.spec->heartbeat_interval * state_.spec->heartbeat_misses;
        state_.rebuild_deadline = after(std::max(limits::kRebuildTimeout, patience));
    }
}

void Membership::finish_rebuild() {
    state_.rebuild_deadline.reset();
    tell(
        Happened::What::round_adopted,
        NodeId{},
        fmt::format("all {} nodes of the round are back", state_.seats.size())
    );
    // Those that came meanwhile; the first of them may change the phase for the others.
    for (Node& node : state_.nodes) {
        if (!node.second.seat) {
            consider_newcomer(node);
        }
    }
}

void Membership::give_up_rebuild() {
    if (state_.phase == Phase::gathering) {
        gather();
        return;
    }
    std::string missing;
    for (std::size_t i = 0; i < state_.seats.size(); ++i) {
        Seat& seat = state_.seats[i];
        if (seat.node.value().empty() && seat.state == SeatState::running) {
            set_seat(seat, SeatState::lost);
            missing += fmt::format("{}{}", missing.empty() ? "" : ", ", i);
        }
    }
    const std::string text =
        fmt::format("the nodes of group rank {} did not come back to the rendezvous", missing);
    tell(Happened::What::node_lost, NodeId{}, text);
    if (state_.phase == Phase::running) {
        stop_round({StopCause::Kind::node_lost, text, 0});
    } else {
        finish_stopping();
    }
}

}  // namespace ddprun
