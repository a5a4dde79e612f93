#include "launcher/machine.h"

#include <doctest/doctest.h>

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace ddprun::launcher {
namespace {

namespace fs = std::filesystem;

TEST_SUITE_BEGIN("launcher/machine");

TEST_CASE("GPUs are counted by NVIDIA's numbered device files") {
    std::string folder = (fs::temp_directory_path() / "ddprun-test-XXXXXX").string();
    REQUIRE(::mkdtemp(folder.data()) != nullptr);
    for (const char* name :
         {"nvidia0", "nvidia1", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia", "sda1"}) {
        std::ofstream{fs::path{folder} / name} << "";
    }

    const int count = count_gpus({}, folder);

    fs::remove_all(folder);
    CHECK(count == 3);
}

TEST_CASE("CUDA_VISIBLE_DEVICES says which GPUs count") {
    CHECK(count_gpus({{"CUDA_VISIBLE_DEVICES", "0,2,5"}}, "/nowhere") == 3);
    CHECK(count_gpus({{"CUDA_VISIBLE_DEVICES", "GPU-8932f937"}}, "/nowhere") == 1);
    CHECK(count_gpus({{"CUDA_VISIBLE_DEVICES", ""}}, "/nowhere") == 0);
    CHECK(count_gpus({{"CUDA_VISIBLE_DEVICES", "-1"}}, "/nowhere") == 0);
}

TEST_CASE("gpu without a GPU is refused, auto falls back to the CPUs") {
    const Environment none{{"CUDA_VISIBLE_DEVICES", ""}};
    LaunchCommand command;

    command.worker_source = WorkerSource::gpu;
    CHECK(count_workers(command, none).error().code == Errc::not_found);
    command.worker_source = WorkerSource::automatic;
    CHECK(count_workers(command, none) == LocalWorldSize{count_cpus()});
}

TEST_CASE("auto is one worker per GPU where there are GPUs") {
    LaunchCommand command;
    command.worker_source = WorkerSource::automatic;

    CHECK(count_workers(command, {{"CUDA_VISIBLE_DEVICES", "0,1,2"}}) == LocalWorldSize{3});
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::launcher
