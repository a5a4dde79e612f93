// The part of the membership core that takes what agents report, each report once.
#include "proto/exit_codes.h"
#include "rendezvous/membership.h"
#include "rendezvous/membership_texts.h"

#include <fmt/format.h>

#include <utility>

namespace ddprun {

void Membership::handle(const MembershipEvent& event, const StoreReady& report) {
    if (reporter(event, report.sequence) == nullptr || state_.phase != Phase::preparing) {
        return;
    }
    const Seat* seat = seat_in(event, report.round);
    if (seat == state_.seats.data()) {
        state_.plan.master_port = report.port;
        begin_round();
    }
}

void Membership::handle(const MembershipEvent& event, const WorkerFailed& report) {
    if (reporter(event, report.sequence) == nullptr) {
        return;
    }
    Seat* seat = seat_in(event, report.round);
    if (seat == nullptr) {
        return;
    }
    switch (state_.phase) {
        case Phase::gathering:
        case Phase::delaying:
        case Phase::ended: return;
        case Phase::preparing:  // no worker runs yet, so there is nothing to stop
            add_failure(report.failure);
            state_.store_deadline.reset();
            state_.cause = {StopCause::Kind::worker_failure, describe_failure(report.failure), 0};
            for (Seat& each : state_.seats) {
                set_seat(each, SeatState::stopped);
            }
            state_.phase = Phase::stopping;
            finish_stopping();
            return;
        case Phase::running:
            add_failure(report.failure);
            set_seat(*seat, SeatState::failed);
            stop_round({StopCause::Kind::worker_failure, describe_failure(report.failure), 0});
            return;
        case Phase::stopping:
            add_failure(report.failure);
            set_seat(*seat, SeatState::failed);
            if (state_.cause.kind == StopCause::Kind::rendezvous_lost) {
                state_.cause = {
                    StopCause::Kind::worker_failure, describe_failure(report.failure), 0};
            }
            return;
    }
}

void Membership::handle(const MembershipEvent& event, const WorkersSucceeded& report) {
    if (reporter(event, report.sequence) == nullptr) {
        return;
    }
    Seat* seat = seat_in(event, report.round);
    if (seat == nullptr || seat->state != SeatState::running) {
        return;
    }
    if (state_.phase == Phase::running) {
        set_seat(*seat, SeatState::succeeded);
        if (state_.succeeded_seats == static_cast<std::int32_t>(state_.seats.size())) {
            end_job(exit_code::kSuccess, "");
        }
    } else if (state_.phase == Phase::stopping) {
        set_seat(*seat, SeatState::succeeded);
        finish_stopping();
    }
}

void Membership::handle(const MembershipEvent& event, const RoundStopped& report) {
    Node* node = reporter(event, report.sequence);
    if (node == nullptr) {
        return;
    }
    if (node->second.unclean_round == report.round) {
        node->second.unclean_round.reset();
        state_.unfit_nodes -= is_fit(node->second) ? 1 : 0;
        consider_newcomer(*node);
        return;
    }
    Seat* seat = seat_in(event, report.round);
    const bool is_stopping = state_.phase == Phase::stopping;
    if (seat == nullptr || !(is_stopping || (state_.phase == Phase::running && state_.adopted))) {
        return;
    }
    for (const WorkerFailure& failure : report.later_failures) {
        add_failure(failure);
    }
    add_stopped(report.stopped);
    if (seat->state == SeatState::running || seat->state == SeatState::failed) {
        set_seat(*seat, SeatState::stopped);
    }
    if (!is_stopping) {
        // The cause may still be told by another node; if not, it was a change of nodes.
        stop_round(
            {StopCause::Kind::rendezvous_lost,
             "the round was being stopped when the rendezvous was lost",
             0}
        );
        return;
    }
    finish_stopping();
}

void Membership::handle(const MembershipEvent& event, const StopJob& report) {
    const Node* node = reporter(event, report.sequence);
    if (node == nullptr || state_.phase == Phase::ended) {
        return;
    }
    const std::string text = fmt::format(
        "stopped by {} to {}", describe_signal(report.signal), describe_node(node->second.info)
    );
    StopCause cause{StopCause::Kind::job_stopped, text, report.signal};
    switch (state_.phase) {
        case Phase::gathering:
        case Phase::delaying:
        case Phase::preparing: end_job(exit_code::from_signal(report.signal), text); return;
        case Phase::running: stop_round(std::move(cause)); return;
        case Phase::stopping:
            // What had already decided the end of the job stays its cause.
            if (state_.cause.kind == StopCause::Kind::worker_failure && failure_is_final()) {
                state_.stop_request = std::move(cause);
            } else if (state_.cause.kind != StopCause::Kind::job_stopped) {
                state_.cause = std::move(cause);
            }
            return;
        case Phase::ended: return;
    }
}

void Membership::handle(const MembershipEvent& event, const Leave& report) {
    Node* node = reporter(event, report.sequence);
    if (node == nullptr || node->second.leaving) {
        return;
    }
    state_.unfit_nodes += is_fit(node->second) ? 1 : 0;
    node->second.leaving = true;
    const std::string text = fmt::format(
        "{} leaves ({})", describe_node(node->second.info), describe_signal(report.signal)
    );
    tell(Happened::What::node_left, node->first, text);
    const Seat* seat = seat_of(*node);
    switch (state_.phase) {
        case Phase::gathering: gather(); return;
        case Phase::delaying: return;
        case Phase::preparing:
            if (seat != nullptr) {
                next_round(state_.next_reason, state_.next_reason_text);
            }
            return;
        case Phase::running:
            if (seat != nullptr && seat->state == SeatState::running) {
                stop_round({StopCause::Kind::node_left, text, 0});
            }
            return;
        case Phase::stopping:
        case Phase::ended: return;
    }
}

void Membership::handle(const MembershipEvent& event, const Bye& report) {
    const Node* node = reporter(event, report.sequence);
    if (node == nullptr) {
        return;
    }
    const std::string text = fmt::format("{} left", describe_node(node->second.info));
    remove_node(node->first, {Happened::What::node_left, text, now_});
}

}  // namespace ddprun
