// A round as the rendezvous publishes it: what is the same on every node, and each node's own place
// in it. Every rank and size of every worker follows by the pure functions below. What a node is
// told doesn't grow with the number of nodes.
#pragma once

#include "proto/types.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun {

/// What a node tells of itself when it joins.
struct NodeInfo {
    std::string host;      ///< its host name, for logs and for the order of ranks
    std::string address;   ///< the address by which other nodes reach it, never a name that others
                           ///< can't resolve
    std::int32_t pid = 0;  ///< of its agent
    LocalWorldSize local_world_size{1};
    std::string role = "default";

    friend bool operator==(const NodeInfo&, const NodeInfo&) = default;
};

enum class RoundReason : std::uint8_t {
    first_start = 0,
    worker_failure = 1,  ///< charged to the restart budget
    node_lost = 2,
    node_joined = 3,
};

struct RoundPlan {
    Round round{};
    RoundReason reason = RoundReason::first_start;
    std::string reason_text;  ///< in plain words, for example "rank 1 on node2 exited with code 3"
    RestartCount restart_count{};
    RestartCount max_restarts{};
    std::string master_address;
    Port master_port{};
    NodeCount nodes{1};
    WorldSize world_size{1};

    friend bool operator==(const RoundPlan&, const RoundPlan&) = default;
};

/// One node's share of a round.
struct NodePlace {
    GroupRank group_rank{};
    LocalWorldSize local_world_size{1};
    Rank first_rank{};       ///< of its workers
    Rank first_role_rank{};  ///< among the workers of its role
    WorldSize role_world_size{1};

    friend bool operator==(const NodePlace&, const NodePlace&) = default;
};

/// The places of these nodes, whose order is that of their group ranks. Ranks are contiguous per
/// node.
[[nodiscard]] std::vector<NodePlace> places_of(const std::vector<const NodeInfo*>& nodes);

[[nodiscard]] WorldSize world_size_of(const std::vector<NodePlace>& places);

/// Ranks and sizes of one worker; the names are those of torchrun's environment.
struct WorkerRanks {
    Rank rank{};
    LocalRank local_rank{};
    GroupRank group_rank{};
    Rank role_rank{};
    WorldSize world_size{};
    LocalWorldSize local_world_size{};
    NodeCount group_world_size{};
    WorldSize role_world_size{};

    friend bool operator==(const WorkerRanks&, const WorkerRanks&) = default;
};

/// `local_rank` must be below the node's local world size.
[[nodiscard]] WorkerRanks ranks_of(
    const RoundPlan& plan, const NodePlace& place, LocalRank local_rank
);

}  // namespace ddprun
