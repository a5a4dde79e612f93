#include "trainer/sgd.h"

#include "proto/assert.h"

#include <torch/torch.h>

#include <utility>

namespace ddprun::trainer {

Sgd::Sgd(std::vector<at::Tensor> parameters, const SgdOptions& options)
    : parameters_(std::move(parameters)), buffers_(parameters_.size()), options_(options) {}

void Sgd::step(double learning_rate) {
    const torch::NoGradGuard no_grad;
    // The kernel's is_first_step means "buffer := gradient" and holds for a whole call.
    step_group(true, learning_rate);
    step_group(false, learning_rate);
}

void Sgd::step_group(bool first, double learning_rate) {
    const bool momentum = options_.momentum != 0.0;
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> buffers;
    std::vector<std::size_t> fresh;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        const at::Tensor& gradient = parameters_[i].grad();
        const bool is_first = momentum && !buffers_[i].defined();
        if (!gradient.defined() || is_first != first) {
            continue;
        }
        parameters.push_back(parameters_[i]);
        gradients.push_back(gradient);
        if (is_first) {
            buffers.push_back(torch::empty_like(parameters_[i]));
            fresh.push_back(i);
        } else if (momentum) {
            buffers.push_back(buffers_[i]);
        }
    }
    if (parameters.empty()) {
        return;
    }
    at::_fused_sgd_(
        parameters,
        gradients,
        buffers,
        options_.weight_decay,
        options_.momentum,
        learning_rate,
        /*dampening=*/0.0,
        options_.nesterov,
        /*maximize=*/false,
        /*is_first_step=*/first
    );
    for (std::size_t i = 0; i < fresh.size(); ++i) {
        buffers_[fresh[i]] = buffers[i];
    }
}

void Sgd::zero_grad() {
    const torch::NoGradGuard no_grad;
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : parameters_) {
        if (parameter.grad().defined()) {
            gradients.push_back(parameter.grad());
        }
    }
    if (!gradients.empty()) {
        at::_foreach_zero_(gradients);
    }
}

void Sgd::restore(std::vector<at::Tensor> momentum_buffers) {
    DDPRUN_ASSERT(momentum_buffers.size() == parameters_.size());
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        buffers_[i] = at::Tensor();
        if (momentum_buffers[i].defined()) {
            // The parameter's strides (channels_last), as the fused kernel wants them.
            buffers_[i] = torch::empty_like(parameters_[i]);
            buffers_[i].copy_(momentum_buffers[i]);
        }
    }
}

}  // namespace ddprun::trainer
