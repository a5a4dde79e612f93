// The agent protocol: what an agent and the rendezvous say to each other. Structs only here, one
// per message; their bytes are in agent_codec.{h,cpp} and, normatively, in docs/wire.md. An agent
// on the node that hosts the rendezvous exchanges the same structs without a socket.
//
// Life of an agent: Join -> Welcome (or Refused, the end) -> Waiting* -> BeginRound -> reports ->
// StopRound -> ...
// -> EndJob -> Bye. Group rank 0 of a coming round first gets PrepareRound and answers StoreReady.
// Reports carry a sequence number and are acknowledged; an agent sends unacknowledged ones again
// after it reconnects, which is harmless. Events name node and incarnation, never a connection.
#pragma once

#include "proto/failure.h"
#include "proto/round_plan.h"
#include "proto/types.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace ddprun {

/// The first bytes of an agent's connection, followed by u16 version. Not 0 (the store) and no
/// letter of an HTTP method.
inline constexpr char kAgentMagic[4] = {'\xDD', 'P', 'R', '1'};
inline constexpr std::uint16_t kAgentProtocolVersion = 1;

// ---- settings of a job, the same from every node
// -------------------------------------------------------------------

struct JobSpec {
    NodeCount min_nodes{1};
    NodeCount max_nodes{1};
    RestartCount max_restarts{0};
    std::chrono::milliseconds join_timeout{600'000};
    std::chrono::milliseconds last_call_timeout{2'000};
    std::chrono::milliseconds heartbeat_interval{1'000};
    std::int32_t heartbeat_misses = 3;
    /// Rounds in a row that began for another set of nodes after less than 60 s; one more ends the
    /// job.
    std::int32_t membership_rounds_max = 20;
    /// Statuses of a worker (128 + n for signal n) after which the job isn't started again.
    std::vector<std::int32_t> no_restart_codes{};
    /// Before a restart; doubled with each further failure in a row (rendezvous/restart_policy.h).
    std::chrono::milliseconds restart_delay{0};
    /// A failure sooner than this after the round's start counts against a smaller budget; 0: none
    /// does.
    std::chrono::milliseconds min_uptime{0};

    friend bool operator==(const JobSpec&, const JobSpec&) = default;
};

// ---- agent -> rendezvous
// -------------------------------------------------------------------------------------------

/// A node's place in a round, as an agent tells it to a rendezvous that may have been restarted and
/// knows nothing: from the claims of all its nodes it has the round again.
struct RoundClaim {
    Round round{};
    GroupRank group_rank{};
    NodeCount nodes{1};  ///< of the round
    RestartCount restart_count{};
    std::string master_address{};
    Port master_port{};

    friend bool operator==(const RoundClaim&, const RoundClaim&) = default;
};

/// First message of a connection. After a lost connection the same incarnation joins again and says
/// in which round it is.
struct Join {
    JobId job;
    NodeId node;
    Incarnation incarnation;
    NodeInfo info;
    JobSpec spec;
    std::optional<GroupRank> requested_rank;  ///< --node_rank
    std::optional<Round> current_round;       ///< of a resuming agent whose workers run
    bool job_began = false;                   ///< it knows that the job has begun a round
    std::optional<Round> newest_round{};      ///< that it was told of
    std::optional<RoundClaim> claim{};        ///< of the newest round that it began

    friend bool operator==(const Join&, const Join&) = default;
};

struct Heartbeat {
    friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};

/// Answer to PrepareRound: the worker store of `round` listens on `port`.
struct StoreReady {
    SequenceNumber sequence;
    Round round;
    Port port;

    friend bool operator==(const StoreReady&, const StoreReady&) = default;
};

/// The first failure of this node in the round, sent before its other workers are stopped.
struct WorkerFailed {
    SequenceNumber sequence;
    Round round;
    WorkerFailure failure;

    friend bool operator==(const WorkerFailed&, const WorkerFailed&) = default;
};

/// All workers of this node ended with status 0.
struct WorkersSucceeded {
    SequenceNumber sequence;
    Round round;

    friend bool operator==(const WorkersSucceeded&, const WorkersSucceeded&) = default;
};

/// A worker that lived when its round was stopped, and that hasn't failed since.
struct StoppedWorker {
    Rank rank{};
    bool killed = false;  ///< it didn't end within the grace time

    friend bool operator==(const StoppedWorker&, const StoppedWorker&) = default;
};

/// Answer to StopRound, and what follows WorkerFailed: no worker of `round` is alive on this node.
/// `later_failures` are those that failed after the first, not those that we stopped.
struct RoundStopped {
    SequenceNumber sequence;
    Round round;
    std::vector<WorkerFailure> later_failures;
    std::vector<StoppedWorker> stopped{};

    friend bool operator==(const RoundStopped&, const RoundStopped&) = default;
};

/// This agent was told by `signal` to stop: the whole job ends with 128 + signal on every node.
struct StopJob {
    SequenceNumber sequence;
    std::int32_t signal = 0;

    friend bool operator==(const StopJob&, const StopJob&) = default;
};

/// This agent was told by `signal` to go while the others go on: the round is stopped, the next one
/// is without it. It stops its workers, reports that and says Bye.
struct Leave {
    SequenceNumber sequence;
    std::int32_t signal = 0;

    friend bool operator==(const Leave&, const Leave&) = default;
};

/// The last message: this agent has nothing more to report and goes.
struct Bye {
    SequenceNumber sequence;

    friend bool operator==(const Bye&, const Bye&) = default;
};

using AgentMessage = std::variant<
    Join,
    Heartbeat,
    StoreReady,
    WorkerFailed,
    WorkersSucceeded,
    RoundStopped,
    StopJob,
    Bye,
    Leave>;

// ---- rendezvous -> agent
// -------------------------------------------------------------------------------------------

struct Welcome {
    std::chrono::milliseconds heartbeat_interval{
        1'000};  ///< the job's; the first node that joined set it
    /// The rendezvous may not know what this agent reported before (it was restarted): everything
    /// of its newest round is to be sent again.
    bool send_again = false;
    std::string host{};  ///< host name of the rendezvous

    friend bool operator==(const Welcome&, const Welcome&) = default;
};

enum class RefusalReason : std::uint8_t {
    version = 0,       ///< another version of the protocol
    foreign_job = 1,   ///< the endpoint serves another job
    spec_differs = 2,  ///< this node asked for another job shape (nnodes, ...)
    rank_taken = 3,    ///< --node_rank belongs to a living node
    job_over = 4,      ///< the job has ended
    malformed = 5,     ///< not a message of this protocol, or values that make no sense
    replaced = 6,      ///< a newer life of the same node has taken this one's place
};

/// Final: the agent ends with status 77 and prints `text`, which names both sides of the conflict.
struct Refused {
    RefusalReason reason = RefusalReason::malformed;
    std::string text;

    friend bool operator==(const Refused&, const Refused&) = default;
};

/// Who is there and how many are missing; sent at each change and in intervals while nodes are
/// missing.
struct Waiting {
    std::vector<std::string> joined;  ///< host names, the first kWaitingNamesMax by name of node
    NodeCount missing{};              ///< to the smallest allowed number
    NodeCount present{};              ///< all that joined, also those that `joined` leaves out
    bool spare = false;  ///< the job runs without this node, which takes over a lost node's place
    /// Nobody is missing: the next round begins after this time (--restart_delay). 0: no such
    /// delay.
    std::chrono::milliseconds restart_in{0};
    std::vector<std::string> refused{};  ///< nodes that were declined, each with the reason

    friend bool operator==(const Waiting&, const Waiting&) = default;
};

/// To group rank 0 of a coming round: bind a fresh worker store now.
struct PrepareRound {
    Round round;

    friend bool operator==(const PrepareRound&, const PrepareRound&) = default;
};

/// Start the workers of `plan` at `place`. After a reconnect the rendezvous says again what
/// may have been lost: an agent ignores PrepareRound, BeginRound and StopRound of a round that it
/// has already seen so.
struct BeginRound {
    RoundPlan plan;
    NodePlace place;

    friend bool operator==(const BeginRound&, const BeginRound&) = default;
};

/// Why a round is stopped.
enum class StopKind : std::uint8_t {
    worker_failure = 0,
    node_lost = 1,
    node_joined = 2,
    job_stopped = 3,      ///< by a signal to an agent
    node_left = 4,        ///< by a signal to an agent that leaves alone
    rendezvous_lost = 5,  ///< the round was being stopped when the rendezvous was lost
};

/// Stop the workers of `round` now and answer RoundStopped. `last` says that no round is expected
/// to follow, for the log only: it is EndJob that ends the job.
struct StopRound {
    Round round;
    std::string reason;  ///< in plain words
    std::optional<WorkerFailure>
        failure;  ///< the job's first failure of the round, where a failure is the reason
    std::int32_t signal =
        0;  ///< forwarded to the workers where a signal is the reason, else 0 (TERM)
    bool last = false;
    StopKind kind = StopKind::worker_failure;

    friend bool operator==(const StopRound&, const StopRound&) = default;
};

struct Ack {
    SequenceNumber sequence;

    friend bool operator==(const Ack&, const Ack&) = default;
};

/// The job is over, the same status and report on every node.
struct EndJob {
    std::int32_t exit_status = 0;
    std::string reason;                   ///< in plain words; empty on success
    std::vector<WorkerFailure> failures;  ///< of the last round, first failure first
    RestartCount restart_count{};
    std::vector<StoppedWorker> stopped{};  ///< of the last round, in the order of their ranks

    friend bool operator==(const EndJob&, const EndJob&) = default;
};

using ServerMessage =
    std::variant<Welcome, Refused, Waiting, PrepareRound, BeginRound, StopRound, Ack, EndJob>;

}  // namespace ddprun
