// What happens to nodes in a small cluster, and how the others go on.
#include "tests/support/network_lab.h"

#include <doctest/doctest.h>

#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ddprun::test {
namespace {

/// A cluster whose workers say who they are and go on until `release()`.
class Cluster {
public:
    explicit Cluster(int nodes) : lab(nodes) {}

    [[nodiscard]] std::unique_ptr<Command> start(int number, std::vector<std::string> options)
        const {
        options.insert(options.begin(), {"--rdzv_endpoint=10.77.0.1", "--nproc_per_node=1"});
        options.insert(options.end(), {"/bin/sh", "-c", script()});
        return std::make_unique<Command>(lab.on(number, ddprun(std::move(options))));
    }

    void release() const { static_cast<void>(folder_.file("release", "")); }

    [[nodiscard]] std::string script() const {
        return "echo round $DDPRUN_ROUND rank $RANK of $WORLD_SIZE restart "
               "$TORCHELASTIC_RESTART_COUNT; while [ ! -e " +
               folder_.path("release") + " ]; do sleep 0.1; done";
    }

    NetworkLab lab;

private:
    TemporaryFolder folder_;
};

/// kill -9 of the agent behind a running ddprun.
void kill_agent(const Command& command) {
    const std::vector<pid_t> agents = Command::children_of(command.pid());
    REQUIRE(agents.size() == 1);
    REQUIRE(::kill(agents.front(), SIGKILL) == 0);
}

void check_success(Command& command) {
    const CommandResult result = command.finish();
    CHECK_MESSAGE(result.exit_code == 0, describe(result), " ", result.err);
    CHECK(command.left_behind() == "");
}

TEST_SUITE_BEGIN("system/network_healing");

TEST_CASE("kill -9 of an agent: the survivors go on in a smaller round, free of charge") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(3);
    const std::vector<std::string> options{"--nnodes=2:3", "--rdzv_conf=last_call_timeout=30"};
    const auto first = cluster.start(1, options);
    const auto second = cluster.start(2, options);
    const auto third = cluster.start(3, options);
    REQUIRE(first->wait_for_line("round 0 rank 0 of 3"));
    REQUIRE(second->wait_for_line("round 0 rank 1 of 3"));
    REQUIRE(third->wait_for_line("round 0 rank 2 of 3"));

    kill_agent(*second);

    CHECK(first->wait_for_line("round 1 rank 0 of 2 restart 0"));
    CHECK(third->wait_for_line("round 1 rank 1 of 2 restart 0"));
    CHECK(first->wait_for_line("node2"));
    cluster.release();
    check_success(*first);
    check_success(*third);
    CHECK(second->left_behind() == "");
}

TEST_CASE("a newcomer takes a lost node's place and group rank") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(4);
    const std::vector<std::string> options{"--nnodes=3"};
    const auto first = cluster.start(1, options);
    const auto second = cluster.start(2, options);
    const auto third = cluster.start(3, options);
    REQUIRE(second->wait_for_line("round 0 rank 1 of 3"));
    REQUIRE(third->wait_for_line("round 0 rank 2 of 3"));

    kill_agent(*second);
    REQUIRE(first->wait_for_line("2 joined, 1 missing"));
    const auto fourth = cluster.start(4, options);

    CHECK(fourth->wait_for_line("round 1 rank 1 of 3 restart 0"));
    CHECK(third->wait_for_line("round 1 rank 2 of 3 restart 0"));
    cluster.release();
    check_success(*first);
    check_success(*third);
    check_success(*fourth);
}

TEST_CASE("a surplus node waits as a spare, takes over at once and ends 0 with the job") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(4);
    const std::vector<std::string> options{"--nnodes=2"};
    const auto first = cluster.start(1, options);
    const auto second = cluster.start(2, options);
    REQUIRE(first->wait_for_line("round 0 rank 0 of 2"));
    REQUIRE(second->wait_for_line("round 0 rank 1 of 2"));
    const auto third = cluster.start(3, options);
    REQUIRE(third->wait_for_line("spare"));
    const auto fourth = cluster.start(4, options);
    REQUIRE(fourth->wait_for_line("spare"));

    kill_agent(*second);

    CHECK(third->wait_for_line("round 1 rank 1 of 2 restart 0"));
    cluster.release();
    check_success(*first);
    check_success(*third);
    check_success(*fourth);
    CHECK(fourth->out() == "");
}

TEST_CASE("a link that is down for less than the heartbeats allow restarts nobody") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(2);
    const std::vector<std::string> options{"--nnodes=2", "--rdzv_conf=lost_timeout=20"};
    const auto first = cluster.start(1, options);
    const auto second = cluster.start(2, options);
    REQUIRE(first->wait_for_line("round 0 rank 0 of 2"));
    REQUIRE(second->wait_for_line("round 0 rank 1 of 2"));

    // Three heartbeats of a second are allowed for; TCP alone tries again after 1.4 s and 3 s.
    for (const char* seconds : {"1.6", "2.9"}) {
        cluster.lab.cut(2);
        static_cast<void>(run_command({.argv = {"sleep", seconds}}));
        cluster.lab.heal(2);
        REQUIRE(second->wait_for_line("connected to the rendezvous again"));
    }
    cluster.release();

    check_success(*first);
    check_success(*second);
    CHECK(count_of(first->out() + second->out(), "round") == 2);
}

TEST_CASE("a rendezvous that stands still for longer than the lost time-out is lost") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(2);
    const std::vector<std::string> options{"--nnodes=2", "--rdzv_conf=lost_timeout=2"};
    const auto first = cluster.start(1, options);
    const auto second = cluster.start(2, options);
    REQUIRE(first->wait_for_line("round 0 rank 0 of 2"));
    REQUIRE(second->wait_for_line("round 0 rank 1 of 2"));
    const std::vector<pid_t> agents = Command::children_of(first->pid());
    REQUIRE(agents.size() == 1);

    REQUIRE(::kill(agents.front(), SIGSTOP) == 0);
    const CommandResult result = second->finish();

    CHECK_MESSAGE(result.exit_code == 74, describe(result), " ", result.err);
    CHECK(result.err.find("no answer to heartbeats") != std::string::npos);
    CHECK(::kill(agents.front(), SIGCONT) == 0);
    cluster.release();
    static_cast<void>(first->finish());
    CHECK(first->left_behind() == "");
}

TEST_CASE("a link that stays down: the survivors go on, the cut-off node ends with 74") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(2);
    const std::vector<std::string> options{
        "--nnodes=1:2",
        "--rdzv_conf=last_call_timeout=30,heartbeat_interval=0.5,heartbeat_misses=4,lost_timeout="
        "4"};
    const auto first = cluster.start(1, options);
    const auto second = cluster.start(2, options);
    REQUIRE(first->wait_for_line("round 0 rank 0 of 2"));
    REQUIRE(second->wait_for_line("round 0 rank 1 of 2"));

    cluster.lab.cut(2);

    CHECK(first->wait_for_line("round 1 rank 0 of 1 restart 0"));
    const CommandResult two = second->finish();
    CHECK_MESSAGE(two.exit_code == 74, describe(two), " ", two.err);
    CHECK(two.err.find("10.77.0.1:29400") != std::string::npos);
    CHECK(second->left_behind() == "");
    cluster.release();
    check_success(*first);
}

TEST_CASE("an elastic job grows and shrinks between one node and four") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(4);
    const std::vector<std::string> options{"--nnodes=1:4", "--rdzv_conf=last_call_timeout=0.2"};
    const auto first = cluster.start(1, options);
    REQUIRE(first->wait_for_line("rank 0 of 1"));
    const auto second = cluster.start(2, options);
    REQUIRE(second->wait_for_line("rank 1 of 2"));
    const auto third = cluster.start(3, options);
    REQUIRE(third->wait_for_line("rank 2 of 3"));
    const auto fourth = cluster.start(4, options);
    REQUIRE(fourth->wait_for_line("rank 3 of 4"));
    REQUIRE(first->wait_for_line("rank 0 of 4"));

    kill_agent(*third);
    REQUIRE(first->wait_for_line("rank 0 of 3 restart 0", 2));
    kill_agent(*second);
    REQUIRE(first->wait_for_line("rank 0 of 2 restart 0", 2));
    const auto again = cluster.start(2, options);
    REQUIRE(again->wait_for_line("rank 2 of 3"));
    REQUIRE(first->wait_for_line("rank 0 of 3 restart 0", 3));

    cluster.release();
    check_success(*first);
    check_success(*again);
    check_success(*fourth);
}

TEST_CASE("a foreign job id is refused with both ids, and the job goes on") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(3);
    const auto first = cluster.start(1, {"--nnodes=2", "--rdzv_id=mine"});
    REQUIRE(first->wait_for_line("1 joined, 1 missing"));

    const auto stranger = cluster.start(3, {"--nnodes=2", "--rdzv_id=foreign"});
    const CommandResult refused = stranger->finish();
    const auto second = cluster.start(2, {"--nnodes=2", "--rdzv_id=mine"});
    cluster.release();

    CHECK_MESSAGE(refused.exit_code == 77, describe(refused), " ", refused.err);
    CHECK(refused.err.find("mine") != std::string::npos);
    CHECK(refused.err.find("foreign") != std::string::npos);
    CHECK(first->wait_for_line("foreign"));
    check_success(*first);
    check_success(*second);
}

TEST_CASE("the second node with a rank is refused, the first is told and goes on waiting") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(3);
    const auto host = cluster.start(1, {"--nnodes=3", "--node_rank=0"});
    REQUIRE(host->wait_for_line("1 joined, 2 missing"));
    const auto second = cluster.start(2, {"--nnodes=3", "--node_rank=1"});
    REQUIRE(second->wait_for_line("2 joined, 1 missing"));

    const auto third = cluster.start(3, {"--nnodes=3", "--node_rank=1"});
    const CommandResult refused = third->finish();

    CHECK_MESSAGE(refused.exit_code == 77, describe(refused), " ", refused.err);
    CHECK(refused.err.find("node_rank 1 is taken by node2") != std::string::npos);
    CHECK(second->wait_for_line("node3"));
    const auto last = cluster.start(3, {"--nnodes=3", "--node_rank=2"});
    cluster.release();
    check_success(*host);
    check_success(*second);
    check_success(*last);
}

TEST_CASE("the host stays until the last node has reported, though its own worker ends early") {
    if (no_lab()) {
        return;
    }
    const NetworkLab lab(2);
    const TemporaryFolder folder;
    const auto command = [&](int number, const std::string& script) {
        return std::make_unique<Command>(lab.on(
            number, ddprun({"--nnodes=2", "--rdzv_endpoint=10.77.0.1", "/bin/sh", "-c", script})
        ));
    };
    const auto first = command(1, "echo gone; exit 0");
    const auto second =
        command(2, "echo here; while [ ! -e " + folder.path("release") + " ]; do sleep 0.1; done");
    REQUIRE(first->wait_for_line("gone"));
    REQUIRE(second->wait_for_line("here"));

    static_cast<void>(folder.file("release", ""));

    check_success(*second);
    check_success(*first);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
