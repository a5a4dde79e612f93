// The membership of one job: who is in it, which round runs, when a new one begins and how the job
// ends. Pure: events in, actions out, no clock, no sockets; the same events give the same state on
// any machine. Liveness (who is silent) is another core (liveness.h), whose findings come in as
// NodeLost.
//
// Call step() with every event in order, with a stamp that never falls, and perform the actions in
// order; then step(DeadlineExpired) when deadline() has passed. Resent reports are acknowledged and
// otherwise ignored. docs/states.md has the table of states.
#pragma once

#include "rendezvous/membership_events.h"
#include "rendezvous/membership_state.h"

#include <optional>
#include <string>

namespace ddprun {

class Membership {
public:
    /// `host` is the name that agents are told as the rendezvous's.
    explicit Membership(JobId job, std::string host = {});

    /// Goes on from a stored state.
    explicit Membership(MembershipState state);

    [[nodiscard]] Actions step(const MembershipEvent& event, Stamp now);

    /// Two agents want one place, and the present one lives: the other is refused, and those that
    /// wait for nodes are told.
    [[nodiscard]] Actions decline(const Join& join, Stamp now);

    /// When to step DeadlineExpired, if nothing happens before.
    [[nodiscard]] std::optional<Stamp> deadline() const;

    /// The job has ended and every node has left: nothing can happen any more.
    [[nodiscard]] bool over() const;

    [[nodiscard]] const MembershipState& state() const { return state_; }

private:
    using Node = std::map<NodeId, LivingNode>::value_type;

    void handle(const MembershipEvent& event, const Join& join);
    void handle(const MembershipEvent& event, const StoreReady& report);
    void handle(const MembershipEvent& event, const WorkerFailed& report);
    void handle(const MembershipEvent& event, const WorkersSucceeded& report);
    void handle(const MembershipEvent& event, const RoundStopped& report);
    void handle(const MembershipEvent& event, const StopJob& report);
    void handle(const MembershipEvent& event, const Leave& report);
    void handle(const MembershipEvent& event, const Bye& report);
    void handle(const MembershipEvent& event, const NodeLost& lost);
    void handle(const MembershipEvent& event, const DeadlineExpired& expired);

    [[nodiscard]] std::optional<Refused> refusal_of(const MembershipEvent& event, const Join& join)
        const;
    void refuse(const MembershipEvent& event, const Join& join, Refused refused);
    void admit(const MembershipEvent& event, const Join& join);
    void replace(Node& old_life);
    void resume(Node& node, const Join& join);
    void say_again(const Node& node);
    void mark_unclean(Node& node, Round round);
    void consider_newcomer(Node& node);
    void remember_rounds(const Join& join);
    [[nodiscard]] bool adopt(Node& node, const RoundClaim& claim);
    void adopt_round(const RoundClaim& claim);
    void take_seat(Node& node, const RoundClaim& claim);
    void await_former_nodes();
    void finish_rebuild();
    void give_up_rebuild();
    void tell_spare(Node& node);

    [[nodiscard]] Node* living(const MembershipEvent& event);
    [[nodiscard]] Node* reporter(const MembershipEvent& event, SequenceNumber sequence);
    [[nodiscard]] Seat* seat_of(const Node& node);
    [[nodiscard]] Seat* seat_in(const MembershipEvent& event, Round round);
    void set_seat(Seat& seat, SeatState state);

    struct Departure {
        Happened::What what = Happened::What::node_lost;
        std::string text;
        Stamp since;
    };

    void remove_node(NodeId node, const Departure& departure);

    void gather();
    void try_seal();
    void seal();
    void begin_round();
    void stop_round(StopCause cause);
    void add_failure(const WorkerFailure& failure);
    void add_stopped(const std::vector<StoppedWorker>& stopped);
    void finish_stopping();
    void after_failure();
    void after_membership_change(RoundReason reason);
    void next_round(RoundReason reason, const std::string& text);
    void leave_round(RoundReason reason, const std::string& text);
    void begin_delay(std::chrono::milliseconds delay);
    [[nodiscard]] RestartDecision restart_decision() const;
    [[nodiscard]] bool failure_is_final() const;
    void end_job(std::int32_t exit_status, std::string reason);

    [[nodiscard]] std::int32_t fit_nodes() const;
    [[nodiscard]] Welcome welcome(bool send_again) const;
    [[nodiscard]] Waiting waiting() const;
    [[nodiscard]] StopRound stop_message() const;
    [[nodiscard]] Stamp after(std::chrono::milliseconds delay) const;
    void send(const Node& node, ServerMessage message);
    void tell(Happened::What what, const NodeId& node, std::string text);

    MembershipState state_;
    Stamp now_;        ///< of the event being handled
    Actions actions_;  ///< of the event being handled
};

}  // namespace ddprun
