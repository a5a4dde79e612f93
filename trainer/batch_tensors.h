// Batches of the loader as tensors: views of its memory, valid until the next batch, or copies on
// the GPU.
#pragma once

#include "trainer/data.h"
#include "trainer/loader.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace ddprun::trainer {

struct BatchForm {
    ImageShape shape;
    c10::Device device{c10::kCPU};
    bool channels_last = false;
};

/// [N, 3, H, W] float32.
[[nodiscard]] at::Tensor images_of(Batch& batch, const BatchForm& form);

/// [N] int64.
[[nodiscard]] at::Tensor labels_of(Batch& batch, const BatchForm& form);

}  // namespace ddprun::trainer
