// What becomes of a picture: which part is cut out, to what it is resized, what of that is kept,
// and whether it is mirrored. torchvision's RandomResizedCrop, RandomHorizontalFlip, Resize,
// CenterCrop and RandomCrop as plain boxes. Pure.
#pragma once

#include "trainer/picture.h"
#include "trainer/sample_random.h"

namespace ddprun::trainer {

struct PicturePlan {
    Box crop;      ///< of the picture
    Size resized;  ///< what the crop becomes
    Box kept;      ///< of the resized
    bool flip = false;

    friend bool operator==(const PicturePlan&, const PicturePlan&) = default;
};

/// Resize(shorter side to image_size x 256 / 224), CenterCrop(image_size).
[[nodiscard]] PicturePlan centre_plan(Size picture, int image_size);

/// RandomResizedCrop(image_size) with its default areas (0.08 to 1) and ratios (3/4 to 4/3), then a
/// flip of every second picture.
[[nodiscard]] PicturePlan random_crop_plan(Size picture, int image_size, SampleRandom& random);

/// The whole picture, made smaller until its shorter side is `short_side`; one that is smaller
/// already, and any with 0, stays as it is.
[[nodiscard]] PicturePlan shrink_plan(Size picture, int short_side);

/// The size that torchvision's Resize(short_side) gives.
[[nodiscard]] Size resized_to(Size picture, int short_side);

/// RandomCrop(same size, padding=4) and a flip, as small pictures (CIFAR) are augmented.
struct ShiftPlan {
    int left = 0;  ///< the picture's place in the output: -4 ... 4
    int top = 0;
    bool flip = false;
};

[[nodiscard]] ShiftPlan shift_plan(SampleRandom& random);

}  // namespace ddprun::trainer
