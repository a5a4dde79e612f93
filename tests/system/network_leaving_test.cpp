// Nodes of a small cluster that go on purpose, hosts that end, and addresses and ports that were
// asked for.
#include "tests/support/network_lab.h"

#include <doctest/doctest.h>

#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ddprun::test {
namespace {

class Cluster {
public:
    explicit Cluster(int nodes) : lab(nodes) {}

    [[nodiscard]] std::unique_ptr<Command> start(
        int number, std::vector<std::string> options, const std::string& script
    ) const {
        options.insert(options.begin(), "--nproc_per_node=1");
        options.insert(options.end(), {"/bin/sh", "-c", script});
        return std::make_unique<Command>(lab.on(number, ddprun(std::move(options))));
    }

    [[nodiscard]] std::unique_ptr<Command> start(int number, std::vector<std::string> options)
        const {
        options.insert(options.begin(), "--rdzv_endpoint=10.77.0.1");
        return start(number, std::move(options), kSay + wait_for("release"));
    }

    /// Both nodes of a job with these options, in its first round.
    [[nodiscard]] std::pair<std::unique_ptr<Command>, std::unique_ptr<Command>> start_pair(
        const std::vector<std::string>& options
    ) const {
        auto first = start(1, options);
        auto second = start(2, options);
        REQUIRE(first->wait_for_line("round 0 rank 0 of 2"));
        REQUIRE(second->wait_for_line("round 0 rank 1 of 2"));
        return {std::move(first), std::move(second)};
    }

    [[nodiscard]] std::string wait_for(const std::string& name) const {
        return "while [ ! -e " + folder.path(name) + " ]; do sleep 0.1; done";
    }

    void release() const { static_cast<void>(folder.file("release", "")); }

    static constexpr const char* kSay =
        "echo round $DDPRUN_ROUND rank $RANK of $WORLD_SIZE restart $TORCHELASTIC_RESTART_COUNT; ";

    NetworkLab lab;
    TemporaryFolder folder;
};

void check_status(Command& command, int status) {
    const CommandResult result = command.finish();
    CHECK_MESSAGE(result.exit_code == status, describe(result), " ", result.err);
    CHECK(command.left_behind() == "");
}

TEST_SUITE_BEGIN("system/network_leaving");

TEST_CASE("TERM to a node of an elastic job ends it alone with 143, the others go on for free") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(2);
    const auto [first, second] =
        cluster.start_pair({"--nnodes=1:2", "--rdzv_conf=last_call_timeout=30"});

    second->send_signal(SIGTERM);

    check_status(*second, 143);
    CHECK(first->wait_for_line("round 1 rank 0 of 1 restart 0"));
    cluster.release();
    check_status(*first, 0);
}

TEST_CASE("a host that leaves serves the others until they end") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(2);
    const auto [first, second] =
        cluster.start_pair({"--nnodes=1:2", "--rdzv_conf=last_call_timeout=30"});

    first->send_signal(SIGTERM);

    CHECK(second->wait_for_line("round 1 rank 0 of 1 restart 0"));
    CHECK(first->wait_for_line("serving the rendezvous"));
    cluster.release();
    check_status(*second, 0);
    check_status(*first, 143);
}

TEST_CASE("a second TERM ends a host that only serves, the others end with 74 and name it") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(2);
    const auto [first, second] =
        cluster.start_pair({"--nnodes=1:2", "--rdzv_conf=last_call_timeout=30,lost_timeout=2"});
    first->send_signal(SIGTERM);
    REQUIRE(first->wait_for_line("serving the rendezvous"));
    REQUIRE(second->wait_for_line("round 1 rank 0 of 1"));

    first->send_signal(SIGTERM);

    check_status(*first, 143);
    CHECK(second->wait_for_line("the rendezvous on node1 is lost"));
    check_status(*second, 74);
}

TEST_CASE("TERM stops a job of fixed size on all nodes, and an elastic one where that is asked for"
) {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(2);
    std::vector<std::string> options{"--nnodes=2"};
    SUBCASE("fixed size") {}
    SUBCASE("asked for") {
        options = {"--nnodes=1:2", "--on_term=stop"};
    }
    const auto first = cluster.start(1, options);
    const auto second = cluster.start(2, options);
    REQUIRE(first->wait_for_line("rank 0 of 2"));
    REQUIRE(second->wait_for_line("rank 1 of 2"));

    second->send_signal(SIGTERM);

    check_status(*first, 143);
    check_status(*second, 143);
}

TEST_CASE("workers save at the membership signal before a node joins, whatever they end with") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(2);
    const std::vector<std::string> options{
        "--nnodes=1:2",
        "--rdzv_endpoint=10.77.0.1",
        "--rdzv_conf=last_call_timeout=0.1",
        "--membership_signal=USR1"};
    const std::string script = "trap 'echo saved; exit 9' USR1; " + std::string{Cluster::kSay} +
                               cluster.wait_for("release");
    const auto first = cluster.start(1, options, script);
    REQUIRE(first->wait_for_line("rank 0 of 1"));

    const auto second = cluster.start(2, options, script);

    CHECK(first->wait_for_line("saved"));
    CHECK(first->wait_for_line("rank 0 of 2 restart 0"));
    cluster.release();
    check_status(*first, 0);
    check_status(*second, 0);
}

TEST_CASE("the back end static keeps MASTER_PORT at the given port, restarts included") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(2);
    // A client of the store, as torch.distributed makes one: a key of the first round must be gone.
    const std::string client =
        "import os,socket,struct,sys\n"
        "def text(t): return struct.pack('<Q',len(t))+t.encode()\n"
        "s=socket.create_connection((os.environ['MASTER_ADDR'],int(os.environ['MASTER_PORT'])))\n"
        "s.sendall(b'\\x00'+struct.pack('<I',0x3C85F7CE))\n"
        "key='seen'+os.environ['RANK']\n"
        "s.sendall(b'\\x05'+struct.pack('<Q',1)+text(key))\n"
        "there=s.recv(1)[0]==0\n"
        "s.sendall(b'\\x01'+text(key)+struct.pack('<Q',1)+b'x')\n"
        "s.sendall(b'\\x05'+struct.pack('<Q',1)+text(key))\n"
        "kept=s.recv(1)[0]==0\n"
        "print('port',os.environ['MASTER_PORT'],'round',os.environ['DDPRUN_ROUND'],"
        "'old' if there else 'fresh', 'kept' if kept else 'lost', flush=True)\n"
        "sys.exit(5 if os.environ['DDPRUN_ROUND']=='0' and os.environ['RANK']=='1' else 0)\n";
    const auto node = [&](int number) {
        return std::make_unique<Command>(cluster.lab.on(
            number,
            ddprun(
                {"--nnodes=2",
                 "--max_restarts=1",
                 "--master_addr=node1",
                 "--master_port=29555",
                 "--node_rank=" + std::to_string(number - 1),
                 "/usr/bin/python3",
                 "-c",
                 client}
            )
        ));
    };
    const auto first = node(1);
    const auto second = node(2);

    check_status(*first, 0);
    check_status(*second, 0);
    CHECK(first->out().find("port 29555 round 1 fresh kept") != std::string::npos);
    CHECK(second->out().find("port 29555 round 0 fresh kept") != std::string::npos);
    CHECK(second->out().find("port 29555 round 1 fresh kept") != std::string::npos);
}

TEST_CASE("--iface and --port_range choose MASTER_ADDR and MASTER_PORT") {
    if (no_lab()) {
        return;
    }
    const NetworkLab lab({
        LabNode{{"10.77.0.1/16"}, {"10.78.0.1/16"}},
        LabNode{{"10.77.0.2/16"}, {"10.78.0.2/16"}},
    });
    const auto node = [&](int number) {
        return std::make_unique<Command>(lab.on(
            number,
            ddprun(
                {"--nnodes=2",
                 "--rdzv_endpoint=10.77.0.1",
                 "--iface=eth1",
                 "--port_range=41000-41009",
                 "/bin/sh",
                 "-c",
                 "echo at $MASTER_ADDR:$MASTER_PORT"}
            )
        ));
    };
    const auto first = node(1);
    const auto second = node(2);

    check_status(*first, 0);
    check_status(*second, 0);
    CHECK(second->out() == "at 10.78.0.1:41000\n");
}

TEST_CASE("an interface that isn't there is one line with those that are") {
    const CommandResult result =
        run_command({.argv = ddprun({"--iface=nosuch0", "--standalone", "/bin/true"})});

    CHECK_MESSAGE(result.exit_code == 2, describe(result), " ", result.err);
    CHECK(result.err.find("--iface=nosuch0") != std::string::npos);
    CHECK(result.err.find("lo") != std::string::npos);
}

TEST_CASE("a master port that a node can't reach is that node's failure, told on all") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(2);
    // Node 2 hears from node 1 on the rendezvous's port only.
    CommandOptions firewall = cluster.lab.on(2, {"nft", "-f", "-"});
    firewall.stdin_text =
        "table inet wall {\nchain in {\ntype filter hook input priority 0;\n"
        "tcp sport != 29400 ip saddr 10.77.0.1 drop\n}\n}\n";
    const CommandResult walled = run_command(std::move(firewall));
    if (walled.exit_code != 0) {
        MESSAGE("skipped: no nft here: ", walled.err);
        return;
    }
    const auto first = cluster.start(1, {"--nnodes=2"});
    const auto second = cluster.start(2, {"--nnodes=2"});

    const CommandResult two = second->finish();
    const CommandResult one = first->finish();

    CHECK_MESSAGE(two.exit_code == 70, describe(two), " ", two.err);
    CHECK(one.exit_code == two.exit_code);
    for (const CommandResult& result : {one, two}) {
        CHECK(result.err.find("MASTER_ADDR") != std::string::npos);
        CHECK(result.err.find("node2") != std::string::npos);
    }
    CHECK(two.out == "");
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
