// Tensors by name, as a state_dict has them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace ddprun::trainer {

/// Name and tensor, in the module's order.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

}  // namespace ddprun::trainer
