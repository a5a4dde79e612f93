#include "trainer/schedule.h"

#include <doctest/doctest.h>

#include <vector>

namespace ddprun::trainer {
namespace {

TEST_SUITE_BEGIN("trainer/schedule");

TEST_CASE("a linear warm-up goes from its factor to the full rate, step by step") {
    const ScheduleOptions options{
        .lr = 2.0, .total_steps = 100, .warmup_steps = 4, .warmup_factor = 0.5};

    CHECK(learning_rate(options, 0) == 1.0);
    CHECK(learning_rate(options, 1) == 1.25);
    CHECK(learning_rate(options, 3) == 1.75);
    CHECK(learning_rate(options, 4) == 2.0);
    CHECK(learning_rate(options, 99) == 2.0);
}

TEST_CASE("a constant warm-up jumps to the full rate") {
    const ScheduleOptions options{
        .lr = 2.0,
        .total_steps = 100,
        .warmup_steps = 4,
        .warmup = WarmupKind::constant,
        .warmup_factor = 0.5};

    CHECK(learning_rate(options, 3) == 1.0);
    CHECK(learning_rate(options, 4) == 2.0);
}

TEST_CASE("step multiplies after each period, counted from the end of the warm-up") {
    const ScheduleOptions options{
        .kind = ScheduleKind::step,
        .lr = 8.0,
        .gamma = 0.5,
        .period = 10,
        .total_steps = 100,
        .warmup_steps = 5};

    CHECK(learning_rate(options, 14) == 8.0);
    CHECK(learning_rate(options, 15) == 4.0);
    CHECK(learning_rate(options, 25) == 2.0);
}

TEST_CASE("cosine is half way down in the middle and stays at its end") {
    const ScheduleOptions options{
        .kind = ScheduleKind::cosine, .lr = 1.0, .lr_min = 0.2, .total_steps = 100};

    CHECK(learning_rate(options, 0) == doctest::Approx(1.0));
    CHECK(learning_rate(options, 50) == doctest::Approx(0.6));
    CHECK(learning_rate(options, 100) == doctest::Approx(0.2));
    CHECK(learning_rate(options, 150) == doctest::Approx(0.2));
}

TEST_CASE("after a warm-up cosine and polynomial still end with the last step") {
    ScheduleOptions options{
        .kind = ScheduleKind::cosine,
        .lr = 1.0,
        .lr_min = 0.2,
        .total_steps = 100,
        .warmup_steps = 20};

    CHECK(learning_rate(options, 20) == doctest::Approx(1.0));
    CHECK(learning_rate(options, 60) == doctest::Approx(0.6));
    CHECK(learning_rate(options, 100) == doctest::Approx(0.2));

    options.kind = ScheduleKind::polynomial;
    options.power = 1.0;
    CHECK(learning_rate(options, 60) == doctest::Approx(0.5));
    CHECK(learning_rate(options, 100) == doctest::Approx(0.0));
}

TEST_CASE("polynomial ends at zero") {
    const ScheduleOptions options{
        .kind = ScheduleKind::polynomial, .lr = 1.0, .power = 2.0, .total_steps = 10};

    CHECK(learning_rate(options, 5) == doctest::Approx(0.25));
    CHECK(learning_rate(options, 10) == 0.0);
    CHECK(learning_rate(options, 11) == 0.0);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
