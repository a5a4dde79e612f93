// What people read about failures, losses and refusals: plain words, made in one place so that logs
// and reports of all nodes say the same.
#pragma once

#include "proto/agent_messages.h"
#include "rendezvous/membership_events.h"

#include <chrono>
#include <string>
#include <vector>

namespace ddprun {

/// "node2 (agent pid 4711)".
[[nodiscard]] std::string describe_node(const NodeInfo& info);

/// "600 s", "1.5 s".
[[nodiscard]] std::string describe_time(std::chrono::milliseconds time);

/// "2", or "1:4" where the limits differ.
[[nodiscard]] std::string describe_nnodes(const JobSpec& spec);

/// "node_rank 1 is taken by node2".
[[nodiscard]] std::string describe_taken(GroupRank rank, const std::string& host);

/// Up to kWaitingNamesMax names: "node1, node2 and 3 more".
[[nodiscard]] std::string describe_names(const Waiting& waiting);

}  // namespace ddprun
