// The fixture itself: a test tool that lies makes every system test worthless.
#include "tests/support/command.h"

#include <doctest/doctest.h>

#include <signal.h>

using namespace ddprun::test;

namespace {

CommandOptions shell(std::string script) {
    return {.argv = {"/bin/sh", "-c", std::move(script)}};
}

}  // namespace

TEST_SUITE("support/command") {
    TEST_CASE("exit code and both streams are captured") {
        const CommandResult result = run_command(shell("echo one; echo two >&2; exit 42"));

        CHECK(result.exit_code == 42);
        CHECK(result.out == "one\n");
        CHECK(result.err == "two\n");
    }

    TEST_CASE("a death by signal is told from an exit code") {
        const CommandResult result = run_command(shell("kill -9 $$"));

        CHECK(!result.exit_code);
        CHECK(result.signal == SIGKILL);
    }

    TEST_CASE("a program that outlives its deadline is killed") {
        CommandOptions options = shell("exec sleep 100");
        options.deadline = std::chrono::milliseconds(50);

        const CommandResult result = run_command(std::move(options));

        CHECK(result.timed_out);
    }

    TEST_CASE("standard input, environment and folder are what was asked for") {
        CommandOptions options = shell("read word; echo $word $NAME $PWD");
        options.stdin_text = "hello\n";
        options.env = {"NAME=value"};
        options.cwd = "/";

        CHECK(run_command(std::move(options)).out == "hello value /\n");
    }

    TEST_CASE("a process in a session of its own counts as left behind until it is killed") {
        // It speaks after its exec (in the middle of one a process has no environment to be known
        // by) and stays as it is.
        Command command(shell("setsid /bin/sh -c 'echo started; kill -STOP $$' &"));
        REQUIRE(command.wait_for_line("started"));
        command.close_stdout();

        const CommandResult result = command.finish();

        CHECK(result.exit_code == 0);
        CHECK(
            command.left_behind(std::chrono::milliseconds(50)).find("kill -STOP") !=
            std::string::npos
        );
    }

    TEST_CASE("a line is waited for and a signal is delivered") {
        Command command(
            shell("trap 'echo got it; exit 3' TERM; echo ready; while :; do read x; done")
        );
        REQUIRE(command.wait_for_line("ready"));

        command.send_signal(SIGTERM);

        CHECK(command.wait_for_line("got it"));
        CHECK(command.finish().exit_code == 3);
        CHECK(command.left_behind() == "");
    }
}
