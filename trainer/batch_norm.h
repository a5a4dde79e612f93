// Batch norm over the pictures of one rank, or of all ranks of a group (SyncBatchNorm): LibTorch's
// own synchronised kernels are CUDA only, this one runs on any device. Parameters, buffers and
// their names are those of BatchNorm2d.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace c10d {
class ProcessGroup;
}

namespace ddprun::trainer {

class NormImpl final : public torch::nn::BatchNorm2dImpl {
public:
    explicit NormImpl(std::int64_t channels);

    /// [N, channels, H, W]. With a group and in training mode a collective, in backward too: all
    /// ranks run the same norms in the same order. The gradients of weight and bias are those of
    /// this rank's pictures, to be averaged as all others.
    [[nodiscard]] at::Tensor forward(const at::Tensor& input);

    /// Null: this rank alone.
    void synchronise(c10::intrusive_ptr<c10d::ProcessGroup> group);

private:
    [[nodiscard]] at::Tensor forward_synchronised(const at::Tensor& input);

    c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

TORCH_MODULE(Norm);

}  // namespace ddprun::trainer
