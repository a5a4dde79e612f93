#include "trainer/picture_plan.h"

#include "proto/assert.h"

#include <algorithm>
#include <cmath>

namespace ddprun::trainer {

namespace {

constexpr double kAreaMin = 0.08;
constexpr double kAreaMax = 1.0;
constexpr double kRatioMin = 3.0 / 4.0;
constexpr double kRatioMax = 4.0 / 3.0;
constexpr int kTries = 10;
constexpr double kFlipShare = 0.5;
constexpr int kShiftMax = 4;
/// torchvision's recipes resize to 256 for pictures of 224.
constexpr double kResizeRatio = 256.0 / 224.0;

/// Half to even, as Python's round().
int round_to_int(double value) {
    return static_cast<int>(std::nearbyint(value));
}

/// Where no random crop fits: the centre, as little cut as the ratios allow.
Box central_box(Size picture) {
    const double ratio = static_cast<double>(picture.width) / picture.height;
    int width = picture.width;
    int height = picture.height;
    if (ratio < kRatioMin) {
        height = round_to_int(width / kRatioMin);
    } else if (ratio > kRatioMax) {
        width = round_to_int(height * kRatioMax);
    }
    return {(picture.width - width) / 2, (picture.height - height) / 2, width, height};
}

Box random_box(Size picture, SampleRandom& random) {
    const double area = static_cast<double>(picture.width) * picture.height;
    for (int i = 0; i < kTries; ++i) {
        const double target = area * random.uniform(kAreaMin, kAreaMax);
        const double ratio = std::exp(random.uniform(std::log(kRatioMin), std::log(kRatioMax)));
        const int width = round_to_int(std::sqrt(target * ratio));
        const int height = round_to_int(std::sqrt(target / ratio));
        if (width > 0 && width <= picture.width && height > 0 && height <= picture.height) {
            const int top = random.below(picture.height - height + 1);
            const int left = random.below(picture.width - width + 1);
            return {left, top, width, height};
        }
    }
    return central_box(picture);
}

}  // namespace

Size resized_to(Size picture, int short_side) {
    DDPRUN_ASSERT(picture.width >= 1 && picture.height >= 1 && short_side >= 1);
    const auto other = [short_side](int longer, int shorter) {
        // int(size * long / short): an exact product, one division, cut off.
        return static_cast<int>(
            static_cast<double>(static_cast<std::int64_t>(short_side) * longer) / shorter
        );
    };
    if (picture.width <= picture.height) {
        return {short_side, other(picture.height, picture.width)};
    }
    return {other(picture.width, picture.height), short_side};
}

PicturePlan centre_plan(Size picture, int image_size) {
    const Size resized = resized_to(picture, static_cast<int>(image_size * kResizeRatio + 0.5));
    return {
        .crop = whole(picture),
        .resized = resized,
        .kept =
            {round_to_int((resized.width - image_size) / 2.0),
             round_to_int((resized.height - image_size) / 2.0),
             image_size,
             image_size},
        .flip = false,
    };
}

PicturePlan random_crop_plan(Size picture, int image_size, SampleRandom& random) {
    const Box crop = random_box(picture, random);
    const Size size{image_size, image_size};
    return {crop, size, whole(size), random.uniform() < kFlipShare};
}

PicturePlan shrink_plan(Size picture, int short_side) {
    Size size = picture;
    if (short_side > 0 && short_side < std::min(picture.width, picture.height)) {
        size = resized_to(picture, short_side);
    }
    return {whole(picture), size, whole(size), false};
}

ShiftPlan shift_plan(SampleRandom& random) {
    const int top = random.below(2 * kShiftMax + 1);
    const int left = random.below(2 * kShiftMax + 1);
    return {kShiftMax - left, kShiftMax - top, random.uniform() < kFlipShare};
}

}  // namespace ddprun::trainer
