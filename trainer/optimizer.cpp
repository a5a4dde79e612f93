#include "trainer/optimizer.h"

#include <torch/torch.h>

#include <algorithm>
#include <utility>

namespace ddprun::trainer {

Optimizer::Optimizer(std::vector<ParameterGroup> groups, const OptimizerOptions& options)
    : groups_(std::move(groups)),
      options_(options) {
    for (const auto& group : groups_) {
        parameters_.insert(parameters_.end(), group.parameters.begin(), group.parameters.end());
    }
    state_.resize(parameters_.size());
}

std::vector<std::string> Optimizer::state_names() const {
    if (options_.kind == OptimizerKind::adamw) {
        return {"step", "exp_avg", "exp_avg_sq"};
    }
    return options_.momentum != 0.0 ? std::vector<std::string>{"momentum_buffer"}
                                    : std::vector<std::string>{};
}

NamedTensors Optimizer::empty_state(const at::Tensor& parameter) const {
    NamedTensors state;
    for (const auto& name : state_names()) {
        // The parameter's strides (channels_last), as the fused kernels want them.
        state.emplace_back(
            name,
            name == "step"
                ? torch::zeros({}, at::TensorOptions(at::kFloat).device(parameter.device()))
                : torch::zeros_like(parameter.detach())
        );
    }
    return state;
}

void Optimizer::step(double learning_rate) {
    step_groups(learning_rate);
}

void Optimizer::step(const at::Tensor& learning_rate) {
    step_groups(learning_rate);
}

template <class Rate>
void Optimizer::step_groups(const Rate& learning_rate) {
    const torch::NoGradGuard no_grad;
    Range range;
    for (const auto& group : groups_) {
        range.begin = range.end;
        range.end = range.begin + group.parameters.size();
        if (options_.kind == OptimizerKind::adamw) {
            step_adamw(range, group, learning_rate);
        } else {
            step_sgd(range, group, learning_rate);
        }
    }
}

template <class Rate>
void Optimizer::step_sgd(
    const Range& range, const ParameterGroup& group, const Rate& learning_rate
) {
    // The kernel's is_first_step means "buffer := gradient", and holds for a whole call.
    std::vector<std::size_t> fresh;
    std::vector<std::size_t> others;
    for (std::size_t i = range.begin; i < range.end; ++i) {
        if (!parameters_[i].grad().defined()) {
            continue;
        }
        if (options_.momentum != 0.0 && state_[i].empty()) {
            state_[i] = empty_state(parameters_[i]);
            fresh.push_back(i);
        } else {
            others.push_back(i);
        }
    }
    const bool lars = options_.kind == OptimizerKind::lars;
    for (const auto* which : {&fresh, &others}) {
        if (which->empty()) {
            continue;
        }
        const bool scale = lars && group.adapt;
        if (scale) {
            const auto gradients = scaled(*which, group);
            for (std::size_t i = 0; i < which->size(); ++i) {
                at::Tensor gradient = parameters_[(*which)[i]].grad();
                gradient.copy_(gradients[i]);
            }
        }
        run_sgd(*which, which == &fresh, scale ? 0.0 : group.weight_decay, learning_rate);
    }
}

/// The gradients of LARS, with the weight decay in them.
std::vector<at::Tensor> Optimizer::scaled(
    const std::vector<std::size_t>& which, const ParameterGroup& group
) const {
    std::vector<at::Tensor> weights;
    std::vector<at::Tensor> gradients;
    for (const std::size_t i : which) {
        weights.push_back(parameters_[i]);
        gradients.push_back(parameters_[i].grad());
    }
    const auto weight_norms = at::_foreach_norm(weights, 2);
    const auto gradient_norms = at::_foreach_norm(gradients, 2);
    auto result = at::_foreach_add(gradients, weights, group.weight_decay);
    for (std::size_t i = 0; i < which.size(); ++i) {
        const at::Tensor& w = weight_norms[i];
        const at::Tensor& g = gradient_norms[i];
        const at::Tensor ratio = options_.trust * w / (g + group.weight_decay * w + options_.eps);
        // A weight or a gradient of zero says nothing about the scale.
        const at::Tensor both = (w > 0).logical_and(g > 0);
        result[i].mul_(torch::where(both, ratio, torch::ones_like(ratio)));
    }
    return result;
}

template <class Rate>
void Optimizer::run_sgd(
    const std::vector<std::size_t>& which,
    bool first,
    double weight_decay,
    const Rate& learning_rate
) {
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> buffers;
    for (const std::size_t i : which) {
        parameters.push_back(parameters_[i]);
        gradients.push_back(parameters_[i].grad());
        if (options_.momentum != 0.0) {
            buffers.push_back(state_[i].front().second);
        }
    }
    at::_fused_sgd_(
        parameters,
        gradients,
        buffers,
        weight_decay,
        options_.momentum,
        learning_rate,
        /*dampening=*/0.0,
        options_.nesterov,
        /*maximize=*/false,
        first
    );
}

template <class Rate>
void Optimizer::step_adamw(
    const Range& range, const ParameterGroup& group, const Rate& learning_rate
) {
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> steps;
    std::vector<at::Tensor> averages;
    std::vector<at::Tensor> squares;
    for (std::size_t i = range.begin; i < range.end; ++i) {
        if (!parameters_[i].grad().defined()) {
            continue;
        }
        if (state_[i].empty()) {
            state_[i] = empty_state(parameters_[i]);
        }
        parameters.push_back(parameters_[i]);
        gradients.push_back(parameters_[i].grad());
        steps.push_back(state_[i][0].second);
        averages.push_back(state_[i][1].second);
        squares.push_back(state_[i][2].second);
    }
    if (parameters.empty()) {
        return;
    }
    at::_foreach_add_(steps, 1);
    at::_fused_adamw_(
        parameters,
        gradients,
        averages,
        squares,
        /*max_exp_avg_sqs=*/{},
        steps,
        learning_rate,
        options_.beta1,
        options_.beta2,
        group.weight_decay,
        options_.eps,
        /*amsgrad=*/false,
        /*maximize=*/false
    );
}

void Optimizer::clear_gradients() {
    for (const auto& parameter : parameters_) {
        parameter.mutable_grad() = at::Tensor();
    }
}

bool Optimizer::restore(const std::vector<NamedTensors>& state) {
    if (state.size() != parameters_.size()) {
        return false;
    }
    const auto names = state_names();
    std::vector<NamedTensors> restored(state.size());
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < state.size(); ++i) {
        // Without momentum now, a buffer of an earlier life has no use.
        if (state[i].empty() || names.empty()) {
            continue;
        }
        restored[i] = empty_state(parameters_[i]);
        for (auto& [name, tensor] : restored[i]) {
            const auto found =
                std::find_if(state[i].begin(), state[i].end(), [&name = name](const auto& entry) {
                    return entry.first == name;
                });
            if (found == state[i].end() || found->second.sizes() != tensor.sizes()) {
                return false;
            }
            tensor.copy_(found->second);
        }
    }
    state_ = std::move(restored);
    return true;
}

}  // namespace ddprun::trainer
