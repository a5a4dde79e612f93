// Where the nodes of a small cluster meet: which of them hosts, by which address the others reach
// it, and what each of them says where they can't.
#include "tests/support/network_lab.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ddprun::test {
namespace {

const std::string kScript = "echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR";

std::vector<std::string> node_of(
    int nodes, const std::string& endpoint, std::vector<std::string> more = {}
) {
    std::vector<std::string> arguments{
        "--nnodes=" + std::to_string(nodes), "--nproc_per_node=1", "--rdzv_endpoint=" + endpoint};
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.insert(arguments.end(), {"/bin/sh", "-c", kScript});
    return ddprun(arguments);
}

/// A job of all `nodes` of the lab, begun in the opposite order; what each printed, by node.
std::vector<std::string> run_job(
    const NetworkLab& lab,
    int nodes,
    const std::string& endpoint,
    const std::vector<std::string>& more = {}
) {
    std::vector<std::unique_ptr<Command>> commands;
    for (int number = nodes; number >= 1; --number) {
        commands.insert(
            commands.begin(),
            std::make_unique<Command>(lab.on(number, node_of(nodes, endpoint, more)))
        );
    }
    std::vector<std::string> printed;
    for (const auto& command : commands) {
        const CommandResult result = command->finish();
        CHECK_MESSAGE(result.exit_code == 0, describe(result), " ", result.err);
        CHECK(command->left_behind() == "");
        printed.push_back(result.out);
    }
    return printed;
}

using Printed = std::vector<std::string>;

TEST_SUITE_BEGIN("system/network_endpoint");

TEST_CASE("four nodes meet at a host name, ranked by their names, whoever comes first") {
    if (no_lab()) {
        return;
    }
    const NetworkLab lab(4);

    const Printed printed = run_job(lab, 4, "node2:29400");

    for (int i = 0; i < 4; ++i) {
        const std::string line = printed[static_cast<std::size_t>(i)];
        CHECK(line.starts_with("rank " + std::to_string(i) + " of 4 at "));
        // node1 has rank 0: its address, of the family by which it reached node2.
        CHECK((line.ends_with("at 10.77.0.1\n") || line.ends_with("at fd77::1\n")));
    }
}

TEST_CASE("an alias of the first node is an endpoint that it hosts") {
    if (no_lab()) {
        return;
    }
    const NetworkLab lab(2);
    lab.set_hosts("10.77.0.1 rendezvous.cluster\n");

    const Printed printed = run_job(lab, 2, "rendezvous.cluster:29411");

    CHECK(printed == Printed{"rank 0 of 2 at 10.77.0.1\n", "rank 1 of 2 at 10.77.0.1\n"});
}

TEST_CASE("a second address of the first node is an endpoint that it hosts") {
    if (no_lab()) {
        return;
    }
    LabNode first = lab_node(1);
    first.addresses.emplace_back("10.77.9.1/16");
    const NetworkLab lab({first, lab_node(2)});

    const Printed printed = run_job(lab, 2, "10.77.9.1");

    CHECK(printed == Printed{"rank 0 of 2 at 10.77.9.1\n", "rank 1 of 2 at 10.77.9.1\n"});
}

TEST_CASE("a host whose own name is 127.0.1.1 in its hosts file publishes an address to reach") {
    if (no_lab()) {
        return;
    }
    const NetworkLab lab({LabNode{{"10.77.0.1/16"}, {}}, LabNode{{"10.77.0.2/16"}, {}}});
    lab.set_hosts(1, "127.0.1.1 node1\n");
    lab.set_hosts(2, "10.77.0.1 node1\n");

    const Printed printed = run_job(lab, 2, "node1");

    CHECK(printed == Printed{"rank 0 of 2 at 10.77.0.1\n", "rank 1 of 2 at 10.77.0.1\n"});
}

TEST_CASE("nodes that have IPv6 alone meet") {
    if (no_lab()) {
        return;
    }
    const NetworkLab lab({LabNode{{"fd77::1/64"}, {}}, LabNode{{"fd77::2/64"}, {}}});

    SUBCASE("by name") {
        CHECK(
            run_job(lab, 2, "node1") ==
            Printed{"rank 0 of 2 at fd77::1\n", "rank 1 of 2 at fd77::1\n"}
        );
    }
    SUBCASE("by address") {
        CHECK(
            run_job(lab, 2, "[fd77::1]:29411") ==
            Printed{"rank 0 of 2 at fd77::1\n", "rank 1 of 2 at fd77::1\n"}
        );
    }
}

TEST_CASE("an endpoint on a second network card is hosted there") {
    if (no_lab()) {
        return;
    }
    const NetworkLab lab({
        LabNode{{"10.77.0.1/16"}, {"10.78.0.1/16"}},
        LabNode{{"10.77.0.2/16"}, {"10.78.0.2/16"}},
    });

    const Printed printed = run_job(lab, 2, "10.78.0.1");

    CHECK(printed == Printed{"rank 0 of 2 at 10.78.0.1\n", "rank 1 of 2 at 10.78.0.1\n"});
}

TEST_CASE("a name that no node can resolve yet is waited for, on the host too") {
    if (no_lab()) {
        return;
    }
    const NetworkLab lab(2);
    lab.set_hosts("");
    Command first(lab.on(1, node_of(2, "late.cluster")));
    Command second(lab.on(2, node_of(2, "late.cluster")));
    REQUIRE(first.wait_for_line("late.cluster"));
    REQUIRE(second.wait_for_line("late.cluster"));

    lab.set_hosts("10.77.0.1 late.cluster\n");
    const CommandResult one = first.finish();
    const CommandResult two = second.finish();

    CHECK_MESSAGE(one.exit_code == 0, one.err);
    CHECK_MESSAGE(two.exit_code == 0, two.err);
    CHECK(one.out == "rank 0 of 2 at 10.77.0.1\n");
    CHECK(two.out == "rank 1 of 2 at 10.77.0.1\n");
}

TEST_CASE("where no node owns the endpoint's address each says so and what it resolved") {
    if (no_lab()) {
        return;
    }
    const NetworkLab lab(2);
    lab.set_hosts("10.77.0.2 nobody.cluster\n");

    const CommandResult result =
        run_command(lab.on(1, node_of(2, "nobody.cluster", {"--rdzv_conf=join_timeout=2"})));

    CHECK_MESSAGE(result.exit_code == 69, describe(result), " ", result.err);
    CHECK(result.err.find("nobody.cluster (10.77.0.2)") != std::string::npos);
    CHECK(result.err.find("this node's") != std::string::npos);
}

TEST_CASE("garbage at the endpoint during a join harms nobody") {
    if (no_lab()) {
        return;
    }
    const NetworkLab lab(3);
    Command first(lab.on(1, node_of(2, "10.77.0.1")));
    REQUIRE(first.wait_for_line("1 joined, 1 missing"));
    const std::string vandal =
        "import os,socket,signal\n"
        "held=[]\n"
        "for i in range(200):\n"
        "    s=socket.create_connection(('10.77.0.1',29400)); held.append(s)\n"
        "    s.send([os.urandom(64), b'\\xddPR1\\x01\\x00', "
        "b'\\xddPR1\\x01\\x00\\xff\\xff\\xff\\xff\\x01', "
        "b'GET / HTTP/1.0\\r\\n\\r\\n', b'', b'\\xddPR1\\x63\\x00'][i%6] or b'\\xdd')\n"
        "print('thrown', flush=True)\n"
        "signal.pause()\n";
    Command thrower(lab.on(3, {"/usr/bin/python3", "-c", vandal}));
    REQUIRE(thrower.wait_for_line("thrown"));

    Command second(lab.on(2, node_of(2, "10.77.0.1")));
    const CommandResult one = first.finish();
    const CommandResult two = second.finish();

    CHECK_MESSAGE(one.exit_code == 0, one.err);
    CHECK_MESSAGE(two.exit_code == 0, two.err);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
