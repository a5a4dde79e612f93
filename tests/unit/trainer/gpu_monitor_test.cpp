#include "trainer/gpu_monitor.h"

#include <doctest/doctest.h>

#include <cstdlib>

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
