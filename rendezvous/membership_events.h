// What the membership core of a job takes in and gives out. Plain values whose fields the wire
// codec knows, so that a log of events can be stored anywhere. Events name node and incarnation,
// never a connection.
#pragma once

#include "proto/agent_messages.h"

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace ddprun {

// ---- in

/// From the liveness core: this life of the node is over.
struct NodeLost {
    enum class Cause : std::uint8_t {
        closed = 0,  ///< its connection closed and didn't come back
        silent = 1,  ///< no heartbeat came for too long
    };

    Cause cause = Cause::closed;
    Stamp since;  ///< since when it may have been gone

    friend bool operator==(const NodeLost&, const NodeLost&) = default;
};

/// `Membership::deadline()` has passed. Harmless where it hasn't.
struct DeadlineExpired {
    friend bool operator==(const DeadlineExpired&, const DeadlineExpired&) = default;
};

struct MembershipEvent {
    NodeId node;                ///< empty for DeadlineExpired
    Incarnation incarnation{};  ///< 0 for DeadlineExpired
    std::variant<
        Join,
        StoreReady,
        WorkerFailed,
        WorkersSucceeded,
        RoundStopped,
        StopJob,
        Leave,
        Bye,
        NodeLost,
        DeadlineExpired>
        body;

    friend bool operator==(const MembershipEvent&, const MembershipEvent&) = default;
};

// ---- out

/// To that life of the node and no other.
struct Send {
    NodeId node;
    Incarnation incarnation{};
    ServerMessage message;

    friend bool operator==(const Send&, const Send&) = default;
};

/// Tell that life of the node why it isn't wanted, then close its connection.
struct Refuse {
    NodeId node;
    Incarnation incarnation{};
    Refused refused;

    friend bool operator==(const Refuse&, const Refuse&) = default;
};

/// For logs and views; nothing depends on it.
struct Happened {
    enum class What : std::uint8_t {
        node_joined = 0,
        node_back = 1,  ///< the same life on a new connection
        node_lost = 2,
        node_left = 3,
        node_refused = 4,
        round_prepared = 5,
        round_begun = 6,
        round_stopping = 7,
        job_ended = 8,
        round_adopted = 9,  ///< of a rendezvous before this one, told by its agents
    };

    What what = What::node_joined;
    Round round{};     ///< the present or coming round
    NodeId node;       ///< empty where it concerns the job
    std::string text;  ///< in plain words

    friend bool operator==(const Happened&, const Happened&) = default;
};

/// EndJob has been sent to every node; the job is over when all have left.
struct JobEnded {
    std::int32_t exit_status = 0;

    friend bool operator==(const JobEnded&, const JobEnded&) = default;
};

using Action = std::variant<Send, Refuse, Happened, JobEnded>;
using Actions = std::vector<Action>;

}  // namespace ddprun
