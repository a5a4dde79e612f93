#include "trainer/gpu_monitor.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace ddprun::trainer {
namespace {

const std::string kStandIn = NVML_STAND_IN;

TEST_SUITE_BEGIN("trainer/gpu_monitor");

TEST_CASE("names, use and memory are those that NVML gives") {
    ::setenv("NVML_STAND_IN_BUSES", "3b,86", 1);
    const auto monitor = GpuMonitor::open(kStandIn);
    ::unsetenv("NVML_STAND_IN_BUSES");
    REQUIRE_MESSAGE(monitor.has_value(), monitor.error().context);

    const auto gpus = (*monitor)->read();

    CHECK((*monitor)->driver() == "580.10");
    REQUIRE(gpus.size() == 2);
    CHECK(gpus[0].name == "Stand-in 3b");
    CHECK(gpus[1].busy == 35U);
    CHECK(describe_use(gpus) == "  gpu0 25 % 2.0/80.0 GB  gpu1 35 % 2.0/80.0 GB");
}

std::vector<std::string> check_of(const char* buses) {
    ::setenv("NVML_STAND_IN_BUSES", buses, 1);
    const auto monitor = GpuMonitor::open(kStandIn);
    ::unsetenv("NVML_STAND_IN_BUSES");
    REQUIRE_MESSAGE(monitor.has_value(), monitor.error().context);
    return describe_gpus(**monitor);
}

TEST_CASE("the check at the start names count, driver, memory, and the pairs without peer access") {
    CHECK(
        (check_of("3b,3c,86") ==
         std::vector<std::string>{
             "3 GPUs, driver 580.10",
             "gpu0: Stand-in 3b, 80.0 GB, 2.0 GB of it in use",
             "gpu1: Stand-in 3c, 80.0 GB, 2.0 GB of it in use",
             "gpu2: Stand-in 86, 80.0 GB, 2.0 GB of it in use",
             "peer access: 1 of 3 pairs; not gpu0-gpu2, gpu1-gpu2"})
    );
}

TEST_CASE("one GPU has no peers to tell of, and many pairs are told by their first ones") {
    CHECK(check_of("3b").size() == 2);
    CHECK(
        check_of("10,20,30,40,50").back() ==
        "peer access: 0 of 10 pairs; not gpu0-gpu1, gpu0-gpu2, gpu1-gpu2, gpu0-gpu3, gpu1-gpu3, "
        "gpu2-gpu3, gpu0-gpu4, gpu1-gpu4, ..."
    );
    CHECK(check_of("31,32,33").back() == "peer access: 3 of 3 pairs");
}

TEST_CASE("a library that isn't there, and one without a driver, are told apart") {
    CHECK(GpuMonitor::open("libno-such-nvml.so").error().code == Errc::not_found);
    const auto none = GpuMonitor::open(kStandIn);
    REQUIRE(!none.has_value());
    CHECK(none.error().code == Errc::unsupported);
    CHECK(none.error().context.find("nvmlInit gives 9") != std::string::npos);
}

TEST_CASE("what a GPU doesn't tell is left out") {
    CHECK(describe_use({GpuUse{}}) == "  gpu0");
    CHECK(describe_use({}).empty());
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
