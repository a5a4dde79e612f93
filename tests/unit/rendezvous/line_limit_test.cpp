#include "rendezvous/line_limit.h"

#include <doctest/doctest.h>

namespace ddprun {
namespace {

using namespace std::chrono_literals;

constexpr LineLimit::TimePoint kStart{1'000s};

TEST_SUITE_BEGIN("rendezvous/line_limit");

TEST_CASE("so many lines are let through in a time, and no more") {
    LineLimit limit(2, 1'000ms);

    CHECK(limit.let_through(kStart) == 0U);
    CHECK(limit.let_through(kStart + 1ms) == 0U);
    CHECK_FALSE(limit.let_through(kStart + 2ms));
    CHECK_FALSE(limit.let_through(kStart + 999ms));
}

TEST_CASE("the next line says how many were left out, once") {
    LineLimit limit(1, 1'000ms);
    REQUIRE(limit.let_through(kStart) == 0U);
    for (int i = 0; i < 5; ++i) {
        REQUIRE_FALSE(limit.let_through(kStart));
    }

    CHECK(limit.let_through(kStart + 1'000ms) == 5U);
    CHECK(limit.let_through(kStart + 2'000ms) == 0U);
}

TEST_CASE("where no further line comes the rest can be told when one would be let through") {
    LineLimit limit(1, 1'000ms);
    REQUIRE(limit.let_through(kStart) == 0U);
    REQUIRE_FALSE(limit.let_through(kStart + 400ms));
    REQUIRE_FALSE(limit.let_through(kStart + 500ms));

    CHECK(limit.due() == kStart + 1'000ms);
    CHECK(limit.rest() == 2U);
    CHECK(limit.rest() == 0U);
    CHECK(limit.let_through(kStart + 1'000ms) == 0U);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
