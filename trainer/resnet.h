// ResNet v1.5 (18, 34, 50, 101, 152) as torchvision builds it: the same parameter names, and the
// same order of construction and initialisation, so that after the same torch::manual_seed the
// weights equal those of Python's torchvision.models.resnetXX(num_classes=N) bit by bit. Input is
// [N, 3, H, W], any H and W that survive five halvings; output is [N, num_classes].
#pragma once

#include "proto/result.h"
#include "trainer/batch_norm.h"

#include <torch/nn.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace ddprun::trainer {

/// What tells one ResNet from another.
struct ResNetShape {
    bool bottleneck = false;                  ///< 1x1, 3x3, 1x1 blocks instead of two 3x3
    std::array<std::int64_t, 4> blocks = {};  ///< blocks in each of the four layers
};

/// The shape of "resnet18", "resnet34", "resnet50", "resnet101" or "resnet152".
[[nodiscard]] Result<ResNetShape> resnet_shape(std::string_view name);

struct ResNetOptions {
    ResNetShape shape;
    std::int64_t num_classes = 1000;
    bool zero_init_residual = false;  ///< the last norm of each block starts at zero
};

class ResNet final : public torch::nn::Module {
public:
    /// Draws the weights from torch's default generator.
    explicit ResNet(const ResNetOptions& options);

    [[nodiscard]] at::Tensor forward(at::Tensor images);

    /// Batch norms count the pictures of all ranks of `group` from now on.
    void synchronise_norms(const c10::intrusive_ptr<c10d::ProcessGroup>& group);

    /// Moves the stem and the first two layers to `first` and the rest to `second`; what goes
    /// forward between them is moved, too. Before anything views the parameters.
    void split(c10::Device first, c10::Device second);

private:
    [[nodiscard]] torch::nn::Sequential make_layer(
        const ResNetShape& shape, std::size_t index, std::int64_t& channels
    );
    void initialise(bool zero_init_residual);

    torch::nn::Conv2d conv1_ = nullptr;
    Norm bn1_ = nullptr;
    std::array<torch::nn::Sequential, 4> layers_ = {nullptr, nullptr, nullptr, nullptr};
    torch::nn::Linear fc_ = nullptr;
    std::optional<c10::Device> second_device_;
};

}  // namespace ddprun::trainer
