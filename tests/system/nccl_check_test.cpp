// nccl-check under ddprun. What it can show depends on the machine: with a GPU for each worker the
// all-reduce, else the exchange of the id alone.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

using namespace std::chrono_literals;

/// A ddprund that lives through several runs.
class LivingStore {
public:
    LivingStore() : daemon_({.argv = {program("ddprund"), "--listen", "127.0.0.1:0"}}) {
        const auto line = daemon_.wait_for_line("listening on");
        REQUIRE(line);
        port_ = line->substr(line->rfind(':') + 1);
    }

    /// nccl-check as this rank, started by hand.
    [[nodiscard]] std::unique_ptr<Command> rank(int rank, int world_size, int seconds) const {
        CommandOptions options;
        options.argv = {program("nccl-check"), "--timeout=" + std::to_string(seconds)};
        options.env = {
            "CUDA_VISIBLE_DEVICES=",
            "RANK=" + std::to_string(rank),
            "WORLD_SIZE=" + std::to_string(world_size),
            "LOCAL_RANK=" + std::to_string(rank),
            "MASTER_ADDR=127.0.0.1",
            "MASTER_PORT=" + port_};
        return std::make_unique<Command>(std::move(options));
    }

    void check_run_of_two() const {
        const auto first = rank(0, 2, 30);
        const auto second = rank(1, 2, 30);
        const CommandResult one = first->finish();
        const CommandResult two = second->finish();
        CHECK_MESSAGE(one.exit_code == 79, describe(one) << one.out << one.err);
        CHECK_MESSAGE(two.exit_code == 79, describe(two) << two.out << two.err);
        CHECK(count_of(one.out, "all 2 ranks hold the same 128 bytes") == 1);
    }

private:
    Command daemon_;
    std::string port_;
};

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

TEST_CASE("it can be run by hand again and again with one store, after a killed run too") {
    const LivingStore store;
    store.check_run_of_two();
    store.check_run_of_two();
    for (const int lonely : {0, 1}) {
        const auto killed = store.rank(lonely, 2, 30);
        static_cast<void>(killed->wait_for_line("128 random bytes", 1, 300ms));
        killed->send_signal(SIGKILL);
        CHECK(killed->finish().signal == SIGKILL);

        store.check_run_of_two();
    }
}

TEST_CASE("a missing rank is named and nobody else is") {
    const LivingStore store;
    const auto first = store.rank(0, 3, 2);
    const auto last = store.rank(2, 3, 2);

    for (const auto& result : {first->finish(), last->finish()}) {
        CHECK_MESSAGE(result.exit_code == 69, describe(result) << result.out << result.err);
        CHECK_MESSAGE(
            count_of(result.err, "rank 1 of 3 did not come within 2000 ms") == 1, result.err
        );
        CHECK(count_of(result.err, "held") == 0);
    }
    store.check_run_of_two();
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
