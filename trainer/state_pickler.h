// The tree that data.pkl of a checkpoint holds, with the names of torchvision's reference scripts
// and of torch.optim, and the tensors that it refers to.
#pragma once

#include "trainer/checkpoint.h"
#include "trainer/pickle.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace ddprun::trainer {

struct PickledState {
    PickleValue root;
    std::vector<at::Tensor> storages;  ///< on the CPU, contiguous; the index is the storage's key
};

[[nodiscard]] PickledState pickle_state(const TrainingState& state);

}  // namespace ddprun::trainer
