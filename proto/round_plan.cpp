#include "proto/round_plan.h"

#include "proto/assert.h"

#include <map>
#include <string_view>

namespace ddprun {

std::vector<NodePlace> places_of(const std::vector<const NodeInfo*>& nodes) {
    std::vector<NodePlace> places;
    places.reserve(nodes.size());
    std::int32_t workers = 0;
    std::map<std::string_view, std::int32_t> of_role;
    for (const NodeInfo* node : nodes) {
        std::int32_t& role_workers = of_role[node->role];
        places.push_back(NodePlace{
            .group_rank = GroupRank{static_cast<std::int32_t>(places.size())},
            .local_world_size = node->local_world_size,
            .first_rank = Rank{workers},
            .first_role_rank = Rank{role_workers},
            .role_world_size = {},
        });
        workers += node->local_world_size.value();
        role_workers += node->local_world_size.value();
    }
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        places[i].role_world_size = WorldSize{of_role[nodes[i]->role]};
    }
    return places;
}

WorldSize world_size_of(const std::vector<NodePlace>& places) {
    if (places.empty()) {
        return WorldSize{0};
    }
    return WorldSize{places.back().first_rank.value() + places.back().local_world_size.value()};
}

WorkerRanks ranks_of(const RoundPlan& plan, const NodePlace& place, LocalRank local_rank) {
    DDPRUN_ASSERT(local_rank.value() >= 0 && local_rank.value() < place.local_world_size.value());
    return WorkerRanks{
        .rank = Rank{place.first_rank.value() + local_rank.value()},
        .local_rank = local_rank,
        .group_rank = place.group_rank,
        .role_rank = Rank{place.first_role_rank.value() + local_rank.value()},
        .world_size = plan.world_size,
        .local_world_size = place.local_world_size,
        .group_world_size = plan.nodes,
        .role_world_size = place.role_world_size,
    };
}

}  // namespace ddprun
