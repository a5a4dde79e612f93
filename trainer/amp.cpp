#include "trainer/amp.h"

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

namespace ddprun::trainer {

Autocast::Autocast(c10::DeviceType device, std::optional<c10::ScalarType> type)
    : device_(device),
      active_(type.has_value()) {
    if (!active_) {
        return;
    }
    was_enabled_ = at::autocast::is_autocast_enabled(device_);
    before_ = at::autocast::get_autocast_dtype(device_);
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::set_autocast_dtype(device_, *type);
    at::autocast::increment_nesting();
}

Autocast::~Autocast() {
    if (!active_) {
        return;
    }
    // Casts of weights are cached for a forward pass; the next step has other weights.
    if (at::autocast::decrement_nesting() == 0) {
        at::autocast::clear_cache();
    }
    at::autocast::set_autocast_enabled(device_, was_enabled_);
    at::autocast::set_autocast_dtype(device_, before_);
}

bool GradScaler::unscale(const std::vector<at::Tensor>& parameters) {
    const torch::NoGradGuard no_grad;
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : parameters) {
        if (parameter.grad().defined()) {
            gradients.push_back(parameter.grad());
        }
    }
    finite_ = true;
    if (gradients.empty()) {
        return true;
    }
    const auto options = at::TensorOptions(at::kFloat).device(gradients.front().device());
    at::Tensor found = torch::zeros({1}, options);
    // The inverse in double, then rounded once, as torch.amp does.
    const at::Tensor inverse =
        torch::full({1}, 1.0 / state_.scale, options.dtype(at::kDouble)).to(at::kFloat);
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse);
    finite_ = found.item<float>() == 0.0F;
    return finite_;
}

void GradScaler::update() {
    if (!finite_) {
        state_.scale *= state_.backoff_factor;
        state_.growth_tracker = 0;
        return;
    }
    if (++state_.growth_tracker == state_.growth_interval) {
        state_.scale *= state_.growth_factor;
        state_.growth_tracker = 0;
    }
}

}  // namespace ddprun::trainer
