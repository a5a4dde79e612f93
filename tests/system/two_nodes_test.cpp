// Two ddprun on one host make one job.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

using namespace std::chrono_literals;

std::vector<std::string> node_of_two(
    const std::string& port, const std::string& script, std::vector<std::string> more = {}
) {
    std::vector<std::string> arguments{
        "--nnodes=2", "--nproc_per_node=2", "--rdzv_endpoint=127.0.0.1:" + port};
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.insert(arguments.end(), {"/bin/sh", "-c", script});
    return ddprun(arguments);
}

TEST_SUITE_BEGIN("system/two_nodes");

TEST_CASE("two agents meet and number their workers through") {
    const std::string port = free_port();
    const std::string script =
        "echo rank $RANK of $WORLD_SIZE local $LOCAL_RANK of $LOCAL_WORLD_SIZE group $GROUP_RANK";

    Command first({.argv = node_of_two(port, script)});
    Command second({.argv = node_of_two(port, script)});
    const CommandResult one = first.finish();
    const CommandResult two = second.finish();

    CHECK_MESSAGE(one.exit_code == 0, describe(one) << one.err);
    CHECK_MESSAGE(two.exit_code == 0, describe(two) << two.err);
    CHECK(
        sorted_lines(one.out + two.out) ==
        std::vector<std::string>{
            "[default0]:rank 0 of 4 local 0 of 2 group 0",
            "[default0]:rank 2 of 4 local 0 of 2 group 1",
            "[default1]:rank 1 of 4 local 1 of 2 group 0",
            "[default1]:rank 3 of 4 local 1 of 2 group 1",
        }
    );
}

TEST_CASE("nodes may have different numbers of workers") {
    const std::string port = free_port();
    const std::string script = "echo rank $RANK of $WORLD_SIZE";

    Command first({.argv = node_of_two(port, script, {"--nproc_per_node=1", "--node_rank=0"})});
    Command second({.argv = node_of_two(port, script, {"--nproc_per_node=3", "--node_rank=1"})});
    const CommandResult one = first.finish();
    const CommandResult two = second.finish();

    CHECK(one.out == "rank 0 of 4\n");
    CHECK(
        sorted_lines(two.out) ==
        std::vector<std::string>{
            "[default0]:rank 1 of 4",
            "[default1]:rank 2 of 4",
            "[default2]:rank 3 of 4",
        }
    );
}

TEST_CASE("a worker killed on one node restarts both") {
    const std::string port = free_port();
    const std::string script =
        "echo rank $RANK life $TORCHELASTIC_RESTART_COUNT pid $$; "
        "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; exec sleep 60";
    Command first({.argv = node_of_two(port, script, {"--max_restarts=1", "--node_rank=0"})});
    Command second({.argv = node_of_two(port, script, {"--max_restarts=1", "--node_rank=1"})});
    REQUIRE(first.wait_for_line("life 0", 2));
    const auto line = second.wait_for_line("rank 3 life 0 pid ");
    REQUIRE(line.has_value());

    REQUIRE(::kill(std::stoi(line->substr(line->rfind(' ') + 1)), SIGKILL) == 0);
    const CommandResult one = first.finish();
    const CommandResult two = second.finish();

    CHECK_MESSAGE(one.exit_code == 0, describe(one) << one.err);
    CHECK_MESSAGE(two.exit_code == 0, describe(two) << two.err);
    CHECK(count_of(one.out, "life 1") == 2);
    CHECK(count_of(two.out, "life 1") == 2);
    CHECK(one.err.find("rank 3") != std::string::npos);
    CHECK(first.left_behind() == "");
    CHECK(second.left_behind() == "");
}

TEST_CASE("a failure ends both nodes with its code and the same cause") {
    const std::string port = free_port();
    const std::string script = "[ $RANK = 3 ] && exit 21; exec sleep 60";
    Command first({.argv = node_of_two(port, script, {"--node_rank=0"})});
    Command second({.argv = node_of_two(port, script, {"--node_rank=1"})});

    const CommandResult one = first.finish();
    const CommandResult two = second.finish();

    CHECK_MESSAGE(one.exit_code == 21, describe(one) << one.err);
    CHECK_MESSAGE(two.exit_code == 21, describe(two) << two.err);
    for (const CommandResult& result : {one, two}) {
        CHECK(result.err.find("rank 3") != std::string::npos);
        CHECK(result.err.find("code 21") != std::string::npos);
    }
}

TEST_CASE("TERM to one agent ends the job with 143 on both") {
    const std::string port = free_port();
    const std::string script = "echo ready; exec sleep 60";
    Command first({.argv = node_of_two(port, script)});
    Command second({.argv = node_of_two(port, script)});
    REQUIRE(first.wait_for_line("ready", 2));
    REQUIRE(second.wait_for_line("ready", 2));

    second.send_signal(SIGTERM);
    const CommandResult two = second.finish();
    const CommandResult one = first.finish();

    CHECK_MESSAGE(one.exit_code == 128 + SIGTERM, describe(one) << one.err);
    CHECK_MESSAGE(two.exit_code == 128 + SIGTERM, describe(two) << two.err);
}

TEST_CASE("a missing node is named as missing and ends the wait with 75") {
    const CommandResult result =
        run_command({.argv = node_of_two(free_port(), "exit 0", {"--rdzv_conf=join_timeout=0.5"})});

    CHECK_MESSAGE(result.exit_code == 75, describe(result) << result.err);
    CHECK(result.err.find("1 joined, 1 missing") != std::string::npos);
}

TEST_CASE("an endpoint where nobody listens ends with 69 and one clear line") {
    const CommandResult result = run_command(
        {.argv = node_of_two(free_port(), "exit 0", {"--rdzv_conf=join_timeout=0.5,is_host=false"})}
    );

    CHECK_MESSAGE(result.exit_code == 69, describe(result) << result.err);
    CHECK(result.err.find("127.0.0.1:") != std::string::npos);
    CHECK(result.err.find("refused") != std::string::npos);
}

TEST_CASE("a node with another job id is refused with both names, and the job goes on") {
    const std::string port = free_port();
    Command first({.argv = node_of_two(port, "exit 0", {"--rdzv_id=mine"})});
    REQUIRE(first.wait_for_line("missing"));

    const CommandResult stranger =
        run_command({.argv = node_of_two(port, "exit 0", {"--rdzv_id=other"})});
    Command second({.argv = node_of_two(port, "exit 0", {"--rdzv_id=mine"})});

    CHECK_MESSAGE(stranger.exit_code == 77, describe(stranger) << stranger.err);
    CHECK(stranger.err.find("mine") != std::string::npos);
    CHECK(stranger.err.find("other") != std::string::npos);
    CHECK(first.finish().exit_code == 0);
    CHECK(second.finish().exit_code == 0);
}

TEST_CASE("a port that a stranger holds gives an error that names it") {
    const std::string port = free_port();
    Command stranger(
        {.argv =
             {"/usr/bin/python3",
              "-c",
              "import socket,signal; s=socket.socket(); s.bind(('127.0.0.1'," + port +
                  ")); s.listen(); print('listening', flush=True); signal.pause()"}}
    );
    REQUIRE(stranger.wait_for_line("listening"));

    const CommandResult result =
        run_command({.argv = node_of_two(port, "exit 0", {"--rdzv_conf=join_timeout=1"})});

    CHECK_MESSAGE(result.exit_code == 69, describe(result) << result.err);
    CHECK(result.err.find(port) != std::string::npos);
    CHECK(result.err.find("pid " + std::to_string(stranger.pid())) != std::string::npos);
    CHECK(result.err.find("python3") != std::string::npos);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
