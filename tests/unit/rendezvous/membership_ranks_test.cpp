#include "rendezvous/membership_ranks.h"

#include <doctest/doctest.h>

#include <optional>
#include <string>

namespace ddprun {
namespace {

struct Nodes {
    LivingNode& add(const std::string& host) {
        LivingNode node;
        node.info.host = host;
        node.arrival = nodes.size();
        // Ids in an order that is neither that of arrival nor that of the hosts.
        const NodeId id{std::string(1, static_cast<char>('z' - nodes.size())) + host};
        return nodes[id] = node;
    }

    [[nodiscard]] std::vector<std::string> order(std::int32_t nodes_max) const {
        std::vector<std::string> hosts;
        for (const NodeId& id : seat_order(nodes, NodeCount{nodes_max})) {
            hosts.push_back(nodes.at(id).info.host);
        }
        return hosts;
    }

    std::map<NodeId, LivingNode> nodes;
};

using Hosts = std::vector<std::string>;

TEST_SUITE_BEGIN("rendezvous/membership_ranks");

TEST_CASE("names compare with their numbers as numbers") {
    CHECK(natural_less("node2", "node10"));
    CHECK_FALSE(natural_less("node10", "node2"));
    CHECK(natural_less("a", "b"));
    CHECK(natural_less("node", "node1"));
    CHECK(natural_less("rack2-node10", "rack10-node1"));
    CHECK_FALSE(natural_less("node1", "node1"));
    CHECK_FALSE(natural_less("", ""));
    CHECK(natural_less("", "a"));
    CHECK(natural_less("n99999999999999999999998", "n99999999999999999999999"));
}

TEST_CASE("nodes of a first round stand in natural order of their host names") {
    Nodes nodes;
    nodes.add("node10");
    nodes.add("node2");
    nodes.add("node1");

    CHECK(nodes.order(3) == Hosts{"node1", "node2", "node10"});
}

TEST_CASE("nodes of the same host name stand in order of arrival") {
    Nodes nodes;
    nodes.add("a").info.role = "first";
    nodes.add("a").info.role = "second";

    const std::vector<NodeId> order = seat_order(nodes.nodes, NodeCount{2});

    CHECK(nodes.nodes.at(order[0]).info.role == "first");
}

TEST_CASE("requested ranks come before names") {
    Nodes nodes;
    nodes.add("node1").requested_rank = GroupRank{2};
    nodes.add("node2");
    nodes.add("node3").requested_rank = GroupRank{0};

    CHECK(nodes.order(3) == Hosts{"node3", "node2", "node1"});
}

TEST_CASE("a requested rank beyond the round is placed like none") {
    Nodes nodes;
    nodes.add("node1").requested_rank = GroupRank{7};
    nodes.add("node2");

    CHECK(nodes.order(8) == Hosts{"node1", "node2"});
}

TEST_CASE("those that ran before keep their ranks and go before newcomers") {
    Nodes nodes;
    nodes.add("node0");
    nodes.add("node5").last_rank = GroupRank{2};
    nodes.add("node6").last_rank = GroupRank{0};
    nodes.add("node1");

    CHECK(nodes.order(3) == Hosts{"node6", "node0", "node5"});
}

TEST_CASE("in a smaller round the highest ranks move into the free places") {
    Nodes nodes;
    nodes.add("a").last_rank = GroupRank{0};
    nodes.add("b").last_rank = GroupRank{3};
    nodes.add("c").last_rank = GroupRank{2};

    CHECK(nodes.order(4) == Hosts{"a", "b", "c"});
}

TEST_CASE("a node with old workers is left out") {
    Nodes nodes;
    nodes.add("a").unclean_round = Round{3};
    nodes.add("b");

    CHECK(nodes.order(2) == Hosts{"b"});
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
