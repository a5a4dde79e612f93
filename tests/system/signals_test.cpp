// What ends ddprun ends its workers, and the status says so.
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

TEST_SUITE_BEGIN("system/signals");

TEST_CASE("a signal to stop reaches every worker and gives 128 + n") {
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
        CAPTURE(signal);
        Command job(
            {.argv = ddprun(
                 {"--standalone",
                  "--nproc_per_node=2",
                  "/bin/sh",
                  "-c",
                  "trap 'echo got 15; exit 0' TERM; trap 'echo got 2; exit 0' INT; "
                  "trap 'echo got 1; exit 0' HUP; trap 'echo got 3; exit 0' QUIT; "
                  "echo ready; while :; do sleep 0.05; done"}
             )}
        );
        REQUIRE(job.wait_for_line("ready", 2));

        job.send_signal(signal);
        const CommandResult result = job.finish();

        CHECK_MESSAGE(result.exit_code == 128 + signal, describe(result) << result.err);
        CHECK(count_of(result.out, "got " + std::to_string(signal)) == 2);
        CHECK(job.left_behind() == "");
    }
}

TEST_CASE("a worker that ignores TERM is killed when the shutdown timeout is over") {
    Command job(
        {.argv = ddprun(
             {"--standalone",
              "--nproc_per_node=2",
              "--shutdown_timeout=0.2",
              "/bin/sh",
              "-c",
              "trap '' TERM; echo ready; while :; do sleep 0.05; done"}
         )}
    );
    REQUIRE(job.wait_for_line("ready", 2));

    job.send_signal(SIGTERM);
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 128 + SIGTERM, describe(result) << result.err);
    CHECK(job.left_behind() == "");
}

TEST_CASE("peers of a failed worker get TERM and have time to save") {
    const TemporaryFolder folder;
    const CommandResult result = run_command(
        {.argv = ddprun(
             {"--standalone",
              "--nproc_per_node=2",
              "/bin/sh",
              "-c",
              "cd " + folder.path() +
                  "; [ $RANK = 1 ] && { until [ -e ready ]; do sleep 0.02; done; exit 3; }; "
                  "trap 'sleep 0.3; echo saved > saved; exit 0' TERM; : > ready; "
                  "while :; do sleep 0.05; done"}
         )}
    );

    CHECK_MESSAGE(result.exit_code == 3, describe(result) << result.err);
    CHECK(read_file(folder.path("saved")) == "saved\n");
}

TEST_CASE("a second INT kills at once") {
    Command job(
        {.argv = ddprun(
             {"--standalone",
              "/bin/sh",
              "-c",
              "trap '' INT TERM; echo ready; while :; do sleep 0.05; done"}
         )}
    );
    REQUIRE(job.wait_for_line("ready"));

    job.send_signal(SIGINT);
    REQUIRE(job.wait_for_line("SIGINT"));
    job.send_signal(SIGINT);
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 128 + SIGINT, describe(result) << result.err);
    CHECK(result.wall < 10s);
    CHECK(job.left_behind() == "");
}

TEST_CASE("nothing survives when ddprun is killed") {
    Command job(
        {.argv = ddprun(
             {"--standalone", "--nproc_per_node=3", "/bin/sh", "-c", "echo ready; exec sleep 60"}
         )}
    );
    REQUIRE(job.wait_for_line("ready", 3));

    job.send_signal(SIGKILL);

    CHECK(job.left_behind() == "");
}

TEST_CASE("what a worker leaves behind ends with the job, in a session of its own too") {
    Command job(
        {.argv = ddprun(
             {"--standalone",
              "/bin/sh",
              "-c",
              "sleep 61 & setsid sleep 62 > /dev/null 2>&1 < /dev/null & exit 0"}
         )}
    );

    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    CHECK(result.wall < 10s);
    CHECK(job.left_behind() == "");
}

TEST_CASE("USR1 goes to the workers and the job goes on") {
    Command job(
        {.argv = ddprun(
             {"--standalone",
              "--nproc_per_node=2",
              "/bin/sh",
              "-c",
              "trap 'echo usr1; exit 0' USR1; echo ready; while :; do sleep 0.05; done"}
         )}
    );
    REQUIRE(job.wait_for_line("ready", 2));

    job.send_signal(SIGUSR1);
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    CHECK(count_of(result.out, "usr1") == 2);
}

TEST_CASE("TERM while nodes are missing ends the wait with 143") {
    Command job(
        {.argv = ddprun({"--nnodes=2", "--rdzv_endpoint=127.0.0.1:" + free_port(), "/bin/true"})}
    );
    REQUIRE(job.wait_for_line("missing"));

    job.send_signal(SIGTERM);
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 128 + SIGTERM, describe(result) << result.err);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
