// A ResNet as a TorchScript file for inference: torch.jit.load in Python or C++ runs it without our
// code. Its state_dict has torchvision's names.
#pragma once

#include "proto/result.h"
#include "trainer/named_tensors.h"
#include "trainer/resnet.h"

#include <filesystem>
#include <string>

namespace ddprun::trainer {

/// The source of its forward method: batch norms as in evaluation, input [N, 3, H, W].
[[nodiscard]] std::string resnet_source(const ResNetShape& shape);

/// `state` are all parameters and buffers of a ResNet of that shape. Atomic. Errors mean that the
/// output can't be written.
[[nodiscard]] Result<void> save_torchscript(
    const NamedTensors& state, const ResNetShape& shape, const std::filesystem::path& path
);

}  // namespace ddprun::trainer
