// When a job starts again after a failure, when it doesn't, and how long it waits.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <sstream>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

using namespace std::chrono_literals;

CommandResult run_shell(const std::vector<std::string>& options, const std::string& script) {
    std::vector<std::string> argv = ddprun(options);
    argv.insert(argv.end(), {"/bin/sh", "-c", script});
    return run_command({.argv = argv});
}

/// The numbers behind `word` in lines "WORD NUMBER".
std::vector<long long> numbers_after(const std::string& text, const std::string& word) {
    std::vector<long long> numbers;
    std::istringstream lines{text};
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(word + " ")) {
            numbers.push_back(std::stoll(line.substr(word.size() + 1)));
        }
    }
    return numbers;
}

TEST_SUITE_BEGIN("system/restart_rules");

TEST_CASE("a code of --no_restart_codes is never restarted, and the report says why") {
    const CommandResult result = run_shell(
        {"--standalone", "--max_restarts=3", "--no_restart_codes=3,42"}, "echo life; exit 42"
    );

    CHECK_MESSAGE(result.exit_code == 42, describe(result) << result.err);
    CHECK(count_of(result.out, "life") == 1);
    CHECK(result.err.find("--no_restart_codes") != std::string::npos);
}

TEST_CASE("another code is restarted, and then one of the list isn't") {
    const CommandResult result = run_shell(
        {"--standalone", "--max_restarts=3", "--no_restart_codes=139"},
        "echo life; [ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 3; kill -SEGV $$"
    );

    CHECK_MESSAGE(result.exit_code == 128 + SIGSEGV, describe(result) << result.err);
    CHECK(count_of(result.out, "life") == 2);
}

TEST_CASE("a restart waits --restart_delay, and twice as long the next time") {
    const CommandResult result = run_shell(
        {"--standalone", "--max_restarts=2", "--restart_delay=0.4"},
        "echo start $(date +%s%3N); echo end $(date +%s%3N); exit 3"
    );

    CHECK_MESSAGE(result.exit_code == 3, describe(result) << result.err);
    const auto starts = numbers_after(result.out, "start");
    const auto ends = numbers_after(result.out, "end");
    REQUIRE(starts.size() == 3);
    REQUIRE(ends.size() == 3);
    CHECK(starts[1] - ends[0] >= 390);
    CHECK(starts[2] - ends[1] >= 790);
    CHECK(result.err.find("starts again in 0.4 s") != std::string::npos);
    CHECK(result.err.find("starts again in 0.8 s") != std::string::npos);
}

TEST_CASE("a signal to stop during the delay ends the job with 128 + n at once") {
    for (const int signal : {SIGTERM, SIGINT}) {
        CAPTURE(signal);
        Command job(
            {.argv = ddprun(
                 {"--standalone",
                  "--max_restarts=3",
                  "--restart_delay=300",
                  "/bin/sh",
                  "-c",
                  "echo life; exit 3"}
             )}
        );
        REQUIRE(job.wait_for_line("starts again in 300 s"));

        job.send_signal(signal);
        const CommandResult result = job.finish();

        CHECK_MESSAGE(result.exit_code == 128 + signal, describe(result) << result.err);
        CHECK(count_of(result.out, "life") == 1);
    }
}

TEST_CASE("failures sooner than --min_uptime use up a smaller budget") {
    const CommandResult result =
        run_shell({"--standalone", "--max_restarts=50", "--min_uptime=3600"}, "echo life; exit 5");

    CHECK_MESSAGE(result.exit_code == 5, describe(result) << result.err);
    CHECK(count_of(result.out, "life") == 4);
    CHECK(result.err.find("--min_uptime") != std::string::npos);
}

TEST_CASE("the rules are the job's: every node of it obeys them") {
    const std::string endpoint = "127.0.0.1:" + free_port();
    const auto node = [&](const std::string& rank) {
        return ddprun(
            {"--nnodes=2",
             "--node_rank=" + rank,
             "--rdzv_endpoint=" + endpoint,
             "--max_restarts=3",
             "--no_restart_codes=42",
             "/bin/sh",
             "-c",
             "echo life; [ $RANK = 1 ] && exit 42; exec sleep 60"}
        );
    };
    Command first({.argv = node("0")});
    Command second({.argv = node("1")});

    const CommandResult of_first = first.finish();
    const CommandResult of_second = second.finish();

    for (const CommandResult& result : {of_first, of_second}) {
        CHECK_MESSAGE(result.exit_code == 42, describe(result) << result.err);
        // None where the other node's failure came first.
        CHECK(count_of(result.out, "life") <= 1);
    }
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
