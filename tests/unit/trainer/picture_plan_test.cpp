#include "trainer/picture_plan.h"

#include <doctest/doctest.h>

#include <cmath>
#include <set>

namespace ddprun::trainer {
namespace {

TEST_SUITE_BEGIN("trainer/picture_plan");

TEST_CASE("an evaluation resizes the shorter side to 256 for 224 and cuts the centre") {
    const PicturePlan wide = centre_plan({500, 375}, 224);
    const PicturePlan tall = centre_plan({375, 500}, 224);

    CHECK(wide.crop == Box{0, 0, 500, 375});
    CHECK(wide.resized == Size{341, 256});
    // (341 - 224) / 2 = 58.5, rounded to even as Python does.
    CHECK(wide.kept == Box{58, 16, 224, 224});
    CHECK(tall.resized == Size{256, 341});
    CHECK(tall.kept == Box{16, 58, 224, 224});
    CHECK(!wide.flip);
    CHECK(centre_plan({10, 10}, 32).resized == Size{37, 37});
}

TEST_CASE("random crops lie in the picture, in torchvision's range of areas and ratios") {
    double area_sum = 0.0;
    double area_min = 1.0;
    double log_ratio_sum = 0.0;
    int flips = 0;
    constexpr int kCount = 20'000;
    for (int i = 0; i < kCount; ++i) {
        SampleRandom random(1, 0, i);
        const PicturePlan plan = random_crop_plan({400, 400}, 224, random);
        const Box& crop = plan.crop;
        REQUIRE(crop.left >= 0);
        REQUIRE(crop.top >= 0);
        REQUIRE(crop.right() <= 400);
        REQUIRE(crop.bottom() <= 400);
        const double area = static_cast<double>(crop.size().pixels()) / 160'000.0;
        const double ratio = static_cast<double>(crop.width) / crop.height;
        REQUIRE(area > 0.079);
        REQUIRE(ratio > 0.74);
        REQUIRE(ratio < 1.35);
        area_sum += area;
        area_min = std::min(area_min, area);
        log_ratio_sum += std::log(ratio);
        flips += plan.flip ? 1 : 0;
        CHECK(plan.resized == Size{224, 224});
    }

    // A crop of more than 3/4 of a square picture fits with some ratios only: below 0.54.
    CHECK(area_sum / kCount == doctest::Approx(0.51).epsilon(0.04));
    CHECK(area_min < 0.081);
    CHECK(std::abs(log_ratio_sum / kCount) < 0.01);
    CHECK(flips == doctest::Approx(kCount / 2.0).epsilon(0.03));
}

TEST_CASE("a picture too long for any random crop gives its centre") {
    SampleRandom random(0, 0, 0);
    const PicturePlan wide = random_crop_plan({1000, 10}, 32, random);
    const PicturePlan tall = random_crop_plan({10, 1000}, 32, random);

    CHECK(wide.crop == Box{493, 0, 13, 10});
    CHECK(tall.crop == Box{0, 493, 10, 13});
}

TEST_CASE("a crop follows from seed, epoch and index, and differs with each") {
    const auto plan = [](std::uint64_t seed, std::int64_t epoch, std::int64_t index) {
        SampleRandom random(seed, epoch, index);
        return random_crop_plan({500, 375}, 224, random);
    };

    CHECK(plan(1, 2, 3) == plan(1, 2, 3));
    CHECK(plan(1, 2, 3) != plan(2, 2, 3));
    CHECK(plan(1, 2, 3) != plan(1, 3, 3));
    CHECK(plan(1, 2, 3) != plan(1, 2, 4));
    CHECK(plan(1, 2, 3) != plan(1, 3, 2));
}

TEST_CASE("small pictures are shifted by each distance up to 4, in both directions") {
    std::set<std::pair<int, int>> seen;
    for (int i = 0; i < 3'000; ++i) {
        SampleRandom random(0, 0, i);
        const ShiftPlan plan = shift_plan(random);
        seen.emplace(plan.left, plan.top);
    }

    CHECK(seen.size() == 81);
    CHECK(*seen.begin() == std::pair{-4, -4});
    CHECK(*seen.rbegin() == std::pair{4, 4});
}

TEST_CASE("packing shrinks to the shorter side and never enlarges") {
    CHECK(shrink_plan({500, 375}, 256).resized == Size{341, 256});
    CHECK(shrink_plan({200, 300}, 256).resized == Size{200, 300});
    CHECK(shrink_plan({500, 375}, 0).resized == Size{500, 375});
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
