#include "trainer/step_log.h"

#include "tests/unit/trainer/temp_folder.h"

#include <doctest/doctest.h>

#include <limits>
#include <string>

namespace ddprun::trainer {
namespace {

TEST_SUITE_BEGIN("trainer/step_log");

TEST_CASE("a step is one JSON object with the documented names") {
    const StepRecord record{7, 1, 2.5, 0.1, 123.25, 3, 0.5};

    CHECK(
        to_json(record) ==
        R"({"step":7,"epoch":1,"loss":2.5,"lr":0.1,"images_per_second":123.25,"data_share":0.5,)"
        R"("round":3})"
    );
}

TEST_CASE("an evaluation is one JSON object with the documented names") {
    CHECK(
        to_json(EvaluationRecord{2, 91.5, 99.5, 10'000, 1}) ==
        R"({"epoch":2,"top1":91.5,"top5":99.5,"count":10000,"round":1})"
    );
}

TEST_CASE("an evaluation of a moving average, too, is in the same line") {
    CHECK(
        to_json(EvaluationRecord{2, 91.5, 99.5, 10'000, 1, 92.25, 99.75}) ==
        R"({"epoch":2,"top1":91.5,"top5":99.5,"count":10000,"ema_top1":92.25,"ema_top5":99.75,)"
        R"("round":1})"
    );
}

TEST_CASE("numbers keep all their digits") {
    StepRecord record;
    record.loss = 0.1 + 0.2;

    CHECK(to_json(record).find("0.30000000000000004") != std::string::npos);
}

TEST_CASE("a number that isn't finite is null") {
    StepRecord record;
    record.loss = std::numeric_limits<double>::quiet_NaN();
    record.images_per_second = std::numeric_limits<double>::infinity();

    CHECK(to_json(record).find(R"("loss":null)") != std::string::npos);
    CHECK(to_json(record).find(R"("images_per_second":null)") != std::string::npos);
}

TEST_CASE("every line is in the file at once") {
    const TempFolder folder;
    const std::string path = (folder / "log").string();
    auto log = StepLog::open(path);
    REQUIRE(log.has_value());

    REQUIRE(log->write(StepRecord{1, 0, 1.0, 0.5, 2.0, 0}).has_value());
    const std::string first = read_file(path);
    REQUIRE(log->write(EvaluationRecord{0, 50.0, 75.0, 4, 0}).has_value());

    CHECK(first == to_json(StepRecord{1, 0, 1.0, 0.5, 2.0, 0}) + "\n");
    CHECK(read_file(path) == first + to_json(EvaluationRecord{0, 50.0, 75.0, 4, 0}) + "\n");
}

TEST_CASE("a restarted job appends, and cuts off the line that its former life didn't finish") {
    const TempFolder folder;
    const std::string path = (folder / "log").string();
    write_file(path, "{\"step\":1}\n{\"step\":2,\"ep");

    auto log = StepLog::open(path);
    REQUIRE(log.has_value());
    REQUIRE(log->write(EvaluationRecord{0, 50.0, 4, 1}).has_value());

    CHECK(read_file(path) == "{\"step\":1}\n" + to_json(EvaluationRecord{0, 50.0, 4, 1}) + "\n");
}

TEST_CASE("an unfinished line longer than a block is cut off whole") {
    const TempFolder folder;
    const std::string path = (folder / "log").string();
    write_file(path, "{}\n" + std::string(10'000, 'x'));
    REQUIRE(StepLog::open(path).has_value());
    CHECK(read_file(path) == "{}\n");

    write_file(path, std::string(10'000, 'x'));
    REQUIRE(StepLog::open(path).has_value());
    CHECK(read_file(path).empty());
}

TEST_CASE("a file that can't be opened is named with its option") {
    const TempFolder folder;

    const auto missing = StepLog::open((folder / "no/log").string());
    const auto is_folder = StepLog::open(folder.path().string());

    REQUIRE(!missing.has_value());
    CHECK(missing.error().code == Errc::not_found);
    CHECK(missing.error().context.starts_with("open --log_json file " + folder.path().string()));
    CHECK(!is_folder.has_value());
}

TEST_CASE("a write that fails is an error that names the file") {
    auto log = StepLog::open("/dev/full");
    REQUIRE(log.has_value());

    const auto written = log->write(StepRecord{});

    REQUIRE(!written.has_value());
    CHECK(written.error().context.starts_with("write --log_json file /dev/full: "));
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
