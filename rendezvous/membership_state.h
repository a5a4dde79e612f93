// The whole state of one job in the membership core, as a value: no pointers, no hash maps, so that
// it can be encoded, compared and copied. docs/states.md explains the phases; rules are in
// membership.cpp.
#pragma once

#include "proto/agent_messages.h"
#include "rendezvous/restart_policy.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ddprun {

enum class Phase : std::uint8_t {
    gathering = 0,  ///< no round: waits for nodes
    preparing = 1,  ///< a round is sealed, its worker store isn't bound yet
    running = 2,    ///< every node of the round was told to start its workers
    stopping = 3,   ///< every node of the round was told to stop its workers
    ended = 4,      ///< every node was told the end
    delaying = 5,   ///< no round: a worker failed, the restart comes after a delay
};

/// A node that has joined and lives.
struct LivingNode {
    Incarnation incarnation{};
    NodeInfo info;
    std::optional<GroupRank> requested_rank;
    std::optional<GroupRank> last_rank;  ///< of the last round that it ran in
    std::optional<GroupRank> seat;       ///< in the sealed round
    std::uint64_t arrival = 0;           ///< grows with each join
    SequenceNumber last_sequence{};      ///< of its reports
    /// It came back with workers of a round that isn't its own any more, and was told to stop them.
    std::optional<Round> unclean_round;
    bool told_spare = false;  ///< knows that it waits as a spare
    bool leaving = false;     ///< it goes and takes part in no further round

    friend bool operator==(const LivingNode&, const LivingNode&) = default;
};

/// May take part in a coming round.
[[nodiscard]] inline bool is_fit(const LivingNode& node) {
    return !node.unclean_round && !node.leaving;
}

enum class SeatState : std::uint8_t {
    running = 0,    ///< may have living workers
    failed = 1,     ///< a worker failed, the others are being stopped
    succeeded = 2,  ///< all its workers ended with status 0
    stopped = 3,    ///< none of its workers lives
    lost = 4,       ///< the node is gone
};

/// A node's place in the round; its index is the group rank.
struct Seat {
    NodeId node;  ///< empty in an adopted round until its node has come
    Incarnation incarnation{};
    SeatState state = SeatState::running;
    NodePlace place;

    friend bool operator==(const Seat&, const Seat&) = default;
};

/// Why the round is being stopped.
struct StopCause {
    using Kind = StopKind;

    Kind kind = Kind::worker_failure;
    std::string text;
    std::int32_t signal = 0;  ///< of job_stopped

    friend bool operator==(const StopCause&, const StopCause&) = default;
};

struct MembershipState {
    JobId job;
    std::string host;             ///< host name of the rendezvous
    std::optional<JobSpec> spec;  ///< of the first node that joined
    Phase phase = Phase::gathering;

    std::map<NodeId, LivingNode> nodes;
    std::uint64_t arrivals = 0;
    std::int32_t unfit_nodes = 0;  ///< that have an unclean_round or leave

    Round next_round{};
    std::int64_t rounds_sealed = 0;
    RoundReason next_reason = RoundReason::first_start;
    std::string next_reason_text = "first start";
    RestartHistory restarts;
    std::int32_t short_membership_rounds = 0;  ///< in a row

    RoundPlan plan;                 ///< of the sealed round; outside gathering
    std::vector<Seat> seats;        ///< of the sealed round; empty while gathering
    std::int32_t active_seats = 0;  ///< running or failed
    std::int32_t succeeded_seats = 0;
    Stamp round_began{};   ///< of its seal, and then of its begin
    bool adopted = false;  ///< the round was begun by a rendezvous before this one

    StopCause cause;                        ///< in stopping
    std::optional<StopCause> stop_request;  ///< a StopJob that came after a final failure
    std::vector<WorkerFailure> failures;    ///< of the round, in order of arrival
    std::optional<Stamp> first_failure_at;
    std::vector<StoppedWorker> stopped;  ///< of the round, in order of arrival

    std::optional<Stamp> restart_at;  ///< in delaying
    std::optional<Stamp> join_deadline;
    std::optional<Stamp> last_call_deadline;
    std::optional<Stamp> store_deadline;
    std::optional<Stamp> waiting_due;
    std::optional<Stamp> rebuild_deadline;  ///< for nodes that a rendezvous before this one had

    EndJob end;                         ///< in ended
    std::vector<Incarnation> replaced;  ///< former lives that a newer one replaced, latest last
    std::vector<std::string> refusals;  ///< for the report of a join time-out

    friend bool operator==(const MembershipState&, const MembershipState&) = default;
};

}  // namespace ddprun
