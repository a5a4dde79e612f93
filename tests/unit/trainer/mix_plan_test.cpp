#include "trainer/mix_plan.h"

#include <doctest/doctest.h>

#include <cmath>

namespace ddprun::trainer {
namespace {

TEST_SUITE_BEGIN("trainer/mix_plan");

TEST_CASE("without alphas nothing is mixed") {
    CHECK(plan_mix({}, {.seed = 1}).kind == MixKind::none);
}

TEST_CASE("a plan depends on seed, step, rank and part alone, and on each of them") {
    const MixOptions options{.mixup_alpha = 0.2};
    const MixDraw draw{.seed = 5, .step = 7, .rank = 1, .part = 0, .height = 8, .width = 8};
    const double lambda = plan_mix(options, draw).lambda;
    MixDraw other_step = draw;
    other_step.step = 8;
    MixDraw other_rank = draw;
    other_rank.rank = 2;
    MixDraw other_part = draw;
    other_part.part = 1;
    MixDraw other_seed = draw;
    other_seed.seed = 6;

    CHECK(plan_mix(options, draw).lambda == lambda);
    CHECK(plan_mix(options, other_step).lambda != lambda);
    CHECK(plan_mix(options, other_rank).lambda != lambda);
    CHECK(plan_mix(options, other_part).lambda != lambda);
    CHECK(plan_mix(options, other_seed).lambda != lambda);
}

TEST_CASE("with both alphas about half of the batches take each, and weights have Beta's mean") {
    const MixOptions options{.mixup_alpha = 1.0, .cutmix_alpha = 1.0};
    constexpr int kDraws = 2'000;
    int mixups = 0;
    double sum = 0.0;
    for (int step = 0; step < kDraws; ++step) {
        const MixPlan plan = plan_mix(options, {.step = step, .height = 32, .width = 32});
        CHECK(plan.lambda >= 0.0);
        CHECK(plan.lambda <= 1.0);
        if (plan.kind == MixKind::mixup) {
            ++mixups;
            sum += plan.lambda;
        }
    }
    CHECK(std::abs(mixups - kDraws / 2) < 150);
    CHECK(sum / mixups == doctest::Approx(0.5).epsilon(0.05));
}

TEST_CASE("cutmix's rectangle is cut at the borders, and the weight is the area that stays") {
    const MixPlan inside = cut_rectangle(0.75, 16, 16, 32, 32);
    const MixPlan corner = cut_rectangle(0.75, 0, 31, 32, 32);
    const MixPlan nothing = cut_rectangle(1.0, 5, 5, 32, 32);

    CHECK(inside.left == 8);
    CHECK(inside.right == 24);
    CHECK(inside.lambda == 0.75);
    CHECK(corner.left == 0);
    CHECK(corner.right == 8);
    CHECK(corner.top == 23);
    CHECK(corner.bottom == 32);
    CHECK(corner.lambda == doctest::Approx(1.0 - 8.0 * 9.0 / 1024.0));
    CHECK(nothing.lambda == 1.0);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
