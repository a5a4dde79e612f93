// The trainer beside Python's own training with the same pictures, seed and settings.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kDeadline = 300s;
constexpr int kSteps = 20;
const std::string kFolder = DDPRUN_FASHION_MNIST;

using Words = std::vector<std::string>;

std::vector<double> losses_of_python(int ranks) {
    const Words script{
        DDPRUN_SOURCE_DIR "/tests/support/python_curve.py", kFolder, std::to_string(kSteps), "8"};
    Words argv{DDPRUN_PYTHON};
    if (ranks > 1) {
        // Raw bytes: the workers' output must not carry a prefix.
        argv = ddprun(
            {"--standalone", "--nproc_per_node=" + std::to_string(ranks), "--local_ranks_filter=0"}
        );
    }
    argv.insert(argv.end(), script.begin(), script.end());
    const CommandResult result = run_command({
        .argv = argv,
        .env = {"OMP_NUM_THREADS=1", "PYTHON_EXEC=" DDPRUN_PYTHON},
        .unset_env = {"RANK", "WORLD_SIZE"},
        .deadline = kDeadline,
    });
    REQUIRE_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    std::vector<double> losses;
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) {
        losses.push_back(std::strtod(line.substr(line.find(':') + 1).c_str(), nullptr));
    }
    return losses;
}

std::vector<double> losses_of_trainer(int ranks) {
    const TemporaryFolder folder;
    Words argv{program("trainer")};
    if (ranks > 1) {
        argv = ddprun({"--standalone", "--nproc_per_node=" + std::to_string(ranks), "trainer"});
    }
    for (const std::string& word : Words{
             "--model=resnet18",
             "--data=fashion-mnist:" + kFolder,
             "--batch_size=8",
             "--steps=" + std::to_string(kSteps),
             "--lr=0.01",
             "--momentum=0.9",
             "--weight_decay=1e-4",
             "--seed=3",
             "--threads=1",
             "--limit_test=8",
             "--log_json=" + folder.path("log.json")}) {
        argv.push_back(word);
    }
    const CommandResult result = run_command({
        .argv = argv,
        .env = {"OMP_NUM_THREADS=1"},
        .unset_env = {"RANK", "WORLD_SIZE"},
        .deadline = kDeadline,
    });
    REQUIRE_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    std::vector<double> losses;
    std::istringstream lines(read_file(folder.path("log.json")));
    for (std::string line; std::getline(lines, line);) {
        const std::size_t at = line.find("\"loss\":");
        if (at != std::string::npos) {
            losses.push_back(std::strtod(line.c_str() + at + 7, nullptr));
        }
    }
    return losses;
}

TEST_SUITE_BEGIN("system/trainer_python");

TEST_CASE("the losses of twenty steps equal those of Python's DDP, on one rank and on two") {
    for (const int ranks : {1, 2}) {
        CAPTURE(ranks);
        const auto ours = losses_of_trainer(ranks);
        const auto theirs = losses_of_python(ranks);
        REQUIRE(ours.size() == kSteps);
        REQUIRE(theirs.size() == kSteps);
        int equal = 0;
        for (int step = 0; step < kSteps; ++step) {
            CAPTURE(step);
            const auto i = static_cast<std::size_t>(step);
            // The same kernels in the same order: the same bits.
            CHECK(ours[i] == doctest::Approx(theirs[i]).epsilon(1e-7));
            equal += ours[i] == theirs[i] ? 1 : 0;
        }
        MESSAGE(ranks << " ranks: " << equal << " of " << kSteps << " losses have equal bits");
    }
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
