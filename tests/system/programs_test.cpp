// Any program runs under ddprun as it does under torchrun: Python with torch.distributed, C++ on
// LibTorch's own store.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

using namespace std::chrono_literals;

TEST_SUITE_BEGIN("system/programs");

TEST_CASE("a Python script with init_method env:// all-reduces over all workers") {
    const CommandResult result = run_command({
        .argv = ddprun(
            {"--standalone", "--nproc_per_node=2", DDPRUN_SOURCE_DIR "/tests/system/all_reduce.py"}
        ),
        .env = {"PYTHON_EXEC=" DDPRUN_PYTHON},
        .deadline = 120s,
    });

    CHECK_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    CHECK(
        sorted_lines(result.out) ==
        std::vector<std::string>{
            "[default0]:rank 0 of 2: sum 3",
            "[default1]:rank 1 of 2: sum 3",
        }
    );
}

TEST_CASE("a Python script all-reduces over the workers of two nodes") {
    const std::string port = free_port();
    const auto node = [&port] {
        return CommandOptions{
            .argv = ddprun(
                {"--nnodes=2",
                 "--nproc_per_node=2",
                 "--rdzv_endpoint=127.0.0.1:" + port,
                 DDPRUN_SOURCE_DIR "/tests/system/all_reduce.py"}
            ),
            .env = {"PYTHON_EXEC=" DDPRUN_PYTHON},
            .deadline = 120s,
        };
    };
    Command first(node());
    Command second(node());

    const CommandResult one = first.finish();
    const CommandResult two = second.finish();

    CHECK_MESSAGE(one.exit_code == 0, describe(one) << one.err);
    CHECK_MESSAGE(two.exit_code == 0, describe(two) << two.err);
    CHECK(count_of(one.out + two.out, "of 4: sum 10") == 4);
}

TEST_CASE("a C++ program on LibTorch's own TCPStore meets its peers, after a restart too") {
    const std::string worker = program("libtorch_store_worker");
    const CommandResult result = run_command({
        .argv = ddprun(
            {"--standalone",
             "--nproc_per_node=3",
             "--max_restarts=1",
             "/bin/sh",
             "-c",
             worker + " && [ $TORCHELASTIC_RESTART_COUNT = 1 ]"}
        ),
        .deadline = 120s,
    });

    CHECK_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    CHECK(count_of(result.out, " met 3") >= 4);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
