#include "proto/round_plan.h"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

namespace ddprun {
namespace {

/// A round of nodes that have so many workers of such a role.
class TestRound {
public:
    explicit TestRound(const std::vector<std::pair<int, const char*>>& nodes) {
        std::vector<NodeInfo> infos;
        for (const auto& [local_world_size, role] : nodes) {
            NodeInfo node;
            node.local_world_size = LocalWorldSize{local_world_size};
            node.role = role;
            infos.push_back(node);
        }
        std::vector<const NodeInfo*> pointers;
        for (const NodeInfo& info : infos) {
            pointers.push_back(&info);
        }
        places_ = places_of(pointers);
        plan_.nodes = NodeCount{static_cast<std::int32_t>(nodes.size())};
        plan_.world_size = world_size_of(places_);
    }

    [[nodiscard]] WorkerRanks ranks(std::size_t node, std::int32_t worker) const {
        return ranks_of(plan_, places_.at(node), LocalRank{worker});
    }

private:
    RoundPlan plan_;
    std::vector<NodePlace> places_;
};

TEST_SUITE_BEGIN("proto/round_plan");

TEST_CASE("a lone worker has rank 0 of 1 everywhere") {
    const TestRound round({{1, "default"}});

    const WorkerRanks ranks = round.ranks(0, 0);

    CHECK(ranks.rank == Rank{0});
    CHECK(ranks.world_size == WorldSize{1});
    CHECK(ranks.role_rank == Rank{0});
    CHECK(ranks.role_world_size == WorldSize{1});
    CHECK(ranks.group_world_size == NodeCount{1});
}

TEST_CASE("global ranks are contiguous per node where the nodes differ in size") {
    const TestRound round({{3, "default"}, {1, "default"}, {2, "default"}});

    CHECK(round.ranks(0, 2).rank == Rank{2});
    CHECK(round.ranks(1, 0).rank == Rank{3});
    CHECK(round.ranks(2, 1).rank == Rank{5});
    CHECK(round.ranks(2, 1).world_size == WorldSize{6});
    CHECK(round.ranks(2, 1).local_world_size == LocalWorldSize{2});
}

TEST_CASE("role ranks and sizes count only the workers of the same role") {
    const TestRound round({{2, "trainer"}, {1, "reader"}, {2, "trainer"}});

    const WorkerRanks trainer = round.ranks(2, 0);
    const WorkerRanks reader = round.ranks(1, 0);

    CHECK(trainer.role_rank == Rank{2});
    CHECK(trainer.role_world_size == WorldSize{4});
    CHECK(reader.role_rank == Rank{0});
    CHECK(reader.role_world_size == WorldSize{1});
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
