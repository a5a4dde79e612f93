#include "launcher/gpus.h"

#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <stdlib.h>

#include <string>
#include <vector>

namespace ddprun::launcher {
namespace {

using test::TemporaryFolder;
using Words = std::vector<std::string>;

/// A machine of four GPUs as NVML describes it.
std::vector<Gpu> four_gpus() {
    return {
        {"GPU-aaaa", "0000:3b:00.0"},
        {"GPU-abbb", "0000:5e:00.0"},
        {"GPU-cccc", "0000:86:00.0"},
        {"GPU-dddd", "0000:af:00.0"}};
}

Words names_of(const std::vector<UsableGpu>& gpus) {
    Words names;
    for (const UsableGpu& gpu : gpus) {
        names.push_back(gpu.name);
    }
    return names;
}

Words names_for(const std::string& visible, const std::vector<Gpu>& machine = four_gpus()) {
    return names_of(usable_gpus({{"CUDA_VISIBLE_DEVICES", visible}}, machine));
}

/// Looks at nothing but what the folder holds.
GpuSources sources_in(const TemporaryFolder& folder) {
    return {
        .nvml_library = "/nowhere/libnvidia-ml.so.1",
        .device_folder = folder.path("dev"),
        .driver_folder = folder.path("proc")};
}

TEST_SUITE_BEGIN("launcher/gpus");

TEST_CASE("without a variable every GPU of the machine is usable under its number") {
    const std::vector<UsableGpu> usable = usable_gpus({}, four_gpus());

    CHECK(names_of(usable) == Words{"0", "1", "2", "3"});
    CHECK(usable[2].gpu == four_gpus()[2]);
    CHECK(usable_gpus({}, {}).empty());
}

TEST_CASE("CUDA_VISIBLE_DEVICES chooses by number or by the beginning of a UUID") {
    CHECK(names_for("2, 0") == Words{"2", "0"});
    CHECK(names_for("GPU-cc,GPU-abbb") == Words{"GPU-cc", "GPU-abbb"});

    const auto usable = usable_gpus({{"CUDA_VISIBLE_DEVICES", "GPU-cc"}}, four_gpus());
    CHECK(usable[0].gpu == four_gpus()[2]);
}

TEST_CASE("the list ends, as CUDA reads it, with the first entry that names no GPU") {
    CHECK(names_for("1,-1,2") == Words{"1"});
    CHECK(names_for("0,4,1") == Words{"0"});
    CHECK(names_for("GPU-aaaa,GPU-zzzz,0") == Words{"GPU-aaaa"});
    CHECK(names_for("").empty());
    CHECK(names_for("NoDevFiles").empty());
}

TEST_CASE("a GPU named twice leaves none, as CUDA has it") {
    CHECK(names_for("0,1,0").empty());
}

TEST_CASE("where the machine's GPUs aren't known the variable is believed") {
    CHECK(names_for("0,2,5", {}) == Words{"0", "2", "5"});
    CHECK(names_for("GPU-8932f937", {}) == Words{"GPU-8932f937"});
    CHECK(names_for("MIG-1,MIG-2") == Words{"MIG-1", "MIG-2"});
    CHECK(names_for("-1", {}).empty());
}

TEST_CASE("chosen numbers count what is usable, in the order that was asked for") {
    const auto usable = usable_gpus({{"CUDA_VISIBLE_DEVICES", "3,1,0"}}, four_gpus());

    const auto chosen = choose_gpus(usable, {2, 0});

    REQUIRE(chosen);
    CHECK(visible_devices(*chosen) == "0,3");
}

TEST_CASE("a chosen number that isn't there is named") {
    const auto chosen = choose_gpus(usable_gpus({}, four_gpus()), {1, 4});

    REQUIRE_FALSE(chosen);
    CHECK(chosen.error().code == Errc::not_found);
    CHECK(chosen.error().context.starts_with("GPU 4 is not there: 4 can be used"));
}

TEST_CASE("without NVML the numbered device files count, in the order of their numbers") {
    const TemporaryFolder folder;
    for (const char* name :
         {"nvidia12", "nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia", "sda1"}) {
        static_cast<void>(folder.file(std::string{"dev/"} + name, ""));
    }
    static_cast<void>(folder.file(
        "proc/0000:86:00.0/information",
        "Model: \t\t NVIDIA\nGPU UUID: \t GPU-cccc\nDevice Minor: \t 12\n"
    ));
    static_cast<void>(folder.file(
        "proc/0000:3b:00.0/information", "GPU UUID: \t GPU-????????\nDevice Minor: \t 0\n"
    ));
    // One whose device file this container doesn't have.
    static_cast<void>(folder.file("proc/0000:af:00.0/information", "Device Minor: \t 7\n"));

    CHECK(
        machine_gpus(sources_in(folder)) ==
        std::vector<Gpu>{{"", "0000:3b:00.0"}, {}, {"GPU-cccc", "0000:86:00.0"}}
    );
}

TEST_CASE("a machine without anything has no GPUs") {
    const TemporaryFolder folder;

    CHECK(machine_gpus(sources_in(folder)).empty());
}

TEST_CASE("NVML lists the GPUs in its order, with the addresses that sysfs uses") {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): one thread
    ::setenv("NVML_STAND_IN_BUSES", "3b,AF", 1);
    const auto gpus = gpus_by_nvml(NVML_STAND_IN);
    ::unsetenv("NVML_STAND_IN_BUSES");  // NOLINT(concurrency-mt-unsafe)

    REQUIRE(gpus);
    CHECK(*gpus == std::vector<Gpu>{{"GPU-3b", "0000:3b:00.0"}, {"GPU-af", "0000:af:00.0"}});
}

TEST_CASE("a library that has no driver below it, or isn't there, is an error with its reason") {
    const auto refused = gpus_by_nvml(NVML_STAND_IN);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == Errc::unsupported);
    CHECK(refused.error().context.find("nvmlInit gives 9") != std::string::npos);

    const auto missing = gpus_by_nvml("/nowhere/libnvidia-ml.so.1");
    REQUIRE_FALSE(missing);
    CHECK(missing.error().code == Errc::not_found);
    CHECK(gpus_by_nvml("libdl.so.2").error().context.find("no NVML") != std::string::npos);
}

TEST_CASE("an NVML that refuses leaves the device files to count") {
    const TemporaryFolder folder;
    static_cast<void>(folder.file("dev/nvidia0", ""));
    GpuSources sources = sources_in(folder);
    sources.nvml_library = NVML_STAND_IN;

    CHECK(machine_gpus(sources).size() == 1);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::launcher
