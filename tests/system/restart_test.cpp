// Restart of the whole group after a failure, and its budget.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <csignal>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

TEST_SUITE_BEGIN("system/restart");

TEST_CASE("all workers start again after one has failed, with the count one higher") {
    const TemporaryFolder folder;
    const std::string script =
        "echo count $TORCHELASTIC_RESTART_COUNT round $DDPRUN_ROUND; "
        "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 0 ] && exit 5; exec sleep 60";

    const CommandResult result = run_command(
        {.argv = ddprun(
             {"--standalone", "--nproc_per_node=2", "--max_restarts=1", "/bin/sh", "-c", script}
         )}
    );

    CHECK_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    CHECK(count_of(result.out, "count 1 round 1") == 2);
}

TEST_CASE("the budget is the job's: after it the first failure's code is the status") {
    const CommandResult result = run_command(
        {.argv = ddprun(
             {"--standalone",
              "--nproc_per_node=2",
              "--max_restarts=2",
              "/bin/sh",
              "-c",
              "[ $RANK = 1 ] && { echo life $TORCHELASTIC_RESTART_COUNT; exit 9; }; exec sleep 60"}
         )}
    );

    CHECK_MESSAGE(result.exit_code == 9, describe(result) << result.err);
    CHECK(count_of(result.out, "life 0") == 1);
    CHECK(count_of(result.out, "life 1") == 1);
    CHECK(count_of(result.out, "life 2") == 1);
    CHECK(count_of(result.out, "life 3") == 0);
}

TEST_CASE("a range of one port is enough for all rounds") {
    const std::string port = free_port();

    const CommandResult result = run_command(
        {.argv = ddprun(
             {"--standalone",
              "--port_range=" + port + "-" + port,
              "--max_restarts=2",
              "/bin/sh",
              "-c",
              "echo port $MASTER_PORT; exit 4"}
         )}
    );

    CHECK_MESSAGE(result.exit_code == 4, describe(result) << result.err);
    CHECK(count_of(result.out, "port " + port + "\n") == 3);
}

TEST_CASE("without a budget there is no restart") {
    const CommandResult result =
        run_command({.argv = ddprun({"--standalone", "/bin/sh", "-c", "echo life; exit 4"})});

    CHECK(result.exit_code == 4);
    CHECK(count_of(result.out, "life") == 1);
}

TEST_CASE("a worker killed from outside is restarted with its peers") {
    Command job(
        {.argv = ddprun(
             {"--standalone",
              "--nproc_per_node=2",
              "--max_restarts=1",
              "/bin/sh",
              "-c",
              "echo rank $RANK life $TORCHELASTIC_RESTART_COUNT pid $$; "
              "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; exec sleep 60"}
         )}
    );
    const auto line = job.wait_for_line("rank 1 life 0 pid ");
    REQUIRE(line.has_value());
    const pid_t victim = std::stoi(line->substr(line->rfind(' ') + 1));

    REQUIRE(::kill(victim, SIGKILL) == 0);
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    CHECK(count_of(result.out, "rank 0 life 1") == 1);
    CHECK(count_of(result.out, "rank 1 life 1") == 1);
    CHECK(result.err.find("SIGKILL") != std::string::npos);
    CHECK(job.left_behind() == "");
}

TEST_CASE("each round has a fresh store at a port that answers") {
    const TemporaryFolder folder;
    // Speaks the store's protocol by hand: VALIDATE, then GETNUMKEYS must say 0 in each life.
    const std::string script = folder.file("probe.py", R"(
import os, socket, struct
s = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 5)
s.sendall(b"\0" + struct.pack("<I", 0x3C85F7CE) + b"\7")
keys = struct.unpack("<q", s.recv(8, socket.MSG_WAITALL))[0]
print("keys", keys, flush=True)
s.sendall(b"\1" + struct.pack("<Q", 2) + b"/k" + struct.pack("<Q", 1) + b"v")
s.sendall(b"\7" )
assert struct.unpack("<q", s.recv(8, socket.MSG_WAITALL))[0] == 1
raise SystemExit(0 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1" else 3)
)");

    const CommandResult result =
        run_command({.argv = ddprun({"--standalone", "--max_restarts=1", script})});

    CHECK_MESSAGE(result.exit_code == 0, result.out << result.err);
    CHECK(count_of(result.out, "keys 0") == 2);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
