#include "rendezvous/membership.h"

#include "proto/assert.h"
#include "proto/exit_codes.h"
#include "proto/limits.h"
#include "rendezvous/membership_ranks.h"
#include "rendezvous/membership_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace ddprun {

Membership::Membership(JobId job, std::string host) {
    state_.job = std::move(job);
    state_.host = std::move(host);
}

Membership::Membership(MembershipState state) : state_(std::move(state)) {}

Actions Membership::step(const MembershipEvent& event, Stamp now) {
    now_ = std::max(now_, now);
    actions_.clear();
    std::visit([&](const auto& body) { handle(event, body); }, event.body);
    return std::exchange(actions_, {});
}

Actions Membership::decline(const Join& join, Stamp now) {
    now_ = std::max(now_, now);
    actions_.clear();
    const std::string text =
        join.requested_rank
            ? describe_taken(*join.requested_rank, join.info.host)
            : fmt::format(
                  "another agent of a host {} has the same process number and lives; give each a "
                  "host name or a --node_rank of its own",
                  join.info.host
              );
    refuse({join.node, join.incarnation, join}, join, Refused{RefusalReason::rank_taken, text});
    return std::exchange(actions_, {});
}

std::optional<Stamp> Membership::deadline() const {
    std::optional<Stamp> earliest;
    for (const auto& each :
         {state_.phase == Phase::gathering ? state_.join_deadline : std::nullopt,
          state_.last_call_deadline,
          state_.store_deadline,
          state_.restart_at,
          state_.waiting_due,
          state_.rebuild_deadline}) {
        if (each && (!earliest || *each < *earliest)) {
            earliest = each;
        }
    }
    return earliest;
}

bool Membership::over() const {
    return state_.phase == Phase::ended && state_.nodes.empty();
}

// ---- what the server sees

void Membership::handle(const MembershipEvent& event, const NodeLost& lost) {
    const Node* node = living(event);
    if (node == nullptr) {
        return;
    }
    const std::string text = fmt::format(
        "{} was lost: {}",
        describe_node(node->second.info),
        lost.cause == NodeLost::Cause::closed ? "its connection closed" : "it is silent"
    );
    remove_node(node->first, {Happened::What::node_lost, text, lost.since});
}

void Membership::handle(const MembershipEvent& /*event*/, const DeadlineExpired& /*expired*/) {
    const auto expired = [this](std::optional<Stamp>& deadline) {
        if (!deadline || now_ < *deadline) {
            return false;
        }
        deadline.reset();
        return true;
    };
    if (expired(state_.rebuild_deadline)) {
        give_up_rebuild();
    }
    if (expired(state_.last_call_deadline)) {
        state_.last_call_deadline = now_;  // stays expired: the next try_seal may seal
        try_seal();
        state_.last_call_deadline.reset();
    }
    if (expired(state_.store_deadline)) {
        const Node* first = &*state_.nodes.find(state_.seats.front().node);
        end_job(
            exit_code::kInternal,
            fmt::format(
                "{} did not open the worker store of round {} within {}",
                describe_node(first->second.info),
                state_.plan.round,
                describe_time(limits::kStoreReadyTimeout)
            )
        );
        return;
    }
    if (expired(state_.restart_at)) {
        state_.phase = Phase::gathering;
        gather();
    }
    if (state_.phase != Phase::gathering) {
        return;
    }
    if (expired(state_.join_deadline)) {
        const Waiting present = waiting();
        std::string reason = fmt::format(
            "join time-out after {}: {} joined, {} missing of --nnodes={}{}{}",
            describe_time(state_.spec->join_timeout),
            present.present,
            present.missing,
            describe_nnodes(*state_.spec),
            present.joined.empty() ? "" : "; here: ",
            describe_names(present)
        );
        for (const std::string& refusal : state_.refusals) {
            reason += "; refused: " + refusal;
        }
        end_job(exit_code::kJoinTimeout, std::move(reason));
        return;
    }
    if (expired(state_.waiting_due)) {
        const Waiting message = waiting();
        for (const Node& node : state_.nodes) {
            send(node, message);
        }
        state_.waiting_due = after(limits::kWaitingInterval);
    }
}

void Membership::remove_node(NodeId node, const Departure& departure) {
    const auto found = state_.nodes.find(node);
    DDPRUN_ASSERT(found != state_.nodes.end());
    tell(departure.what, node, departure.text);
    Seat* seat = seat_of(*found);
    const bool was_active =
        seat != nullptr && (seat->state == SeatState::running || seat->state == SeatState::failed);
    if (was_active) {
        set_seat(*seat, SeatState::lost);
    }
    state_.unfit_nodes -= is_fit(found->second) ? 0 : 1;
    state_.nodes.erase(found);

    switch (state_.phase) {
        case Phase::gathering: gather(); return;
        case Phase::delaying: return;
        case Phase::preparing:
            if (seat != nullptr) {
                next_round(state_.next_reason, state_.next_reason_text);
            }
            return;
        case Phase::running:
            if (was_active) {
                stop_round({StopCause::Kind::node_lost, departure.text, 0});
            }
            return;
        case Phase::stopping:
            // A dead node's peers fail when their connections to it break, and their reports may be
            // faster than its own end.
            if (was_active && state_.cause.kind == StopCause::Kind::worker_failure &&
                departure.since.value() - limits::kResumeGrace.count() <=
                    state_.first_failure_at->value()) {
                state_.cause = state_.stop_request.value_or(StopCause{
                    StopCause::Kind::node_lost, departure.text, 0});
            }
            finish_stopping();
            return;
        case Phase::ended: return;
    }
}

// ---- rounds

void Membership::gather() {
    DDPRUN_ASSERT(state_.phase == Phase::gathering);
    if (!state_.spec) {
        return;
    }
    if (!state_.join_deadline) {
        state_.join_deadline = after(state_.spec->join_timeout);
    }
    // Only before the first round are more nodes than MIN worth waiting for.
    if (state_.rounds_sealed > 0 || fit_nodes() < state_.spec->min_nodes.value()) {
        state_.last_call_deadline.reset();
    } else if (!state_.last_call_deadline) {
        state_.last_call_deadline = after(state_.spec->last_call_timeout);
    }
    try_seal();
    if (state_.phase == Phase::gathering) {
        // Each time all are told: the more there are, the less often.
        const auto nodes = static_cast<std::int64_t>(state_.nodes.size());
        const Stamp soon = after(std::min(
            limits::kWaitingDelay * (1 + nodes / limits::kWaitingNamesMax), limits::kWaitingDelayMax
        ));
        state_.waiting_due = state_.waiting_due ? std::min(*state_.waiting_due, soon) : soon;
    }
}

void Membership::try_seal() {
    if (state_.phase != Phase::gathering || state_.rebuild_deadline) {
        return;
    }
    const std::int32_t count = fit_nodes();
    const bool last_call_over = state_.rounds_sealed > 0 ||
                                (state_.last_call_deadline && *state_.last_call_deadline <= now_);
    if (count >= state_.spec->max_nodes.value() ||
        (count >= state_.spec->min_nodes.value() && last_call_over)) {
        seal();
    }
}

void Membership::seal() {
    state_.phase = Phase::preparing;
    state_.last_call_deadline.reset();
    state_.waiting_due.reset();
    state_.store_deadline = after(limits::kStoreReadyTimeout);
    state_.failures.clear();
    state_.first_failure_at.reset();
    state_.stopped.clear();
    state_.round_began = now_;

    state_.plan = RoundPlan{};
    state_.adopted = false;
    ++state_.rounds_sealed;
    state_.plan.round = state_.next_round;
    state_.next_round = Round{state_.next_round.value() + 1};
    state_.plan.reason = state_.next_reason;
    state_.plan.reason_text = state_.next_reason_text;
    state_.plan.restart_count = state_.restarts.restarts;
    state_.plan.max_restarts = state_.spec->max_restarts;
    state_.seats.clear();
    std::vector<const NodeInfo*> infos;
    for (NodeId& node : seat_order(state_.nodes, state_.spec->max_nodes)) {
        const LivingNode& living = state_.nodes.at(node);
        infos.push_back(&living.info);
        state_.seats.push_back(Seat{std::move(node), living.incarnation, SeatState::running, {}});
    }
    const std::vector<NodePlace> places = places_of(infos);
    for (std::size_t i = 0; i < places.size(); ++i) {
        state_.seats[i].place = places[i];
    }
    const auto seats = static_cast<std::int32_t>(state_.seats.size());
    state_.plan.master_address = infos.front()->address;
    state_.plan.nodes = NodeCount{seats};
    state_.plan.world_size = world_size_of(places);
    state_.active_seats = seats;
    state_.succeeded_seats = 0;
    for (std::size_t i = 0; i < state_.seats.size(); ++i) {
        state_.nodes.at(state_.seats[i].node).seat = GroupRank{static_cast<std::int32_t>(i)};
    }
    const Node& first = *state_.nodes.find(state_.seats.front().node);
    tell(
        Happened::What::round_prepared,
        first.first,
        fmt::format("{} opens the worker store", describe_node(first.second.info))
    );
    send(first, PrepareRound{state_.plan.round});
}

void Membership::begin_round() {
    state_.phase = Phase::running;
    state_.join_deadline.reset();
    state_.store_deadline.reset();
    state_.round_began = now_;
    tell(
        Happened::What::round_begun,
        NodeId{},
        fmt::format(
            "{} nodes, {}, master {}:{}",
            state_.seats.size(),
            state_.plan.reason_text,
            state_.plan.master_address,
            state_.plan.master_port
        )
    );
    for (const Seat& seat : state_.seats) {
        Node& node = *state_.nodes.find(seat.node);
        node.second.last_rank = seat.place.group_rank;
        node.second.told_spare = false;
        send(node, BeginRound{state_.plan, seat.place});
    }
    if (state_.nodes.size() > state_.seats.size()) {
        for (Node& node : state_.nodes) {
            tell_spare(node);
        }
    }
}

void Membership::stop_round(StopCause cause) {
    state_.cause = std::move(cause);
    state_.phase = Phase::stopping;
    tell(Happened::What::round_stopping, NodeId{}, state_.cause.text);
    const StopRound message = stop_message();
    for (const Seat& seat : state_.seats) {
        // A node with a failed worker stops its others by itself.
        if (seat.state == SeatState::running || seat.state == SeatState::succeeded) {
            const auto node = state_.nodes.find(seat.node);
            if (node != state_.nodes.end() && node->second.incarnation == seat.incarnation) {
                send(*node, message);
            }
        }
    }
    finish_stopping();
}

void Membership::finish_stopping() {
    if (state_.phase != Phase::stopping || state_.active_seats > 0) {
        return;
    }
    switch (state_.cause.kind) {
        case StopCause::Kind::worker_failure: after_failure(); return;
        case StopCause::Kind::node_lost:
        case StopCause::Kind::node_left:
        case StopCause::Kind::rendezvous_lost:
            after_membership_change(RoundReason::node_lost);
            return;
        case StopCause::Kind::node_joined:
            after_membership_change(RoundReason::node_joined);
            return;
        case StopCause::Kind::job_stopped:
            end_job(exit_code::from_signal(state_.cause.signal), state_.cause.text);
            return;
    }
}

void Membership::end_job(std::int32_t exit_status, std::string reason) {
    state_.phase = Phase::ended;
    state_.join_deadline.reset();
    state_.last_call_deadline.reset();
    state_.store_deadline.reset();
    state_.waiting_due.reset();
    state_.rebuild_deadline.reset();
    state_.restart_at.reset();
    std::sort(
        state_.stopped.begin(),
        state_.stopped.end(),
        [](const StoppedWorker& a, const StoppedWorker& b) { return a.rank < b.rank; }
    );
    state_.end = EndJob{
        exit_status, std::move(reason), state_.failures, state_.plan.restart_count, state_.stopped};
    if (exit_status == exit_code::kSuccess) {
        state_.end.failures.clear();
    }
    tell(
        Happened::What::job_ended,
        NodeId{},
        fmt::format(
            "status {}{}{}", exit_status, state_.end.reason.empty() ? "" : ": ", state_.end.reason
        )
    );
    for (const Node& node : state_.nodes) {
        send(node, state_.end);
    }
    actions_.emplace_back(JobEnded{exit_status});
}

// ---- small parts

void Membership::add_failure(const WorkerFailure& failure) {
    if (state_.failures.empty()) {
        state_.first_failure_at = now_;
    }
    if (state_.failures.size() < static_cast<std::size_t>(limits::kFailuresPerReportMax)) {
        state_.failures.push_back(failure);
    }
}

void Membership::add_stopped(const std::vector<StoppedWorker>& stopped) {
    const std::size_t room = limits::kStoppedWorkersMax - state_.stopped.size();
    const auto count = static_cast<std::ptrdiff_t>(std::min(room, stopped.size()));
    state_.stopped.insert(state_.stopped.end(), stopped.begin(), stopped.begin() + count);
}

Membership::Node* Membership::living(const MembershipEvent& event) {
    const auto found = state_.nodes.find(event.node);
    if (found == state_.nodes.end() || found->second.incarnation != event.incarnation) {
        return nullptr;
    }
    return &*found;
}

Membership::Node* Membership::reporter(const MembershipEvent& event, SequenceNumber sequence) {
    Node* node = living(event);
    if (node == nullptr) {
        return nullptr;
    }
    send(*node, Ack{sequence});
    if (sequence <= node->second.last_sequence) {
        return nullptr;
    }
    node->second.last_sequence = sequence;
    return node;
}

Seat* Membership::seat_of(const Node& node) {
    if (!node.second.seat) {
        return nullptr;
    }
    return &state_.seats.at(static_cast<std::size_t>(node.second.seat->value()));
}

Seat* Membership::seat_in(const MembershipEvent& event, Round round) {
    const Node* node = living(event);
    const bool sealed = !state_.seats.empty() && state_.plan.round == round;
    return sealed && node != nullptr ? seat_of(*node) : nullptr;
}

void Membership::set_seat(Seat& seat, SeatState state) {
    const auto count = [this](SeatState counted, std::int32_t by) {
        state_.active_seats +=
            counted == SeatState::running || counted == SeatState::failed ? by : 0;
        state_.succeeded_seats += counted == SeatState::succeeded ? by : 0;
    };
    count(seat.state, -1);
    seat.state = state;
    count(seat.state, 1);
}

std::int32_t Membership::fit_nodes() const {
    return static_cast<std::int32_t>(state_.nodes.size()) - state_.unfit_nodes;
}

Waiting Membership::waiting() const {
    Waiting message;
    std::int32_t leaving = 0;
    for (const auto& [node, living] : state_.nodes) {
        if (!living.leaving &&
            message.joined.size() < static_cast<std::size_t>(limits::kWaitingNamesMax)) {
            message.joined.push_back(living.info.host);
        }
        leaving += living.leaving ? 1 : 0;
    }
    message.present = NodeCount{static_cast<std::int32_t>(state_.nodes.size()) - leaving};
    message.refused = state_.refusals;
    message.missing =
        NodeCount{std::max(0, state_.spec->min_nodes.value() - message.present.value())};
    return message;
}

Welcome Membership::welcome(bool send_again) const {
    return Welcome{state_.spec->heartbeat_interval, send_again, state_.host};
}

StopRound Membership::stop_message() const {
    StopRound message;
    message.round = state_.plan.round;
    message.reason = state_.cause.text;
    message.signal = state_.cause.signal;
    message.last = state_.cause.kind == StopCause::Kind::job_stopped;
    message.kind = state_.cause.kind;
    if (state_.cause.kind == StopCause::Kind::worker_failure) {
        message.failure = state_.failures.front();
        message.last = failure_is_final();
    }
    return message;
}

Stamp Membership::after(std::chrono::milliseconds delay) const {
    return Stamp{now_.value() + delay.count()};
}

void Membership::send(const Node& node, ServerMessage message) {
    actions_.emplace_back(Send{node.first, node.second.incarnation, std::move(message)});
}

void Membership::tell(Happened::What what, const NodeId& node, std::string text) {
    const Round round = state_.seats.empty() ? state_.next_round : state_.plan.round;
    actions_.emplace_back(Happened{what, round, node, std::move(text)});
}

}  // namespace ddprun
