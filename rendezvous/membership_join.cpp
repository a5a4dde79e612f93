// The part of the membership core that decides who gets in: new nodes, nodes that come back, and
// those that are declined.
#include "proto/exit_codes.h"
#include "proto/limits.h"
#include "rendezvous/membership.h"
#include "rendezvous/membership_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace ddprun {

namespace {

bool timeout_makes_sense(std::chrono::milliseconds timeout) {
    return timeout.count() >= 0 && timeout <= limits::kTimeoutMax;
}

bool claim_makes_sense(const RoundClaim& claim) {
    return claim.round.value() >= 0 && claim.round.value() <= limits::kRoundMax &&
           claim.nodes.value() >= 1 && claim.nodes.value() <= limits::kNodesMax &&
           claim.group_rank.value() >= 0 && claim.group_rank.value() < claim.nodes.value() &&
           claim.restart_count.value() >= 0;
}

/// What makes no sense in a Join, or null.
const char* nonsense_in(const Join& join) {
    const JobSpec& spec = join.spec;
    if (join.job.value().empty() || join.node.value().empty() || join.info.host.empty()) {
        return "an empty name";
    }
    if (spec.min_nodes.value() < 1 || spec.max_nodes < spec.min_nodes ||
        spec.max_nodes.value() > limits::kNodesMax) {
        return "a number of nodes out of range";
    }
    if (join.info.local_world_size.value() < 1 ||
        join.info.local_world_size.value() > limits::kLocalWorldSizeMax) {
        return "a number of workers out of range";
    }
    if (spec.max_restarts.value() < 0 || spec.membership_rounds_max < 0) {
        return "a negative number of rounds";
    }
    if (!timeout_makes_sense(spec.join_timeout) || !timeout_makes_sense(spec.last_call_timeout) ||
        !timeout_makes_sense(spec.heartbeat_interval) ||
        spec.heartbeat_interval < limits::kHeartbeatIntervalMin || spec.heartbeat_misses < 1 ||
        spec.heartbeat_misses > limits::kHeartbeatMissesMax) {
        return "a time-out or heartbeat out of range";
    }
    const auto is_status = [](std::int32_t code) { return code >= 1 && code <= exit_code::kMax; };
    if (!std::all_of(spec.no_restart_codes.begin(), spec.no_restart_codes.end(), is_status) ||
        !timeout_makes_sense(spec.restart_delay) || !timeout_makes_sense(spec.min_uptime)) {
        return "rules for restarts out of range";
    }
    for (const std::optional<Round>& round : {join.current_round, join.newest_round}) {
        if (round && (round->value() < 0 || round->value() > limits::kRoundMax)) {
            return "a round out of range";
        }
    }
    if (join.claim && !claim_makes_sense(*join.claim)) {
        return "a claim out of range";
    }
    return nullptr;
}

auto shape_of(const JobSpec& spec) {
    return std::tuple(spec.min_nodes, spec.max_nodes, spec.max_restarts);
}

std::string describe_shape(const JobSpec& spec) {
    return fmt::format("nnodes={} max_restarts={}", describe_nnodes(spec), spec.max_restarts);
}

}  // namespace

void Membership::handle(const MembershipEvent& event, const Join& join) {
    std::optional<Refused> refused = refusal_of(event, join);
    if (refused) {
        refuse(event, join, std::move(*refused));
        return;
    }
    remember_rounds(join);
    const auto found = state_.nodes.find(event.node);
    if (found != state_.nodes.end() && found->second.incarnation == event.incarnation) {
        resume(*found, join);
        return;
    }
    if (!state_.spec) {
        state_.spec = join.spec;
    }
    if (found != state_.nodes.end()) {
        replace(*found);
    }
    admit(event, join);
}

std::optional<Refused> Membership::refusal_of(const MembershipEvent& event, const Join& join)
    const {
    if (const char* nonsense = nonsense_in(join)) {
        return Refused{RefusalReason::malformed, fmt::format("the join has {}", nonsense)};
    }
    if (join.job != state_.job) {
        return Refused{
            RefusalReason::foreign_job,
            fmt::format(
                "this endpoint serves job '{}', this node asked for job '{}'", state_.job, join.job
            )};
    }
    if (std::find(state_.replaced.begin(), state_.replaced.end(), event.incarnation) !=
        state_.replaced.end()) {
        return Refused{
            RefusalReason::replaced,
            fmt::format("a newer agent of {} has taken this one's place", join.info.host)};
    }
    const auto known = state_.nodes.find(event.node);
    const bool comes_back =
        known != state_.nodes.end() && known->second.incarnation == event.incarnation;
    if (comes_back) {
        return std::nullopt;
    }
    if (state_.phase == Phase::ended && !join.job_began) {
        return Refused{
            RefusalReason::job_over,
            fmt::format(
                "job '{}' is over (status {}){}{}",
                state_.job,
                state_.end.exit_status,
                state_.end.reason.empty() ? "" : ": ",
                state_.end.reason
            )};
    }
    const JobSpec& spec = state_.spec ? *state_.spec : join.spec;
    if (shape_of(join.spec) != shape_of(spec)) {
        return Refused{
            RefusalReason::spec_differs,
            fmt::format(
                "this node asked for {}, the job '{}' has {}",
                describe_shape(join.spec),
                state_.job,
                describe_shape(spec)
            )};
    }
    if (join.requested_rank && (join.requested_rank->value() < 0 ||
                                join.requested_rank->value() >= spec.max_nodes.value())) {
        return Refused{
            RefusalReason::spec_differs,
            fmt::format(
                "node_rank {} is not below nnodes {}", *join.requested_rank, spec.max_nodes
            )};
    }
    for (const auto& [node, living] : state_.nodes) {
        if (!join.requested_rank) {
            break;
        }
        if (living.requested_rank == join.requested_rank && node != event.node) {
            return Refused{
                RefusalReason::rank_taken, describe_taken(*join.requested_rank, living.info.host)};
        }
    }
    if (state_.nodes.size() >= static_cast<std::size_t>(limits::kNodesMax)) {
        return Refused{
            RefusalReason::spec_differs,
            fmt::format("the job has its largest number of nodes, {}", limits::kNodesMax)};
    }
    return std::nullopt;
}

void Membership::refuse(const MembershipEvent& event, const Join& join, Refused refused) {
    const std::string text = fmt::format("{}: {}", describe_node(join.info), refused.text);
    const bool awaits_nodes = state_.phase == Phase::gathering || state_.phase == Phase::delaying;
    if (awaits_nodes && state_.refusals.size() < limits::kRefusalsKeptMax &&
        std::find(state_.refusals.begin(), state_.refusals.end(), text) == state_.refusals.end()) {
        state_.refusals.push_back(text);
        if (state_.waiting_due) {
            state_.waiting_due = std::min(*state_.waiting_due, after(limits::kWaitingDelay));
        }
    }
    tell(Happened::What::node_refused, event.node, text);
    actions_.emplace_back(Refuse{event.node, event.incarnation, std::move(refused)});
}

void Membership::replace(Node& old_life) {
    const Incarnation incarnation = old_life.second.incarnation;
    const std::string name = describe_node(old_life.second.info);
    if (state_.replaced.size() >= limits::kReplacedMax) {
        state_.replaced.erase(state_.replaced.begin());
    }
    state_.replaced.push_back(incarnation);
    actions_.emplace_back(Refuse{
        old_life.first,
        incarnation,
        Refused{RefusalReason::replaced, "a newer agent of this node has taken its place"}});
    remove_node(
        old_life.first, {Happened::What::node_lost, name + " was replaced by a newer agent", now_}
    );
}

void Membership::admit(const MembershipEvent& event, const Join& join) {
    LivingNode living;
    living.incarnation = event.incarnation;
    living.info = join.info;
    living.requested_rank = join.requested_rank;
    living.arrival = state_.arrivals++;
    Node& node = *state_.nodes.insert_or_assign(event.node, std::move(living)).first;
    tell(
        Happened::What::node_joined,
        node.first,
        fmt::format("{} joined", describe_node(node.second.info))
    );
    send(node, welcome(join.job_began));
    if (state_.phase == Phase::ended) {
        // Its old self's end was the last thing that the job waited for, or it was cut off.
        send(node, state_.end);
        return;
    }
    if (join.claim && adopt(node, *join.claim)) {
        return;
    }
    if (join.job_began) {
        await_former_nodes();
    }
    if (join.current_round) {
        mark_unclean(node, *join.current_round);
    }
    consider_newcomer(node);
}

void Membership::resume(Node& node, const Join& join) {
    node.second.info.address = join.info.address;
    tell(
        Happened::What::node_back,
        node.first,
        fmt::format("{} is back", describe_node(node.second.info))
    );
    // Also from the connection before this one nothing may have come, and then what a rendezvous
    // before us acknowledged is not known here. What is known is not applied twice.
    send(node, welcome(join.job_began));
    // Where it has a place in the round, an agent that still has workers of an older one ends them
    // before it obeys.
    if (join.current_round && !node.second.seat && !node.second.unclean_round &&
        state_.phase != Phase::ended) {
        mark_unclean(node, *join.current_round);
    } else {
        say_again(node);
    }
}

void Membership::say_again(const Node& node) {
    if (state_.phase == Phase::ended) {
        send(node, state_.end);
        return;
    }
    if (node.second.unclean_round) {
        StopRound message;
        message.round = *node.second.unclean_round;
        message.reason = "the job has gone on without this node";
        send(node, message);
        return;
    }
    const Seat* seat = seat_of(node);
    if (seat == nullptr || seat->state != SeatState::running) {
        return;
    }
    switch (state_.phase) {
        case Phase::preparing:
            if (seat == state_.seats.data()) {
                send(node, PrepareRound{state_.plan.round});
            }
            return;
        case Phase::running:
            if (!state_.adopted) {  // else it was the node that told us
                send(node, BeginRound{state_.plan, seat->place});
            }
            return;
        case Phase::stopping: send(node, stop_message()); return;
        case Phase::gathering:
        case Phase::delaying:
        case Phase::ended: return;
    }
}

void Membership::mark_unclean(Node& node, Round round) {
    state_.unfit_nodes += is_fit(node.second) ? 1 : 0;
    node.second.unclean_round = round;
    state_.next_round = Round{std::max(state_.next_round.value(), round.value() + 1)};
    say_again(node);
}

void Membership::consider_newcomer(Node& node) {
    if (state_.phase == Phase::gathering) {
        gather();
        return;
    }
    if (!is_fit(node.second) || node.second.seat || state_.rebuild_deadline) {
        return;
    }
    const bool room =
        static_cast<std::int32_t>(state_.seats.size()) < state_.spec->max_nodes.value();
    if (state_.phase == Phase::preparing && room) {
        next_round(state_.next_reason, state_.next_reason_text);
    } else if (state_.phase == Phase::running && room && state_.succeeded_seats == 0) {
        // Where a node has already succeeded the job is about to end: it isn't disturbed.
        stop_round(
            {StopCause::Kind::node_joined,
             fmt::format("{} joined", describe_node(node.second.info)),
             0}
        );
    } else if (state_.phase == Phase::running || state_.phase == Phase::preparing) {
        tell_spare(node);
    }
}

void Membership::tell_spare(Node& node) {
    if (node.second.seat || node.second.told_spare || node.second.leaving) {
        return;
    }
    node.second.told_spare = true;
    Waiting message = waiting();
    message.missing = NodeCount{0};
    message.spare = true;
    send(node, message);
}

}  // namespace ddprun
