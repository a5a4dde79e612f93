// How many workers there are, and which GPUs they see.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace ddprun::test {
namespace {

using Words = std::vector<std::string>;

/// Runs ddprun on a machine with these GPUs (PCI buses); each worker says what it sees.
CommandResult run_with_gpus(const std::string& buses, Words options) {
    Words arguments{"--standalone"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.insert(
        arguments.end(),
        {"/bin/sh", "-c", "echo \"$LOCAL_RANK of $LOCAL_WORLD_SIZE: ${CUDA_VISIBLE_DEVICES-}\""}
    );
    return run_command(
        {.argv = ddprun(arguments),
         .env =
             {"LD_LIBRARY_PATH=" NVML_STAND_IN_FOLDER,
              "NVML_STAND_IN_BUSES=" + buses,
              "PET_LOG_LINE_PREFIX_TEMPLATE=> "},
         .unset_env = {"CUDA_VISIBLE_DEVICES"}}
    );
}

TEST_SUITE_BEGIN("system/devices");

TEST_CASE("gpu starts one worker for each GPU that NVML lists") {
    const CommandResult result = run_with_gpus("3b,86", {"--nproc_per_node=gpu"});

    CHECK(result.exit_code == 0);
    CHECK(sorted_lines(result.out) == Words{"> 0 of 2: ", "> 1 of 2: "});
}

TEST_CASE("a chosen set of GPUs is what its workers see") {
    const CommandResult result = run_with_gpus("3b,5e,86,af", {"--nproc_per_node=gpu:3,1"});

    CHECK(sorted_lines(result.out) == Words{"> 0 of 2: 3,1", "> 1 of 2: 3,1"});
}

TEST_CASE("with virtual local ranks each worker sees one GPU of the chosen set") {
    const CommandResult result =
        run_with_gpus("3b,5e,86,af", {"--nproc_per_node=gpu:3,1", "--virtual_local_rank"});

    CHECK(sorted_lines(result.out) == Words{"> 0 of 2: 1", "> 0 of 2: 3"});
}

TEST_CASE("a chosen GPU that isn't there is one line and status 2, and nothing starts") {
    const CommandResult result = run_with_gpus("3b", {"--nproc_per_node=gpu:1"});

    CHECK(result.exit_code == 2);
    CHECK(result.out == "");
    CHECK(
        result.err ==
        "ddprun: --nproc_per_node=gpu:LIST: GPU 1 is not there: 1 can be used here, counted from 0 "
        "(CUDA_VISIBLE_DEVICES, NVML, /dev/nvidia*)\n"
    );
}

TEST_CASE("a wrong value of a variable is one line that names it, status 2, and nothing starts") {
    const CommandResult result = run_command(
        {.argv = ddprun({"/bin/sh", "-c", "echo started"}), .env = {"PET_NNODES=two\nlines"}}
    );

    CHECK(result.exit_code == 2);
    CHECK(result.out == "");
    CHECK(result.err.starts_with("ddprun: PET_NNODES=two\\nlines: expected"));
    CHECK(count_of(result.err, "\n") == 1);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
