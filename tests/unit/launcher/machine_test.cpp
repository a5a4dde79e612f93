#include "launcher/machine.h"

#include <doctest/doctest.h>

namespace ddprun::launcher {
namespace {

TEST_SUITE_BEGIN("launcher/machine");

TEST_CASE("this process may use a CPU at least, and has a host name and a folder") {
    CHECK(count_cpus() >= 1);
    CHECK_FALSE(host_name().empty());
    CHECK(own_folder().has_value());
}

TEST_CASE("random bits differ from one call to the next") {
    const auto first = random_bits();
    const auto second = random_bits();

    REQUIRE(first);
    REQUIRE(second);
    CHECK(*first != *second);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::launcher
