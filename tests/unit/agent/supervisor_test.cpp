// The supervisor as a user meets it: a real process with real workers (shell one-liners).
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

using namespace ddprun::test;
using std::chrono::milliseconds;

namespace {

CommandOptions probe(int workers, std::string script, int restarts = 0, int timeout_ms = 5'000) {
    CommandOptions options;
    options.argv = {
        AGENT_PROBE,
        fmt::to_string(workers),
        fmt::to_string(restarts),
        fmt::to_string(timeout_ms),
        "/bin/sh",
        "-c",
        std::move(script)};
    return options;
}

bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_SUITE("agent/supervisor") {
    TEST_CASE("workers that succeed give status 0 and whole prefixed lines") {
        Command job(probe(2, "echo hello $RANK of $WORLD_SIZE"));

        const CommandResult result = job.finish();

        CHECK(result.exit_code == 0);
        CHECK(
            sorted_lines(result.out) ==
            std::vector<std::string>{"[default0]:hello 0 of 2", "[default1]:hello 1 of 2"}
        );
        CHECK(result.err == "");
        CHECK(job.left_behind() == "");
    }

    TEST_CASE("a lone worker's bytes pass without a prefix") {
        const CommandResult result = run_command(probe(1, "printf 'a\\0b\\377\\n\\nno newline'"));

        CHECK(result.out == std::string("a\0b\377\n\nno newline", 16));
    }

    TEST_CASE("the job's status is the exit code of the worker that failed") {
        for (const int code : {1, 42, 255}) {
            const CommandResult result =
                run_command(probe(2, fmt::format("[ $RANK = 1 ] && exit {}; exec sleep 100", code))
                );
            CHECK(result.exit_code == code);
            CHECK(contains(result.err, fmt::format("exit code {}", code)));
        }
    }

    TEST_CASE("a worker that a signal ends gives 128 + signal and the signal's name") {
        for (const int signal : {9, 11, 15}) {
            const CommandResult result = run_command(
                probe(2, fmt::format("[ $RANK = 0 ] && kill -{} $$; exec sleep 100", signal))
            );
            CHECK(result.exit_code == 128 + signal);
            CHECK(contains(result.err, fmt::format("signal {} (SIG", signal)));
        }
    }

    TEST_CASE("a missing program gives 127 and one that is not executable 126, with its name") {
        CommandOptions missing = probe(2, "");
        missing.argv[4] = "/nonexistent/program";
        CommandOptions plain_file = probe(2, "");
        plain_file.argv[4] = "/etc/passwd";

        const CommandResult missing_result = run_command(std::move(missing));
        const CommandResult plain_result = run_command(std::move(plain_file));

        CHECK(missing_result.exit_code == 127);
        CHECK(contains(missing_result.err, "/nonexistent/program: No such file"));
        CHECK(plain_result.exit_code == 126);
        CHECK(contains(plain_result.err, "/etc/passwd: Permission denied"));
    }

    TEST_CASE("a failed group is started again, with the count in the environment") {
        Command job(probe(
            2,
            "echo try $TORCHELASTIC_RESTART_COUNT port $MASTER_PORT; "
            "[ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && exit 3; "
            "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exec sleep 100; exit 0",
            1
        ));

        const CommandResult result = job.finish();

        CHECK(result.exit_code == 0);
        CHECK(contains(result.out, "[default0]:try 1 port 1001"));
        CHECK(contains(result.out, "[default1]:try 1 port 1001"));
        CHECK(job.left_behind() == "");
    }

    TEST_CASE("a worker that ignores TERM is killed when the grace time is over") {
        // Rank 1 fails only when rank 0 says that it ignores TERM.
        const TemporaryFolder folder;
        const CommandResult result = run_command(probe(
            2,
            "cd " + folder.path() +
                "; [ $RANK = 1 ] && { until [ -e deaf ]; do sleep 0.01; done; exit 5; }; "
                "trap '' TERM; : > deaf; while :; do sleep 0.05; done",
            0,
            200
        ));

        CHECK(result.exit_code == 5);
        CHECK(result.wall >= milliseconds(200));
        CHECK(result.wall < milliseconds(10'000));
    }

    TEST_CASE("every worker gets the stop signal and its grace time, and the status is 128 + n") {
        for (const int signal : {SIGTERM, SIGHUP, SIGQUIT, SIGINT}) {
            const std::string name = fmt::format(
                "trap 'echo saved $RANK; exit 0' {}; echo ready; while :; do sleep 0.01; done",
                signal
            );
            Command job(probe(3, name));
            REQUIRE(job.wait_for_line("ready", 3));

            job.send_signal(signal);
            const CommandResult result = job.finish();

            CHECK(result.exit_code == 128 + signal);
            for (const char* line : {"saved 0", "saved 1", "saved 2"}) {
                CHECK(contains(result.out, line));
            }
            CHECK(job.left_behind() == "");
        }
    }

    TEST_CASE("a second INT kills at once and a second TERM changes nothing") {
        const char* stubborn = "trap 'echo no' INT TERM; echo ready; while :; do sleep 0.01; done";
        Command interrupted(probe(1, stubborn, 0, 60'000));
        REQUIRE(interrupted.wait_for_line("ready"));
        interrupted.send_signal(SIGINT);
        REQUIRE(interrupted.wait_for_line("no"));
        interrupted.send_signal(SIGINT);
        CHECK(interrupted.finish().exit_code == 130);

        Command terminated(probe(1, stubborn, 0, 300));
        REQUIRE(terminated.wait_for_line("ready"));
        terminated.send_signal(SIGTERM);
        REQUIRE(terminated.wait_for_line("no"));
        terminated.send_signal(SIGTERM);
        const CommandResult result = terminated.finish();
        CHECK(result.exit_code == 143);
        CHECK(result.wall >= milliseconds(300));
    }

    TEST_CASE("USR1 is forwarded and the job goes on") {
        Command job(
            probe(2, "trap 'echo usr1; exit 0' USR1; echo ready; while :; do sleep 0.01; done")
        );
        REQUIRE(job.wait_for_line("ready", 2));

        job.send_signal(SIGUSR1);

        CHECK(job.wait_for_line("usr1", 2));
        CHECK(job.finish().exit_code == 0);
    }

    TEST_CASE("a signal that was ignored at start stays ignored, in workers too") {
        CommandOptions options = probe(1, "echo up; kill -HUP $$; echo alive; exec sleep 100");
        options.in_child = [] { ::signal(SIGHUP, SIG_IGN); };
        Command job(std::move(options));
        REQUIRE(job.wait_for_line("up"));

        job.send_signal(SIGHUP);

        CHECK(job.wait_for_line("alive"));
        job.send_signal(SIGTERM);
        CHECK(job.finish().exit_code == 143);
    }

    TEST_CASE("workers start clean: default PIPE and CHLD, no blocked signal, descriptors 0-2 only"
    ) {
        CommandOptions options = probe(
            2,
            "grep -E 'SigBlk|SigIgn' /proc/self/status | cut -f2; set -- /proc/$$/fd/*; "
            "for fd; do [ -e $fd ] && printf '%s ' ${fd##*/}; done; echo"
        );
        options.in_child = [] {
            ::signal(SIGCHLD, SIG_IGN);
            ::signal(SIGPIPE, SIG_IGN);
            sigset_t all;
            sigfillset(&all);
            ::sigprocmask(SIG_SETMASK, &all, nullptr);
        };

        const CommandResult result = run_command(std::move(options));

        CHECK(result.exit_code == 0);
        CHECK(contains(result.out, "[default0]:0000000000000000\n"));
        CHECK(!contains(result.out, "1000"));
        CHECK(contains(result.out, "[default0]:0 1 2 \n"));
    }

    TEST_CASE("grandchildren are gone with the job, those in sessions of their own too") {
        Command job(probe(
            2, "sleep 1000 & setsid sleep 1000 & (setsid sh -c 'sleep 1000 & wait' &) ; exit 0"
        ));

        const CommandResult result = job.finish();

        CHECK(result.exit_code == 0);
        CHECK(job.left_behind() == "");
    }

    TEST_CASE("workers die with a supervisor that is killed") {
        Command job(probe(2, "echo ready; exec sleep 1000"));
        REQUIRE(job.wait_for_line("ready", 2));

        job.send_signal(SIGKILL);
        job.finish();

        CHECK(job.left_behind() == "");
    }

    TEST_CASE("a grandchild that holds the output doesn't hold the end") {
        Command job(probe(1, "setsid sh -c 'trap \"\" TERM; sleep 1000' & echo out; exit 0"));

        const CommandResult result = job.finish();

        CHECK(result.exit_code == 0);
        CHECK(result.out == "out\n");
        CHECK(result.wall < milliseconds(10'000));
    }

    TEST_CASE("many workers' lines arrive whole, also when written in small pieces") {
        const CommandResult result = run_command(probe(
            4,
            "i=0; while [ $i -lt 300 ]; do printf 'ab'; printf \"c $i\"; printf ' x\\n'; "
            "i=$((i+1)); done"
        ));

        for (int rank = 0; rank < 4; ++rank) {
            std::string expected;
            for (int i = 0; i < 300; ++i) {
                expected += fmt::format("abc {} x", i);
            }
            CHECK(text_of(result.out, fmt::format("[default{}]:", rank)) == expected);
        }
        CHECK(count_of(result.out, "\n") == count_of(result.out, "[default"));
    }

    TEST_CASE("nothing of a large output is lost at the end") {
        const CommandResult result =
            run_command(probe(2, "head -c 3000000 /dev/zero | tr '\\0' 'x'; echo; echo end >&2"));

        CHECK(result.exit_code == 0);
        CHECK(std::count(result.out.begin(), result.out.end(), 'x') == 6'000'000);
        CHECK(contains(result.err, "[default1]:end\n"));
    }

    TEST_CASE("a partial line is shown after a silence and not glued to another rank's text") {
        const TemporaryFolder folder;
        Command job(probe(
            2,
            "cd " + folder.path() +
                "; if [ $RANK = 0 ]; then printf prompt; until [ -e more ]; do sleep 0.01; done; "
                "echo -more; else until [ -e other ]; do sleep 0.01; done; echo other; fi"
        ));
        REQUIRE(job.wait_for_text("prompt"));
        static_cast<void>(folder.file("other", ""));
        REQUIRE(job.wait_for_line("other"));
        static_cast<void>(folder.file("more", ""));

        const CommandResult result = job.finish();

        CHECK(result.out == "[default0]:prompt\n[default1]:other\n[default0]:-more\n");
    }

    TEST_CASE("a reader that goes away doesn't end the job") {
        Command job(probe(2, "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done"));
        REQUIRE(job.wait_for_line("line 1"));

        job.close_stdout();

        CHECK(job.finish().exit_code == 0);
    }

    TEST_CASE("the report names the first failure and its last words") {
        const CommandResult result = run_command(probe(
            2,
            "[ $RANK = 1 ] && { echo first >&2; echo the disk is full >&2; exit 7; }; exec sleep "
            "100"
        ));

        CHECK(contains(result.err, "First failure: rank 1 (local rank 1 on host, pid "));
        CHECK(contains(result.err, "exit code 7"));
        CHECK(contains(result.err, "    the disk is full\n"));
    }

    TEST_CASE("a worker's error file gives the message and nothing is left in the temporary folder"
    ) {
        CommandOptions options = probe(
            2,
            "[ $RANK = 0 ] || exec sleep 100; printf '%s' '{\"message\": {\"message\": "
            "\"ValueError: "
            "bad\", "
            "\"extraInfo\": {\"py_callstack\": \"frame one\\nframe two\"}}}' > "
            "$TORCHELASTIC_ERROR_FILE; exit 1"
        );
        std::string folder = "/tmp/ddprun_agent_test_XXXXXX";
        REQUIRE(::mkdtemp(folder.data()) != nullptr);
        options.env = {"TMPDIR=" + folder};

        const CommandResult result = run_command(std::move(options));

        CHECK(contains(result.err, "ValueError: bad"));
        CHECK(contains(result.err, "    frame two\n"));
        CHECK(std::filesystem::is_empty(folder));
        std::filesystem::remove_all(folder);
    }

    TEST_CASE("closed standard descriptors don't confuse anything") {
        for (const int fd : {0, 1, 2}) {
            CommandOptions options = probe(2, "echo out; echo err >&2; exit 4");
            options.in_child = [fd] { ::close(fd); };
            CHECK(run_command(std::move(options)).exit_code == 4);
        }
    }

    TEST_CASE("256 workers run on one node") {
        const CommandResult result = run_command(probe(256, "echo here"));

        CHECK(result.exit_code == 0);
        CHECK(sorted_lines(result.out).size() == 256);
    }

    TEST_CASE("a lone worker reads standard input, several read nothing") {
        CommandOptions one = probe(1, "cat");
        one.stdin_text = "typed\n";
        CommandOptions two = probe(2, "cat");
        two.stdin_text = "typed\n";

        CHECK(run_command(std::move(one)).out == "typed\n");
        CHECK(run_command(std::move(two)).out == "");
    }

    TEST_CASE("arguments arrive byte for byte") {
        CommandOptions options = probe(1, "printf '%s|' \"$@\"");
        options.argv.insert(options.argv.end(), {"sh", "$$", "${local_rank}", "", "a\nb", "\xff"});

        CHECK(run_command(std::move(options)).out == "$$|${local_rank}||a\nb|\xff|");
    }
}
