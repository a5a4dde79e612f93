#include "trainer/sgd.h"

#include "proto/assert.h"

#include <torch/torch.h>

#include <utility>

namespace ddprun::trainer {

Sgd::Sgd(std::vector<at::Tensor> parameters, const SgdOptions& options)
    : parameters_(std::move(parameters)),
      buffers_(parameters_.size()),
      options_(options) {}

void Sgd::step(double learning_rate) {
    const torch::NoGradGuard no_grad;
    // The kernel's is_first_step means "buffer := gradient", and holds for a whole call.
    std::vector<std::size_t> fresh;
    std::vector<std::size_t> others;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (!parameters_[i].grad().defined()) {
            continue;
        }
        if (options_.momentum != 0.0 && !buffers_[i].defined()) {
            buffers_[i] = torch::empty_like(parameters_[i]);
            fresh.push_back(i);
        } else {
            others.push_back(i);
        }
    }
    run_kernel(fresh, true, learning_rate);
    run_kernel(others, false, learning_rate);
}

void Sgd::run_kernel(
    const std::vector<std::size_t>& which, bool is_first_step, double learning_rate
) {
    if (which.empty()) {
        return;
    }
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> buffers;
    for (const std::size_t i : which) {
        parameters.push_back(parameters_[i]);
        gradients.push_back(parameters_[i].grad());
        if (options_.momentum != 0.0) {
            buffers.push_back(buffers_[i]);
        }
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
        is_first_step
    );
}

void Sgd::clear_gradients() {
    for (const auto& parameter : parameters_) {
        parameter.mutable_grad() = at::Tensor();
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
