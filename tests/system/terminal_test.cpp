// A job at a terminal: one worker can be talked to, Ctrl-C stops it, the terminal is as before
// afterwards; several workers are told that there is a terminal.
#include "tests/support/command.h"
#include "tests/support/system.h"
#include "tests/support/terminal_command.h"

#include <doctest/doctest.h>

#include <sys/wait.h>

#include <csignal>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

std::vector<std::string> job_of(
    const std::vector<std::string>& options, const std::string& script
) {
    std::vector<std::string> argv{"--standalone"};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(), {"/bin/sh", "-c", script});
    return ddprun(argv);
}

bool is_as_at_start(const TerminalCommand& job) {
    const termios now = job.modes();
    const termios& start = job.modes_at_start();
    return now.c_lflag == start.c_lflag && now.c_iflag == start.c_iflag &&
           now.c_oflag == start.c_oflag && now.c_cc[VSUSP] == start.c_cc[VSUSP];
}

/// -1 for none, or an end by a signal.
int exit_code(std::optional<int> status) {
    return status && WIFEXITED(*status) ? WEXITSTATUS(*status) : -1;
}

TEST_SUITE_BEGIN("system/terminal");

TEST_CASE("a prompt of a lone worker reads what is typed, which is shown once") {
    TerminalCommand job(job_of({}, "printf 'name? '; read -r name; echo \"hello $name\""));
    REQUIRE(job.wait_for_text("name? "));

    job.type("ada\r");
    const auto status = job.finish();

    CHECK_MESSAGE(exit_code(status) == 0, job.shown());
    CHECK_MESSAGE(job.shown().find("name? ada\r\nhello ada\r\n") != std::string::npos, job.shown());
    CHECK(count_of(job.shown(), "name? ada") == 1);
    CHECK(is_as_at_start(job));
}

TEST_CASE("its standard streams are terminals of the window's size, and it leads a session") {
    TerminalCommand job(
        job_of(
            {},
            "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo three terminals; stty size; "
            "stty size < /dev/tty; exit 0"
        ),
        {31, 97}
    );

    const auto status = job.finish();

    CHECK_MESSAGE(exit_code(status) == 0, job.shown());
    CHECK_MESSAGE(job.shown().find("three terminals") != std::string::npos, job.shown());
    CHECK(count_of(job.shown(), "31 97\r\n") == 2);
}

TEST_CASE("Ctrl-C stops the job with 130 and Ctrl-backslash with 131") {
    for (const auto& [key, signal] : {std::pair{"\x03", SIGINT}, std::pair{"\x1c", SIGQUIT}}) {
        TerminalCommand job(
            job_of({"--max_restarts=3"}, "echo life; echo ready; while :; do sleep 0.02; done")
        );
        REQUIRE(job.wait_for_text("ready"));

        job.type(key);
        const auto status = job.finish();

        CHECK_MESSAGE(exit_code(status) == 128 + signal, job.shown());
        CHECK(count_of(job.shown(), "life") == 1);
        CHECK(is_as_at_start(job));
    }
}

TEST_CASE("a new size of the window reaches the worker") {
    TerminalCommand job(
        job_of({}, "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.02; done")
    );
    REQUIRE(job.wait_for_text("ready"));

    job.resize({44, 123});
    const auto status = job.finish();

    CHECK_MESSAGE(exit_code(status) == 0, job.shown());
    CHECK(job.shown().find("44 123") != std::string::npos);
}

TEST_CASE("Ctrl-D ends the input") {
    TerminalCommand job(job_of({}, "echo ready; cat > /dev/null; echo over"));
    REQUIRE(job.wait_for_text("ready"));

    job.type("some words\r\x04");
    const auto status = job.finish();

    CHECK_MESSAGE(exit_code(status) == 0, job.shown());
    CHECK(job.shown().find("over") != std::string::npos);
}

TEST_CASE("after a restart the next life of the worker reads") {
    TerminalCommand job(job_of(
        {"--max_restarts=1"},
        "printf \"life $TORCHELASTIC_RESTART_COUNT? \"; read -r word; echo \"got $word\"; "
        "[ $TORCHELASTIC_RESTART_COUNT = 1 ]"
    ));
    REQUIRE(job.wait_for_text("life 0? "));
    job.type("one\r");
    REQUIRE(job.wait_for_text("life 1? "));

    job.type("two\r");
    const auto status = job.finish();

    CHECK_MESSAGE(exit_code(status) == 0, job.shown());
    CHECK(job.shown().find("got one") != std::string::npos);
    CHECK(job.shown().find("got two") != std::string::npos);
}

TEST_CASE("a worker of a job in the background reads nothing, and isn't stopped for trying") {
    std::vector<std::string> argv{"/bin/bash", "-m", "-c", "\"$@\" & wait $!", "bash"};
    const std::vector<std::string> job_words =
        job_of({}, "read -r word; echo \"read ended with $?\"");
    argv.insert(argv.end(), job_words.begin(), job_words.end());
    TerminalCommand job(argv);

    const auto status = job.finish();

    CHECK_MESSAGE(exit_code(status) == 0, job.shown());
    CHECK_MESSAGE(job.shown().find("read ended with 1") != std::string::npos, job.shown());
}

TEST_CASE("the report has the last lines of a worker at a terminal") {
    TerminalCommand job(job_of({}, "echo out of luck >&2; exit 3"));

    const auto status = job.finish();

    CHECK_MESSAGE(exit_code(status) == 3, job.shown());
    CHECK_MESSAGE(count_of(job.shown(), "out of luck") == 2, job.shown());
}

TEST_CASE("the terminal is as before when the agent was killed") {
    TerminalCommand job(job_of({}, "echo ready; while :; do sleep 0.02; done"));
    REQUIRE(job.wait_for_text("ready"));
    const std::vector<pid_t> agents = Command::children_of(job.pid());
    REQUIRE(agents.size() == 1);
    CHECK_FALSE(is_as_at_start(job));

    REQUIRE(::kill(agents.front(), SIGKILL) == 0);
    const auto status = job.finish();

    CHECK_MESSAGE(exit_code(status) == 128 + SIGKILL, job.shown());
    CHECK(is_as_at_start(job));
}

TEST_CASE("several workers have no terminal but are told of it and its width") {
    TerminalCommand job(
        job_of({"--nproc_per_node=2"}, "[ -t 1 ] && echo terminal; echo width=$DDPRUN_TTY"),
        {25, 97}
    );

    const auto status = job.finish();

    CHECK_MESSAGE(exit_code(status) == 0, job.shown());
    CHECK(count_of(job.shown(), "width=97") == 2);
    CHECK(count_of(job.shown(), "terminal") == 0);
}

TEST_CASE("without a terminal DDPRUN_TTY isn't set") {
    const CommandResult result =
        run_command({.argv = job_of({"--nproc_per_node=2"}, "echo width=$DDPRUN_TTY=")});

    CHECK(count_of(result.out, "width==") == 2);
}

TEST_CASE("one of several workers can be given the terminal's lines") {
    TerminalCommand job(job_of(
        {"--nproc_per_node=2", "--stdin=1"},
        "[ $RANK = 1 ] && { echo ready; read -r word; echo \"got $word\"; exit 0; }; exit 0"
    ));
    REQUIRE(job.wait_for_text("ready"));

    job.type("ada\r");
    const auto status = job.finish();

    CHECK_MESSAGE(exit_code(status) == 0, job.shown());
    CHECK(job.shown().find("[default1]:got ada") != std::string::npos);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
