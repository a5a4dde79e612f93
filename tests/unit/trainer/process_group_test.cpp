#include "trainer/process_group.h"

#include "tests/unit/trainer/rank_threads.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <string>

namespace ddprun::trainer {
namespace {

TEST_CASE("a sum over all ranks reaches every rank") {
    test::run_ranks(3, [](int rank, const ProcessGroupPtr& group) {
        at::Tensor value = torch::full({2}, rank + 1.0, torch::kDouble);
        all_reduce_sum(group, value);
        CHECK(value.equal(torch::full({2}, 6.0, torch::kDouble)));
    });
}

TEST_CASE("a broadcast gives every rank what the root has") {
    test::run_ranks(2, [](int rank, const ProcessGroupPtr& group) {
        at::Tensor value = torch::full({1}, rank, torch::kLong);
        broadcast(group, value, 1);
        CHECK(value.item<std::int64_t>() == 1);
    });
}

TEST_CASE("a worker that is alone needs no group") {
    const auto group = connect_group(WorkerPlace{}, {});
    REQUIRE(group);
    CHECK_FALSE(group->group);
    at::Tensor value = torch::ones({1});
    all_reduce_sum(group->group, value);
    CHECK(value.item<float>() == 1.0F);
}

TEST_CASE("set-up ends in time with a clear line when nobody serves the store") {
    WorkerPlace place;
    place.rank = 1;
    place.world_size = 2;
    place.local_world_size = 2;
    place.master_addr = "127.0.0.1";
    place.master_port = 1;  // reserved: nobody listens there
    place.agent_hosts_store = true;
    const auto begin = std::chrono::steady_clock::now();
    const auto group = connect_group(place, {.init_timeout = std::chrono::seconds(1)});
    REQUIRE_FALSE(group);
    CHECK(group.error().context.find("127.0.0.1:1") != std::string::npos);
    CHECK(group.error().context.find('\n') == std::string::npos);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
}

TEST_CASE("a collective throws when the peer is gone, and does not wait for it") {
    test::run_ranks(2, [](int rank, const ProcessGroupPtr& group) {
        if (rank == 1) {
            return;  // drops the only reference: the connection closes
        }
        at::Tensor value = torch::ones({1});
        CHECK_THROWS(all_reduce_sum(group, value));
    });
}

}  // namespace
}  // namespace ddprun::trainer
