// A round as the rendezvous publishes it: which nodes run together, in rank order, and where their
// worker store is. Every rank and size of every worker follows from it by the pure functions below,
// so all agents agree by construction.
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
    std::vector<NodeInfo> nodes;  ///< index = group rank

    friend bool operator==(const RoundPlan&, const RoundPlan&) = default;
};

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

/// Ranks are contiguous per node, in group-rank order. `group_rank` must be one of the plan's,
/// `local_rank` below the node's local world size.
[[nodiscard]] WorkerRanks ranks_of(
    const RoundPlan& plan, GroupRank group_rank, LocalRank local_rank
);

}  // namespace ddprun
