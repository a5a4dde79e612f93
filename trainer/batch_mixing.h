// Mixup and cutmix of a batch's tensors by a plan (mix_plan.h), as torchvision.transforms.v2.
#pragma once

#include "trainer/mix_plan.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ddprun::trainer {

struct MixedBatch {
    at::Tensor images;  ///< [N, 3, H, W]
    at::Tensor labels;  ///< [N] int64, or [N, num_classes] shares after mixing
};

[[nodiscard]] MixedBatch mix(
    const MixPlan& plan,
    const at::Tensor& images,
    const at::Tensor& labels,
    std::int64_t num_classes
);

}  // namespace ddprun::trainer
