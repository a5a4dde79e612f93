// --report=FILE: what a program finds about a job that has ended.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

using Json = nlohmann::json;

struct Reported {
    CommandResult result;
    Json json;
};

Reported run_reported(std::vector<std::string> options, const std::vector<std::string>& program) {
    const TemporaryFolder folder;
    options.insert(options.begin(), {"--standalone", "--report=" + folder.path("report.json")});
    options.insert(options.end(), program.begin(), program.end());
    Reported reported;
    reported.result = run_command({.argv = ddprun(options)});
    reported.json = Json::parse(read_file(folder.path("report.json")), nullptr, false);
    REQUIRE_MESSAGE(reported.json.is_object(), reported.result.err);
    CHECK(std::distance(std::filesystem::directory_iterator{folder.path()}, {}) == 1);
    return reported;
}

std::vector<std::string> shell(const std::string& script) {
    return {"/bin/sh", "-c", script};
}

TEST_SUITE_BEGIN("system/report_file");

TEST_CASE("a job that succeeded is reported with status 0 and without a failure") {
    const Reported reported = run_reported({"--nproc_per_node=2"}, shell("exit 0"));

    CHECK(reported.json["version"] == 1);
    CHECK(reported.json["exit_status"] == 0);
    CHECK(reported.json["first_failure"].is_null());
    CHECK(reported.json["failures"].empty());
    CHECK(reported.json["stopped"].empty());
    REQUIRE(reported.json["rounds"].size() == 1);
    CHECK(reported.json["rounds"][0]["number"] == 0);
    CHECK(reported.json["rounds"][0]["reason"] == "first_start");
    CHECK(reported.json["started"] <= reported.json["rounds"][0]["started"]);
    CHECK(reported.json["rounds"][0]["started"] <= reported.json["ended"]);
}

TEST_CASE("a failure is reported with rank, code, last words and whom it stopped") {
    const Reported reported = run_reported(
        {"--nproc_per_node=2", "--max_restarts=1"},
        shell("[ $RANK = 1 ] && { echo out of luck >&2; exit 3; }; exec sleep 60")
    );

    CHECK(reported.result.exit_code == 3);
    CHECK(reported.json["exit_status"] == 3);
    CHECK(reported.json["restarts"] == 1);
    REQUIRE(reported.json["rounds"].size() == 2);
    CHECK(reported.json["rounds"][1]["reason"] == "worker_failure");
    const Json& first = reported.json["first_failure"];
    CHECK(first["rank"] == 1);
    CHECK(first["local_rank"] == 1);
    CHECK(first["kind"] == "exit");
    CHECK(first["code"] == 3);
    CHECK(first["signal"].is_null());
    CHECK(first["stderr"] == "out of luck\n");
    CHECK(first["pid"] > 1);
    CHECK(first["uptime_s"] >= 0.0);
    CHECK(reported.json["stopped"] == Json::parse("[0]"));
    CHECK(reported.json["killed"].empty());
}

TEST_CASE("a signal is reported as a signal") {
    const Reported reported = run_reported({}, shell("kill -KILL $$"));

    CHECK(reported.json["exit_status"] == 128 + SIGKILL);
    CHECK(reported.json["first_failure"]["kind"] == "signal");
    CHECK(reported.json["first_failure"]["signal"] == SIGKILL);
    CHECK(reported.json["first_failure"]["code"].is_null());
    CHECK(reported.json["first_failure"]["core_dumped"] == false);
}

TEST_CASE("an error file's message and frames are in the report") {
    const Reported reported = run_reported(
        {},
        shell("echo '{\"message\": {\"message\": \"ValueError: bad\", \"extraInfo\": "
              "{\"py_callstack\": \"File train.py, line 7\"}}}' > $TORCHELASTIC_ERROR_FILE; exit 1")
    );

    CHECK(reported.json["first_failure"]["message"] == "ValueError: bad");
    CHECK(reported.json["first_failure"]["traceback"] == "File train.py, line 7");
}

TEST_CASE("a program that can't be executed is reported as such, found before the start or after") {
    const TemporaryFolder folder;
    const std::string script = folder.file("worker", "#!/no/such/interpreter\n", true);

    for (const std::string& program : {std::string{"/no/such/program"}, script}) {
        CAPTURE(program);
        const Reported reported = run_reported({}, {program});

        CHECK(reported.result.exit_code == 127);
        CHECK(reported.json["exit_status"] == 127);
        CHECK(reported.json["first_failure"]["kind"] == "exec");
        CHECK(reported.json["first_failure"]["code"] == 127);
    }
}

TEST_CASE("a job stopped by a signal is reported with those who were stopped and killed") {
    const TemporaryFolder folder;
    Command job(
        {.argv = ddprun(
             {"--standalone",
              "--nproc_per_node=2",
              "--shutdown_timeout=0.3",
              "--report=" + folder.path("report.json"),
              "/bin/sh",
              "-c",
              "[ $RANK = 1 ] && trap '' TERM; echo ready; while :; do sleep 0.05; done"}
         )}
    );
    REQUIRE(job.wait_for_line("ready", 2));

    job.send_signal(SIGTERM);
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 128 + SIGTERM, describe(result) << result.err);
    const Json json = Json::parse(read_file(folder.path("report.json")));
    CHECK(json["exit_status"] == 128 + SIGTERM);
    CHECK(json["first_failure"].is_null());
    CHECK(json["stopped"] == Json::parse("[0, 1]"));
    CHECK(json["killed"] == Json::parse("[1]"));
}

TEST_CASE("an old report is replaced and not touched before the end") {
    const TemporaryFolder folder;
    const std::string path = folder.file("report.json", "old");
    Command job(
        {.argv = ddprun(
             {"--standalone",
              "--report=" + path,
              "/bin/sh",
              "-c",
              "echo ready; until [ -e \"$0/go\" ]; do sleep 0.02; done",
              folder.path()}
         )}
    );
    REQUIRE(job.wait_for_line("ready"));
    CHECK(read_file(path) == "old");

    static_cast<void>(folder.file("go", ""));
    static_cast<void>(job.finish());

    CHECK(Json::parse(read_file(path))["exit_status"] == 0);
}

TEST_CASE("a path that can't be written is wrong usage before anything starts") {
    const TemporaryFolder folder;
    for (const std::string& path :
         {folder.path("no/such/folder/report.json"), folder.path(), std::string{"/dev/null"}}) {
        CAPTURE(path);
        const CommandResult result = run_command(
            {.argv =
                 ddprun({"--standalone", "--report=" + path, "/bin/touch", folder.path("started")})}
        );

        CHECK_MESSAGE(result.exit_code == 2, describe(result) << result.err);
        CHECK(count_of(result.err, "\n") == 1);
        CHECK(result.err.find(path) != std::string::npos);
        CHECK_FALSE(std::filesystem::exists(folder.path("started")));
    }
    CHECK(std::filesystem::is_character_file("/dev/null"));
}

TEST_CASE("the first failure's error file goes to the place that this launcher was given itself") {
    const TemporaryFolder folder;
    const std::string own = folder.file("own.json", "of an earlier run");
    const std::string write =
        "echo '{\"message\": {\"message\": \"boom '$RANK'\"}}' > "
        "$TORCHELASTIC_ERROR_FILE; ";
    // Rank 1 fails later, stopped or not.
    const CommandResult result = run_command(
        {.argv = ddprun(
             {"--nproc_per_node=2",
              "/bin/sh",
              "-c",
              write + "[ $RANK = 0 ] && exit 7; trap 'exit 8' TERM; sleep 60 & wait"}
         ),
         .env = {"TORCHELASTIC_ERROR_FILE=" + own}}
    );

    CHECK(result.exit_code == 7);
    const std::string text = read_file(own);
    CHECK(text.find("boom 0") != std::string::npos);
    CHECK(text.find("\"errorCode\":7") != std::string::npos);
}

TEST_CASE("a launcher below a launcher hands the root cause up") {
    const TemporaryFolder folder;
    const std::string own = folder.path("own.json");
    std::vector<std::string> inner = ddprun(
        {"/bin/sh",
         "-c",
         "echo '{\"message\": {\"message\": \"deep\"}}' > $TORCHELASTIC_ERROR_FILE; exit 5"}
    );
    const CommandResult result =
        run_command({.argv = ddprun(inner), .env = {"TORCHELASTIC_ERROR_FILE=" + own}});

    CHECK(result.exit_code == 5);
    CHECK(read_file(own).find("deep") != std::string::npos);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
