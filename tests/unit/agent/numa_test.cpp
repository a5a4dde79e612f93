#include "agent/numa.h"

#include "agent/topology.h"
#include "tests/support/sysfs_tree.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace ddprun {
namespace {

using test::SysfsTree;
using Texts = std::vector<std::string>;

Topology topology_of(const SysfsTree& tree) {
    auto topology = read_topology(tree.root());
    REQUIRE_MESSAGE(topology.has_value(), (topology ? "" : topology.error().context));
    return std::move(*topology);
}

/// Two sockets of one node each: node 0 has CPUs 0-3 and 8-11, node 1 4-7 and 12-15; CPU n and n +
/// 8 are one core; each pair of cores shares a cache.
void add_two_sockets(const SysfsTree& tree) {
    tree.node(0, "0-3,8-11");
    tree.node(1, "4-7,12-15");
    for (int cpu = 0; cpu < 16; ++cpu) {
        const int core = cpu % 8;
        const int first = core - core % 2;
        tree.cpu(
            cpu,
            core / 4,
            fmt::format("{},{}", core, core + 8),
            fmt::format("{}-{},{}-{}", first, first + 1, first + 8, first + 9)
        );
    }
}

/// One socket, or two, each cut into two nodes of two CPUs (sub-NUMA clustering).
void add_clusters(const SysfsTree& tree) {
    for (int node = 0; node < 4; ++node) {
        tree.node(node, fmt::format("{}-{}", 2 * node, 2 * node + 1));
        tree.cpu(2 * node, node / 2, fmt::format("{}", 2 * node));
        tree.cpu(2 * node + 1, node / 2, fmt::format("{}", 2 * node + 1));
    }
}

NumberSet all_of(const Topology& topology) {
    NumberSet cpus;
    for (const auto& [cpu, described] : topology.cpus) {
        cpus.insert(cpu);
    }
    return cpus;
}

BindingRequest request_of(
    const Topology& topology, NumaMode mode, std::vector<std::int32_t> devices, int workers
) {
    return {mode, all_of(topology), {0, 1, 2, 3}, std::move(devices), workers};
}

Texts cpus_of(const Topology& topology, const BindingRequest& request) {
    const auto bindings = bind_workers(topology, request);
    REQUIRE_MESSAGE(bindings.has_value(), (bindings ? "" : bindings.error().context));
    Texts texts;
    for (const WorkerBinding& binding : *bindings) {
        texts.push_back(number_list(binding.cpus));
    }
    return texts;
}

Texts bound(
    const Topology& topology, NumaMode mode, std::vector<std::int32_t> devices, int workers
) {
    return cpus_of(topology, request_of(topology, mode, std::move(devices), workers));
}

TEST_SUITE_BEGIN("agent/numa");

TEST_CASE("lists of numbers read and write sysfs's notation") {
    CHECK(number_list(*parse_number_list("0-3,8,10-11\n", 15)) == "0-3,8,10-11");
    CHECK(parse_number_list("\n", 15)->empty());
    CHECK(number_list({}) == "");
    for (const char* text : {"a", "3-1", "1,,2", "1,", "-1", "1-", "16", "0-16", "1 2"}) {
        CAPTURE(text);
        CHECK_FALSE(parse_number_list(text, 15).has_value());
    }
}

TEST_CASE("a mask has a bit for each number and is as long as it needs") {
    CHECK(bit_mask({}).empty());
    CHECK(bit_mask({0, 2}) == std::vector<unsigned long>{5});
    CHECK(bit_mask({64, 129}) == std::vector<unsigned long>{0, 1, 2});
}

TEST_CASE("a tree of two sockets is read with its cores and caches") {
    const SysfsTree tree;
    add_two_sockets(tree);
    const Topology topology = topology_of(tree);

    CHECK(number_list(topology.nodes.at(1)) == "4-7,12-15");
    CHECK(topology.cpus.at(13).package == 1);
    CHECK(number_list(topology.cpus.at(13).siblings) == "5,13");
    CHECK(number_list(topology.cpus.at(13).sharers) == "4-5,12-13");
}

TEST_CASE("a machine without NUMA is one node, and one without CPUs is refused") {
    const SysfsTree tree;
    CHECK_FALSE(read_topology(tree.root()).has_value());
    tree.online("0-1");
    const Topology topology = topology_of(tree);

    CHECK(topology.nodes == std::map<std::int32_t, NumberSet>{{0, {0, 1}}});
    CHECK(bound(topology, NumaMode::core_complex, {-1}, 1) == Texts{"0"});
}

TEST_CASE("a damaged file is refused by name") {
    const SysfsTree tree;
    tree.node(0, "0-x");

    const auto topology = read_topology(tree.root());

    REQUIRE_FALSE(topology.has_value());
    CHECK(topology.error().context.find("node0/cpulist: '0-x' is no list") != std::string::npos);
}

TEST_CASE("a device's node is its own, and -1 where nothing tells it") {
    const SysfsTree tree;
    tree.pci_device("0000:3b:00.0", 1);
    tree.pci_device("0000:86:00.0", -1);

    CHECK(node_of_pci_device(tree.root(), "0000:3b:00.0") == 1);
    CHECK(node_of_pci_device(tree.root(), "0000:86:00.0") == -1);
    CHECK(node_of_pci_device(tree.root(), "0000:af:00.0") == -1);
    CHECK(node_of_pci_device(tree.root(), "") == -1);
}

TEST_CASE("node binds to all CPUs of the GPU's node, and prefers its memory") {
    const SysfsTree tree;
    add_two_sockets(tree);
    const Topology topology = topology_of(tree);

    CHECK(bound(topology, NumaMode::node, {1, 0}, 2) == Texts{"4-7,12-15", "0-3,8-11"});
    const auto bindings = bind_workers(topology, request_of(topology, NumaMode::node, {1, 0}, 2));
    CHECK((*bindings)[0].memory_nodes == NumberSet{1});
}

TEST_CASE("a GPU whose node isn't told is taken for one of node 0") {
    const SysfsTree tree;
    add_two_sockets(tree);

    CHECK(bound(topology_of(tree), NumaMode::node, {-1}, 1) == Texts{"0-3,8-11"});
}

TEST_CASE("socket binds to every node of the socket") {
    const SysfsTree tree;
    add_clusters(tree);
    const Topology topology = topology_of(tree);

    CHECK(bound(topology, NumaMode::socket, {1, 2}, 2) == Texts{"0-3", "4-7"});
    CHECK(bound(topology, NumaMode::node, {1, 2}, 2) == Texts{"2-3", "4-5"});
    const auto bindings = bind_workers(topology, request_of(topology, NumaMode::socket, {1, 2}, 2));
    CHECK((*bindings)[1].memory_nodes == NumberSet{2, 3});
}

TEST_CASE("exclusive shares out whole cores, the first GPUs of a node take what is left over") {
    const SysfsTree tree;
    add_two_sockets(tree);
    const Topology topology = topology_of(tree);

    CHECK(
        bound(topology, NumaMode::exclusive, {0, 0, 1, 0}, 4) ==
        Texts{"0-1,8-9", "2,10", "4-7,12-15", "3,11"}
    );
    // GPUs without a worker keep their share.
    CHECK(bound(topology, NumaMode::exclusive, {0, 0}, 1) == Texts{"0-1,8-9"});
}

TEST_CASE("exclusive with fewer cores than GPUs is refused") {
    const SysfsTree tree;
    add_clusters(tree);
    const Topology topology = topology_of(tree);

    const auto bindings =
        bind_workers(topology, request_of(topology, NumaMode::exclusive, {0, 0, 0}, 3));

    REQUIRE_FALSE(bindings.has_value());
    CHECK(bindings.error().code == Errc::limit_exceeded);
    CHECK(
        bindings.error().context ==
        "local rank 0: NUMA node 0 has 2 cores that may be used for 3 workers; use "
        "--numa_binding=node"
    );
}

TEST_CASE("core-complex takes the largest shared cache first, the GPUs of a node in turn") {
    const SysfsTree tree;
    tree.node(0, "0-4");
    for (int cpu = 0; cpu < 5; ++cpu) {
        tree.cpu(cpu, 0, fmt::format("{}", cpu), cpu < 2 ? "0-1" : "2-4");
    }
    const Topology topology = topology_of(tree);

    CHECK(bound(topology, NumaMode::core_complex, {0, 0, 0}, 3) == Texts{"2-4", "0-1", "2-4"});
}

TEST_CASE("only CPUs and memory that may be used are bound to") {
    const SysfsTree tree;
    add_two_sockets(tree);
    const Topology topology = topology_of(tree);
    BindingRequest request = request_of(topology, NumaMode::node, {0}, 1);
    request.allowed_cpus = {2, 5, 10};
    request.allowed_memory = {1};

    const auto bindings = bind_workers(topology, request);

    CHECK(bindings->front() == WorkerBinding{{2, 10}, {}, 2});
}

TEST_CASE("a node with no CPU that may be used, or that isn't there, is refused") {
    const SysfsTree tree;
    add_two_sockets(tree);
    const Topology topology = topology_of(tree);
    BindingRequest request = request_of(topology, NumaMode::node, {0, 1}, 2);
    request.allowed_cpus = {0, 1};

    CHECK(
        bind_workers(topology, request).error().context ==
        "local rank 1: NUMA node 1 has no CPU that may be used here (its own: 4-7,12-15; allowed: "
        "0-1)"
    );
    request.device_nodes = {7};
    request.workers = 1;
    CHECK(bind_workers(topology, request).error().context.find("node 7") != std::string::npos);
}

TEST_CASE("without GPUs, or with fewer than workers, workers are spread over the nodes in order") {
    const SysfsTree tree;
    add_two_sockets(tree);
    const Topology topology = topology_of(tree);

    CHECK(bound(topology, NumaMode::node, {}, 1) == Texts{"0-3,8-11"});
    CHECK(
        bound(topology, NumaMode::node, {1}, 4) ==
        Texts{"0-3,8-11", "0-3,8-11", "4-7,12-15", "4-7,12-15"}
    );
    CHECK(
        bound(topology, NumaMode::exclusive, {}, 4) ==
        Texts{"0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"}
    );
}

TEST_CASE("workers on the same CPUs share them, at least one thread each") {
    const SysfsTree tree;
    add_clusters(tree);
    const Topology topology = topology_of(tree);
    const auto threads = [&](NumaMode mode, std::vector<std::int32_t> devices, int workers) {
        std::vector<std::int32_t> counts;
        const auto bound =
            bind_workers(topology, request_of(topology, mode, std::move(devices), workers));
        for (const WorkerBinding& binding : bound.value()) {
            counts.push_back(binding.threads);
        }
        return counts;
    };

    CHECK(threads(NumaMode::socket, {0, 0, 2}, 3) == std::vector<std::int32_t>{2, 2, 4});
    CHECK(threads(NumaMode::node, {0, 0, 0}, 3) == std::vector<std::int32_t>{1, 1, 1});
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
