// nccl-check under ddprun. What it can show depends on the machine: with a GPU for each worker the
// all-reduce, else the exchange of the id alone.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <string>

namespace ddprun::test {
namespace {

using namespace std::chrono_literals;

TEST_SUITE_BEGIN("system/nccl_check");

TEST_CASE("two workers hold the same id and all reduce or say why they can't") {
    const CommandResult result = run_command(
        {.argv = ddprun({"--standalone", "--nproc_per_node=2", "nccl-check"}), .deadline = 120s}
    );

    CHECK(count_of(result.out, "all 2 ranks hold the same 128 bytes") == 1);
    if (result.exit_code == 0) {
        CHECK(count_of(result.out, "every sum is right") == 1);
        CHECK(count_of(result.out, "bus bandwidth") == 1);
        return;
    }
    CHECK_MESSAGE(result.exit_code == 79, describe(result) << result.out << result.err);
    CHECK(count_of(result.out, "no communicator can be made: rank ") == 2);
}

TEST_CASE("without a GPU the exchange is done all the same and the status says so") {
    const CommandResult result = run_command(
        {.argv = ddprun({"--standalone", "--nproc_per_node=2", "nccl-check"}),
         .env = {"CUDA_VISIBLE_DEVICES="},
         .deadline = 120s}
    );

    CHECK_MESSAGE(result.exit_code == 79, describe(result) << result.out << result.err);
    CHECK(count_of(result.out, "all 2 ranks hold the same 128 bytes") == 1);
    CHECK(count_of(result.out, "no communicator can be made: rank 0: ") == 2);
}

TEST_CASE("an argument that it doesn't know is wrong usage") {
    const CommandResult result = run_command({.argv = {program("nccl-check"), "--bytes=1"}});

    CHECK(result.exit_code == 2);
    CHECK(count_of(result.err, "--bytes=1") == 1);
}

TEST_CASE("a store that can't be reached is an error that names it") {
    const std::string port = free_port();
    const CommandResult result = run_command(
        {.argv = {program("nccl-check"), "--timeout=1"},
         .env = {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port},
         .deadline = 120s}
    );

    CHECK_MESSAGE(result.exit_code == 69, describe(result) << result.out << result.err);
    CHECK(count_of(result.err, "127.0.0.1:" + port) == 1);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
