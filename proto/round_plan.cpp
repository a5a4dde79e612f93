#include "proto/round_plan.h"

#include "proto/assert.h"

namespace ddprun {

WorkerRanks ranks_of(const RoundPlan& plan, GroupRank group_rank, LocalRank local_rank) {
    const auto index = static_cast<std::size_t>(group_rank.value());
    DDPRUN_ASSERT(index < plan.nodes.size());
    const NodeInfo& own = plan.nodes[index];
    DDPRUN_ASSERT(local_rank.value() >= 0 && local_rank.value() < own.local_world_size.value());

    std::int32_t world_size = 0;
    std::int32_t role_world_size = 0;
    std::int32_t base_rank = 0;
    std::int32_t base_role_rank = 0;
    for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
        const NodeInfo& node = plan.nodes[i];
        if (i == index) {
            base_rank = world_size;
            base_role_rank = role_world_size;
        }
        world_size += node.local_world_size.value();
        if (node.role == own.role) {
            role_world_size += node.local_world_size.value();
        }
    }
    return WorkerRanks{
        .rank = Rank{base_rank + local_rank.value()},
        .local_rank = local_rank,
        .group_rank = group_rank,
        .role_rank = Rank{base_role_rank + local_rank.value()},
        .world_size = WorldSize{world_size},
        .local_world_size = own.local_world_size,
        .group_world_size = NodeCount{static_cast<std::int32_t>(plan.nodes.size())},
        .role_world_size = WorldSize{role_world_size},
    };
}

}  // namespace ddprun
