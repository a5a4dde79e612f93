// Data parallel in one process, as torch.nn.DataParallel does it: each forward pass copies the
// parameters to a replica on each device, gives each a part of the batch, and gathers the outputs
// on the first device. Gradients flow back into the model's own parameters. The baseline that DDP
// is compared with; batch norm's running statistics are those of the first part.
#pragma once

#include "trainer/resnet.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

namespace ddprun::trainer {

class Replicas {
public:
    /// A replica for each of `devices`; the model is on the first.
    Replicas(
        std::shared_ptr<ResNet> model,
        const ResNetOptions& options,
        std::vector<c10::Device> devices
    );

    /// [N, 3, H, W] to [N, num_classes], both on the first device. `around` runs each part's pass
    /// in its thread (autocast is a thread's own).
    [[nodiscard]] at::Tensor forward(
        const at::Tensor& images,
        const std::function<at::Tensor(const std::function<at::Tensor()>&)>& around
    );

private:
    std::shared_ptr<ResNet> model_;
    std::vector<std::shared_ptr<ResNet>> replicas_;  ///< of the devices after the first
    std::vector<c10::Device> devices_;
};

}  // namespace ddprun::trainer
