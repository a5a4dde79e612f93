// Who gets which signal: scope, forwarding, what was ignored or blocked at the start.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <sys/wait.h>

#include <csignal>
#include <functional>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

/// A worker that waits for a file and says what it got meanwhile.
constexpr const char* kUntilGo = "echo ready; until [ -e \"$0/go\" ]; do sleep 0.02; done; exit 0";

CommandOptions job_of(
    const std::vector<std::string>& options,
    const std::string& script,
    const TemporaryFolder& folder,
    const std::function<void()>& in_child = {}
) {
    std::vector<std::string> argv{"--standalone"};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(), {"/bin/sh", "-c", script, folder.path()});
    return CommandOptions{.argv = ddprun(argv), .in_child = in_child};
}

void wait_until_stopped(pid_t child) {
    siginfo_t info{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &info, WSTOPPED) == 0);
}

TEST_SUITE_BEGIN("system/signal_scope");

TEST_CASE("TERM goes to the worker's process alone by default, to its group when asked") {
    for (const bool group : {false, true}) {
        CAPTURE(group);
        const TemporaryFolder folder;
        // The worker's child ends by WINCH from its parent (a higher number, so that it takes a
        // TERM first), and says when TERM has come.
        Command job(job_of(
            {group ? "--signal_scope=group" : "--signal_scope=worker"},
            "sh -c 'trap \"echo > $0/child\" TERM; trap \"exit 0\" WINCH; : > $0/up; "
            "while :; do sleep 0.02; done' $0 & "
            "trap 'kill -WINCH $!; wait $!; exit 0' TERM; "
            "until [ -e $0/up ]; do sleep 0.02; done; echo ready; while :; do sleep 0.02; done",
            folder
        ));
        REQUIRE(job.wait_for_line("ready"));

        job.send_signal(SIGTERM);
        const CommandResult result = job.finish();

        CHECK_MESSAGE(result.exit_code == 128 + SIGTERM, describe(result) << result.err);
        CHECK((read_file(folder.path("child")) == "\n") == group);
    }
}

TEST_CASE("USR1 and USR2 are forwarded, and others when asked; the job goes on") {
    for (const int signal : {SIGUSR1, SIGUSR2, SIGWINCH, SIGRTMIN + 1}) {
        CAPTURE(signal);
        const TemporaryFolder folder;
        Command job(job_of(
            {"--nproc_per_node=2", "--forward_signals=WINCH,RTMIN+1"},
            "trap 'echo got it' " + std::to_string(signal) + "; " + kUntilGo,
            folder
        ));
        REQUIRE(job.wait_for_line("ready", 2));

        job.send_signal(signal);
        REQUIRE(job.wait_for_line("got it", 2));
        static_cast<void>(folder.file("go", ""));
        const CommandResult result = job.finish();

        CHECK_MESSAGE(result.exit_code == 0, describe(result) << result.err);
        CHECK(count_of(result.out, "got it") == 2);
    }
}

TEST_CASE("a second TERM changes nothing: the workers don't get it and keep their time") {
    const TemporaryFolder folder;
    Command job(job_of(
        {"--forward_signals=RTMIN+1"},
        "trap 'echo term' TERM; trap 'echo over; exit 0' " + std::to_string(SIGRTMIN + 1) +
            "; echo ready; while :; do sleep 0.02; done",
        folder
    ));
    REQUIRE(job.wait_for_line("ready"));
    job.send_signal(SIGTERM);
    REQUIRE(job.wait_for_line("term"));

    job.send_signal(SIGTERM);
    // A higher number, so that every process takes the TERM first.
    job.send_signal(SIGRTMIN + 1);
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 128 + SIGTERM, describe(result) << result.err);
    CHECK(count_of(result.out, "term") == 1);
    CHECK(count_of(result.out, "over") == 1);
}

TEST_CASE("what was ignored at the start stays ignored, here and in the workers") {
    for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGUSR1}) {
        CAPTURE(signal);
        const TemporaryFolder folder;
        Command job(job_of(
            {},
            "grep SigIgn /proc/$$/status; " + std::string{kUntilGo},
            folder,
            [signal] { ::signal(signal, SIG_IGN); }
        ));
        REQUIRE(job.wait_for_line("ready"));

        job.send_signal(signal);
        static_cast<void>(folder.file("go", ""));
        const CommandResult result = job.finish();

        CHECK_MESSAGE(result.exit_code == 0, describe(result) << result.err);
        const unsigned long long mask =
            std::stoull(result.out.substr(result.out.find(':') + 1), nullptr, 16);
        CHECK(mask == 1ULL << static_cast<unsigned>(signal - 1));
    }
}

TEST_CASE("a signal that was blocked, and pending, at the start is taken") {
    const TemporaryFolder folder;
    Command job(job_of({}, kUntilGo, folder, [] {
        sigset_t all;
        sigfillset(&all);
        ::sigprocmask(SIG_SETMASK, &all, nullptr);
        ::kill(::getpid(), SIGTERM);
    }));

    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 128 + SIGTERM, describe(result) << result.err);
    CHECK(job.left_behind() == "");
}

TEST_CASE("an ignored CHLD costs no exit code") {
    const TemporaryFolder folder;

    const CommandResult result =
        run_command(job_of({}, "exit 7", folder, [] { ::signal(SIGCHLD, SIG_IGN); }));

    CHECK_MESSAGE(result.exit_code == 7, describe(result) << result.err);
}

TEST_CASE("STOP and CONT, of ddprun and of the agent behind it, upset nothing") {
    const TemporaryFolder folder;
    Command job(job_of({"--nproc_per_node=2"}, kUntilGo, folder));
    REQUIRE(job.wait_for_line("ready", 2));
    const std::vector<pid_t> agents = Command::children_of(job.pid());
    REQUIRE(agents.size() == 1);

    REQUIRE(::kill(agents.front(), SIGSTOP) == 0);
    job.send_signal(SIGSTOP);
    wait_until_stopped(job.pid());
    static_cast<void>(folder.file("go", ""));
    REQUIRE(::kill(agents.front(), SIGCONT) == 0);
    job.send_signal(SIGCONT);
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    CHECK(job.left_behind() == "");
}

TEST_CASE("a signal that stops the job ends a stopped worker within the grace time") {
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
        CAPTURE(signal);
        const TemporaryFolder folder;
        Command job(job_of(
            {"--shutdown_timeout=300"},
            "trap 'echo saved; exit 0' TERM INT HUP QUIT; echo ready; while :; do sleep 0.02; done",
            folder
        ));
        REQUIRE(job.wait_for_line("ready"));
        const std::vector<pid_t> workers = workers_of(job.pid());
        REQUIRE(workers.size() == 1);
        REQUIRE(::kill(workers.front(), SIGSTOP) == 0);

        job.send_signal(signal);
        const CommandResult result = job.finish();

        CHECK_MESSAGE(result.exit_code == 128 + signal, describe(result) << result.err);
        CHECK(count_of(result.out, "saved") == 1);
    }
}

TEST_CASE("what workers exit with when the job is stopped by a signal is no failure of theirs") {
    const TemporaryFolder folder;
    Command job(job_of(
        {"--nproc_per_node=2"},
        "trap 'exit 7' INT; echo ready; while :; do sleep 0.02; done",
        folder
    ));
    REQUIRE(job.wait_for_line("ready", 2));

    job.send_signal(SIGINT);
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 128 + SIGINT, describe(result) << result.err);
    CHECK_MESSAGE(result.err.find("failure") == std::string::npos, result.err);
    CHECK(result.err.find("stopped   ranks 0-1") != std::string::npos);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
