// Whether and how the pictures of a batch are mixed: mixup (weighted sums) or cutmix (a rectangle
// of another picture), as torchvision.transforms.v2 does it to a batch. What is drawn depends on
// the seed, the step, the rank and the part of the step alone, so that a resumed job mixes what the
// unbroken one would have. Pure.
#pragma once

#include <cstdint>

namespace ddprun::trainer {

struct MixOptions {
    double mixup_alpha = 0.0;   ///< 0: off
    double cutmix_alpha = 0.0;  ///< 0: off; with both, each batch takes one of them by chance
};

enum class MixKind { none, mixup, cutmix };

struct MixPlan {
    MixKind kind = MixKind::none;
    /// Weight of the picture itself; 1 - lambda is that of the one before it in the batch. For
    /// cutmix the share of the area that stays.
    double lambda = 1.0;
    // Cutmix: the rectangle that comes from the other picture, ends excluded.
    std::int64_t top = 0;
    std::int64_t left = 0;
    std::int64_t bottom = 0;
    std::int64_t right = 0;
};

struct MixDraw {
    std::uint64_t seed = 0;
    std::int64_t step = 0;
    std::int32_t rank = 0;
    std::int32_t part = 0;  ///< micro batch of the step
    std::int64_t height = 1;
    std::int64_t width = 1;
};

[[nodiscard]] MixPlan plan_mix(const MixOptions& options, const MixDraw& draw);

/// The rectangle of cutmix around (x, y) for a drawn weight, as torchvision clips it.
[[nodiscard]] MixPlan cut_rectangle(
    double lambda, std::int64_t x, std::int64_t y, std::int64_t height, std::int64_t width
);

}  // namespace ddprun::trainer
