#include "proto/round_plan.h"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

namespace ddprun {
namespace {

RoundPlan plan_of(const std::vector<std::pair<int, const char*>>& nodes) {
    RoundPlan plan;
    for (const auto& [local_world_size, role] : nodes) {
        NodeInfo node;
        node.local_world_size = LocalWorldSize{local_world_size};
        node.role = role;
        plan.nodes.push_back(node);
    }
    return plan;
}

TEST_SUITE_BEGIN("proto/round_plan");

TEST_CASE("a lone worker has rank 0 of 1 everywhere") {
    const RoundPlan plan = plan_of({{1, "default"}});

    const WorkerRanks ranks = ranks_of(plan, GroupRank{0}, LocalRank{0});

    CHECK(ranks.rank == Rank{0});
    CHECK(ranks.world_size == WorldSize{1});
    CHECK(ranks.role_rank == Rank{0});
    CHECK(ranks.role_world_size == WorldSize{1});
    CHECK(ranks.group_world_size == NodeCount{1});
}

TEST_CASE("global ranks are contiguous per node where the nodes differ in size") {
    const RoundPlan plan = plan_of({{3, "default"}, {1, "default"}, {2, "default"}});

    CHECK(ranks_of(plan, GroupRank{0}, LocalRank{2}).rank == Rank{2});
    CHECK(ranks_of(plan, GroupRank{1}, LocalRank{0}).rank == Rank{3});
    CHECK(ranks_of(plan, GroupRank{2}, LocalRank{1}).rank == Rank{5});
    CHECK(ranks_of(plan, GroupRank{2}, LocalRank{1}).world_size == WorldSize{6});
    CHECK(ranks_of(plan, GroupRank{2}, LocalRank{1}).local_world_size == LocalWorldSize{2});
}

TEST_CASE("role ranks and sizes count only the workers of the same role") {
    const RoundPlan plan = plan_of({{2, "trainer"}, {1, "reader"}, {2, "trainer"}});

    const WorkerRanks trainer = ranks_of(plan, GroupRank{2}, LocalRank{0});
    const WorkerRanks reader = ranks_of(plan, GroupRank{1}, LocalRank{0});

    CHECK(trainer.role_rank == Rank{2});
    CHECK(trainer.role_world_size == WorldSize{4});
    CHECK(reader.role_rank == Rank{0});
    CHECK(reader.role_world_size == WorldSize{1});
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
