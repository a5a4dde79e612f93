// How workers end: with time to save, killed when it is over, with all that they started; and which
// of several failures is the first.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

using Json = nlohmann::json;

std::vector<std::string> job_of(
    std::vector<std::string> options, const std::string& script, const std::string& folder
) {
    options.insert(options.begin(), "--standalone");
    options.insert(options.end(), {"/bin/sh", "-c", script, folder});
    return ddprun(options);
}

TEST_SUITE_BEGIN("system/stop");

TEST_CASE("four workers save at the same time, each with the whole time") {
    const TemporaryFolder folder;
    Command job(
        {.argv = job_of(
             {"--nproc_per_node=4", "--shutdown_timeout=300"},
             "trap 'echo saving; until [ -e \"$0/go\" ]; do sleep 0.02; done; "
             "echo saved; exit 0' TERM; echo ready; while :; do sleep 0.02; done",
             folder.path()
         )}
    );
    REQUIRE(job.wait_for_line("ready", 4));

    job.send_signal(SIGTERM);
    // None goes on before all have been told.
    REQUIRE(job.wait_for_line("saving", 4));
    static_cast<void>(folder.file("go", ""));
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 128 + SIGTERM, describe(result) << result.err);
    CHECK(count_of(result.out, "saved") == 4);
}

TEST_CASE("four workers that need longer than the time are killed, all of them") {
    const TemporaryFolder folder;
    Command job(
        {.argv = job_of(
             {"--nproc_per_node=4", "--shutdown_timeout=0.3"},
             "trap 'sleep 100; echo saved; exit 0' TERM; echo ready; "
             "while :; do sleep 0.02; done",
             folder.path()
         )}
    );
    REQUIRE(job.wait_for_line("ready", 4));

    job.send_signal(SIGTERM);
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 128 + SIGTERM, describe(result) << result.err);
    CHECK(count_of(result.out, "saved") == 0);
    CHECK_MESSAGE(result.err.find("had to be killed: 0-3") != std::string::npos, result.err);
    CHECK(job.left_behind() == "");
}

TEST_CASE("what workers have started ends with a stop by a signal, in sessions of its own too") {
    const TemporaryFolder folder;
    Command job(
        {.argv = job_of(
             {"--nproc_per_node=2"},
             "sleep 600 & setsid sleep 601 & (setsid setsid sleep 602 &) & "
             "echo ready; while :; do sleep 0.02; done",
             folder.path()
         )}
    );
    REQUIRE(job.wait_for_line("ready", 2));

    job.send_signal(SIGTERM);
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 128 + SIGTERM, describe(result) << result.err);
    CHECK(job.left_behind() == "");
}

TEST_CASE("of two failures 10 ms apart the first is the cause, in both orders") {
    for (const int first : {0, 1}) {
        CAPTURE(first);
        const TemporaryFolder folder;
        const std::string script = fmt::format(
            "trap '' TERM; "
            "if [ $RANK = {} ]; then until [ -e \"$0/up\" ]; do sleep 0.02; done; "
            ": > \"$0/going\"; exit 3; fi; "
            ": > \"$0/up\"; until [ -e \"$0/going\" ]; do sleep 0.001; done; sleep 0.01; exit 4",
            first
        );

        const CommandResult result = run_command(
            {.argv = job_of(
                 {"--nproc_per_node=2", "--report=" + folder.path("report.json")},
                 script,
                 folder.path()
             )}
        );

        CHECK_MESSAGE(result.exit_code == 3, describe(result) << result.err);
        const Json json = Json::parse(read_file(folder.path("report.json")));
        CHECK(json["first_failure"]["rank"] == first);
        REQUIRE(json["failures"].size() == 2);
        CHECK(json["failures"][1]["rank"] == 1 - first);
        CHECK(json["failures"][1]["code"] == 4);
        CHECK(result.err.find(fmt::format("ms later: rank {}", 1 - first)) != std::string::npos);
    }
}

TEST_CASE("256 workers on one node all run, and end together when one fails") {
    const TemporaryFolder folder;

    const CommandResult all = run_command(
        {.argv = job_of({"--nproc_per_node=256"}, "echo rank $RANK of $WORLD_SIZE", folder.path())}
    );
    const CommandResult failed = run_command(
        {.argv = job_of(
             {"--nproc_per_node=256"}, "[ $RANK = 255 ] && exit 7; exec sleep 600", folder.path()
         )}
    );

    CHECK_MESSAGE(all.exit_code == 0, describe(all) << all.err);
    CHECK(count_of(all.out, " of 256\n") == 256);
    CHECK(all.out.find("[default255]:rank 255 of 256\n") != std::string::npos);
    CHECK_MESSAGE(failed.exit_code == 7, describe(failed) << failed.err);
    CHECK(failed.err.find("stopped   ranks 0-254\n") != std::string::npos);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
