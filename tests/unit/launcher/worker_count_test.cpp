#include "launcher/worker_count.h"

#include "launcher/machine.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace ddprun::launcher {
namespace {

LaunchCommand asking_for(WorkerSource source, std::vector<std::int32_t> chosen = {}) {
    LaunchCommand command;
    command.worker_source = source;
    command.chosen_gpus = std::move(chosen);
    return command;
}

std::vector<Gpu> no_gpus() {
    return {};
}

std::vector<Gpu> three_gpus() {
    return std::vector<Gpu>(3);
}

TEST_SUITE_BEGIN("launcher/worker_count");

TEST_CASE("a number is taken as it is, and the machine isn't asked") {
    LaunchCommand command = asking_for(WorkerSource::number);
    command.nproc_per_node = LocalWorldSize{5};

    const auto workers = count_workers(command, {}, [] {
        FAIL("GPUs were looked for");
        return no_gpus();
    });

    REQUIRE(workers);
    CHECK(workers->count == LocalWorldSize{5});
}

TEST_CASE("gpu is one worker for each GPU, and leaves CUDA_VISIBLE_DEVICES alone") {
    const auto workers = count_workers(asking_for(WorkerSource::gpu), {}, three_gpus);

    REQUIRE(workers);
    CHECK(workers->count == LocalWorldSize{3});
    CHECK_FALSE(workers->visible_devices);
}

TEST_CASE("gpu without a GPU is refused with what to use instead") {
    const auto workers = count_workers(asking_for(WorkerSource::gpu), {}, no_gpus);

    REQUIRE_FALSE(workers);
    CHECK(workers.error().code == Errc::not_found);
    CHECK(workers.error().context.ends_with("use a number, or auto"));
}

TEST_CASE("a chosen set is as many workers, which see just these GPUs in this order") {
    const auto workers = count_workers(asking_for(WorkerSource::gpu, {2, 0}), {}, three_gpus);

    REQUIRE(workers);
    CHECK(workers->count == LocalWorldSize{2});
    CHECK(workers->visible_devices == "2,0");
}

TEST_CASE("a chosen set that the machine lacks is refused naming the option") {
    const auto workers = count_workers(asking_for(WorkerSource::gpu, {3}), {}, three_gpus);

    REQUIRE_FALSE(workers);
    CHECK(workers.error().context.starts_with("--nproc_per_node=gpu:LIST: GPU 3 is not there"));
}

TEST_CASE("auto is one worker per GPU where there are GPUs, else one per CPU") {
    const LaunchCommand command = asking_for(WorkerSource::automatic);
    const Environment two{{"CUDA_VISIBLE_DEVICES", "0,2"}};
    const Environment none{{"CUDA_VISIBLE_DEVICES", ""}};

    CHECK(count_workers(command, two, three_gpus)->count == LocalWorldSize{2});
    CHECK(count_workers(command, none, three_gpus)->count == LocalWorldSize{count_cpus()});
    CHECK(count_workers(command, {}, no_gpus)->count == LocalWorldSize{count_cpus()});
}

TEST_CASE("cpu is one worker for each CPU that may be used") {
    CHECK(
        count_workers(asking_for(WorkerSource::cpu), {}, three_gpus)->count ==
        LocalWorldSize{count_cpus()}
    );
}

TEST_CASE("more than can be supported is refused") {
    std::string all = "0";
    for (int i = 1; i <= 4096; ++i) {
        all += "," + std::to_string(i);
    }
    const auto workers =
        count_workers(asking_for(WorkerSource::gpu), {{"CUDA_VISIBLE_DEVICES", all}}, no_gpus);

    REQUIRE_FALSE(workers);
    CHECK(workers.error().code == Errc::limit_exceeded);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::launcher
