// Which nodes take part in a round and in which order. Pure functions: what they get decides,
// nothing else.
#pragma once

#include "rendezvous/membership_state.h"

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

namespace ddprun {

/// Digits compare as numbers, so node2 comes before node10; equal names give false.
[[nodiscard]] bool natural_less(std::string_view left, std::string_view right);

/// At most `nodes_max` of the clean nodes, index = group rank. Nodes that ran before go first, then
/// those that came first. A requested rank is honoured where the round is large enough; a node
/// keeps its last rank; newcomers take the free places in natural order of their host names, then
/// of arrival.
[[nodiscard]] std::vector<NodeId> seat_order(
    const std::map<NodeId, LivingNode>& nodes, NodeCount nodes_max
);

}  // namespace ddprun
