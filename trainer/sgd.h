// SGD with momentum, weight decay and nesterov as torch.optim.SGD computes it, by one fused kernel
// over all parameters. Its state is one momentum buffer a parameter, in plain tensors that a
// checkpoint stores as torch.optim does.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace ddprun::trainer {

struct SgdOptions {
    double momentum = 0.0;
    double weight_decay = 0.0;
    bool nesterov = false;
};

class Sgd {
public:
    /// `parameters` in the order in which the checkpoint numbers them.
    Sgd(std::vector<at::Tensor> parameters, const SgdOptions& options);

    /// One step with the gradients that the parameters hold; those without one are left alone.
    void step(double learning_rate);

    /// Drops the gradients, so that the next backward pass writes them instead of adding to zeros.
    void clear_gradients();

    [[nodiscard]] const SgdOptions& options() const { return options_; }

    [[nodiscard]] const std::vector<at::Tensor>& parameters() const { return parameters_; }

    /// One tensor a parameter; undefined where there is none yet (before the first step, or without
    /// momentum).
    [[nodiscard]] const std::vector<at::Tensor>& momentum_buffers() const { return buffers_; }

    /// Takes a checkpoint's buffers over; the same count and shapes as the parameters, undefined
    /// where there is none.
    void restore(std::vector<at::Tensor> momentum_buffers);

private:
    void run_kernel(
        const std::vector<std::size_t>& which, bool is_first_step, double learning_rate
    );

    std::vector<at::Tensor> parameters_;
    std::vector<at::Tensor> buffers_;
    SgdOptions options_;
};

}  // namespace ddprun::trainer
