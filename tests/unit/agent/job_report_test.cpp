// The report for programs, and the file that it goes to.
#include "agent/job_report.h"

#include "tests/support/system.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

using namespace ddprun;

namespace {

using Json = nlohmann::json;

JobReport example_report() {
    WorkerFailure failure;
    failure.host = "node2";
    failure.group_rank = GroupRank{1};
    failure.rank = Rank{3};
    failure.local_rank = LocalRank{1};
    failure.pid = 4711;
    failure.kind = FailureKind::signaled;
    failure.code = 11;
    failure.core_dumped = true;
    failure.wall_time_ms = 1'700'000'000'042;
    failure.uptime_ms = 1'500;
    failure.message = "boom";
    failure.traceback = "line 1";
    failure.stderr_tail = "last \xff words\n";
    JobReport report;
    report.job = JobId{"job7"};
    report.outcome.exit_status = 139;
    report.outcome.reason = "why";
    report.outcome.failures = {failure, failure};
    report.outcome.failures[1].kind = FailureKind::exited;
    report.outcome.restart_count = RestartCount{1};
    report.outcome.stopped = {{Rank{0}, false}, {Rank{2}, true}};
    report.started_ms = 1'700'000'000'000;
    report.ended_ms = 1'700'000'001'000;
    report.rounds = {
        {Round{0}, RoundReason::first_start, "first start", 1'700'000'000'001},
        {Round{1}, RoundReason::worker_failure, "rank 1 failed", 1'700'000'000'002}};
    return report;
}

TEST_SUITE_BEGIN("agent/job_report");

TEST_CASE("the report has every documented field") {
    const Json json = Json::parse(format_report(example_report()));

    CHECK(json["version"] == 1);
    CHECK(json["job_id"] == "job7");
    CHECK(json["exit_status"] == 139);
    CHECK(json["reason"] == "why");
    CHECK(json["started"] == "2023-11-14T22:13:20.000Z");
    CHECK(json["ended"] == "2023-11-14T22:13:21.000Z");
    CHECK(json["restarts"] == 1);
    CHECK(json["stopped"] == Json::parse("[0, 2]"));
    CHECK(json["killed"] == Json::parse("[2]"));
    REQUIRE(json["rounds"].size() == 2);
    CHECK(json["rounds"][1]["number"] == 1);
    CHECK(json["rounds"][1]["reason"] == "worker_failure");
    CHECK(json["rounds"][1]["reason_text"] == "rank 1 failed");
    CHECK(json["rounds"][1]["started"] == "2023-11-14T22:13:20.002Z");
}

TEST_CASE("a failure by a signal has the signal and no code, one by a code the code") {
    const Json json = Json::parse(format_report(example_report()));

    const Json& first = json["first_failure"];
    CHECK(first == json["failures"][0]);
    CHECK(first["host"] == "node2");
    CHECK(first["rank"] == 3);
    CHECK(first["local_rank"] == 1);
    CHECK(first["pid"] == 4711);
    CHECK(first["time"] == "2023-11-14T22:13:20.042Z");
    CHECK(first["uptime_s"] == doctest::Approx(1.5));
    CHECK(first["kind"] == "signal");
    CHECK(first["signal"] == 11);
    CHECK(first["code"].is_null());
    CHECK(first["core_dumped"] == true);
    CHECK(first["message"] == "boom");
    CHECK(first["traceback"] == "line 1");
    CHECK(json["failures"][1]["kind"] == "exit");
    CHECK(json["failures"][1]["code"] == 11);
    CHECK(json["failures"][1]["signal"].is_null());
}

TEST_CASE("bytes that are no UTF-8 don't break the report") {
    const Json json = Json::parse(format_report(example_report()));

    CHECK(json["first_failure"]["stderr"] == "last \xEF\xBF\xBD words\n");
}

TEST_CASE("a job that succeeded has no failure") {
    JobReport report;
    report.job = JobId{"job"};

    const Json json = Json::parse(format_report(report));

    CHECK(json["exit_status"] == 0);
    CHECK(json["first_failure"].is_null());
    CHECK(json["failures"].empty());
    CHECK(json["stopped"].empty());
}

TEST_CASE("the file is replaced as a whole and nothing is left beside it") {
    const test::TemporaryFolder folder;
    const std::string path = folder.file("report.json", "old");

    const auto written = write_report_file(path, "new\n");

    CHECK(written);
    CHECK(test::read_file(path) == "new\n");
    CHECK(std::distance(std::filesystem::directory_iterator{folder.path()}, {}) == 1);
}

TEST_CASE("a check leaves nothing, and finds what can't be written") {
    const test::TemporaryFolder folder;

    CHECK(check_report_file(folder.path("report.json")));
    CHECK(std::filesystem::is_empty(folder.path()));
    CHECK_FALSE(check_report_file(folder.path("no/such/folder/report.json")));
    CHECK_FALSE(check_report_file(folder.path()));
    CHECK_FALSE(check_report_file("/dev/null"));
}

TEST_CASE("a link isn't replaced, and what it points to isn't either") {
    const test::TemporaryFolder folder;
    const std::string target = folder.file("target", "old");
    REQUIRE(::symlink(target.c_str(), folder.path("link").c_str()) == 0);

    CHECK_FALSE(write_report_file(folder.path("link"), "new"));
    CHECK(test::read_file(target) == "old");
}

TEST_SUITE_END();

}  // namespace
