// What the trainer does for GPUs, as far as it can be seen without one: its check at the start with
// a stand-in for NVML, its NVTX ranges with a stand-in for the tool that looks at them, and what it
// says where there is none.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace ddprun::test {
namespace {

using namespace std::chrono_literals;

using Words = std::vector<std::string>;

Words tiny(const Words& more) {
    Words words{
        "--model=resnet18",
        "--data=synthetic:16",
        "--image_size=32",
        "--num_classes=10",
        "--batch_size=4",
        "--threads=1",
        "--steps=2"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

CommandResult train(const Words& more, const Words& env) {
    Words argv{program("trainer")};
    const Words words = tiny(more);
    argv.insert(argv.end(), words.begin(), words.end());
    return run_command({
        .argv = argv,
        .env = env,
        .unset_env = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"},
        .deadline = 120s,
    });
}

std::size_t count(const std::string& text, const std::string& what) {
    std::size_t found = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
        ++found;
    }
    return found;
}

TEST_SUITE_BEGIN("system/trainer_gpu");

TEST_CASE("the check at the start tells GPUs, driver, memory and peer access once a node") {
    Words argv = ddprun({"--standalone", "--nproc_per_node=2", "trainer"});
    const Words words = tiny({"--gpu_monitor", "--device=cpu"});
    argv.insert(argv.end(), words.begin(), words.end());

    const CommandResult result = run_command({
        .argv = argv,
        .env =
            {"LD_LIBRARY_PATH=" NVML_STAND_IN_FOLDER,
             "NVML_STAND_IN_BUSES=3b,86",
             "OMP_NUM_THREADS=1"},
        .deadline = 120s,
    });

    REQUIRE_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    const std::string told = result.out + result.err;
    CHECK(count(told, "2 GPUs, driver 580.10") == 1);
    CHECK(count(told, "gpu1: Stand-in 86, 80.0 GB, 2.0 GB of it in use") == 1);
    CHECK(count(told, "peer access: 0 of 1 pairs; not gpu0-gpu1") == 1);
    CHECK(told.find("gpu0 25 % 2.0/80.0 GB") != std::string::npos);
}

TEST_CASE("where no NVML is, --gpu_monitor says so and the training goes on") {
    const CommandResult result =
        train({"--gpu_monitor", "--device=cpu"}, {"LD_LIBRARY_PATH=/nonexistent"});

    CHECK_MESSAGE(result.exit_code == 0, result.err);
    CHECK(count(result.err, "check of the GPUs: load libnvidia-ml.so.1") == 1);
}

TEST_CASE("--cuda_graph without a GPU is a usage error of one line") {
    const CommandResult result = train({"--cuda_graph", "--device=auto"}, {});

    CHECK(result.exit_code == 2);
    CHECK(result.err == "trainer: error: --cuda_graph: needs a GPU, and none was found\n");
}

TEST_CASE("the parts of each step are NVTX ranges that close in order") {
#ifdef NVTX_STAND_IN
    const TemporaryFolder folder;
    const CommandResult result = train(
        {"--device=cpu"},
        {"NVTX_INJECTION64_PATH=" NVTX_STAND_IN, "NVTX_STAND_IN_LOG=" + folder.path("ranges")}
    );

    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    const std::string step =
        "push data\npop\npush forward\npop\npush backward\npop\npush update\npop\n";
    CHECK(read_file(folder.path("ranges")) == step + step);
#else
    MESSAGE("skipped: the build found no NVTX headers");
#endif
}

TEST_CASE("--ddp without a launcher says what is missing") {
    const CommandResult result = train({"--ddp", "--device=cpu"}, {});

    CHECK(result.exit_code == 2);
    CHECK(count(result.err, "MASTER_ADDR and MASTER_PORT are not set") == 1);
}

TEST_CASE("scripts/gpu_check goes through its checks on a CPU") {
    const CommandResult result = run_command({
        .argv = {DDPRUN_PYTHON, DDPRUN_SOURCE_DIR "/scripts/gpu_check", "--rehearse", "--no-build"},
        .env = {"OMP_NUM_THREADS=1"},
        .unset_env = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"},
        .deadline = 400s,
    });

    CHECK_MESSAGE(result.exit_code == 0, result.out << result.err);
    CHECK(result.out.ends_with(" passed, 0 failed\n"));
    CHECK(count(result.out, "ok       ") == 8);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
