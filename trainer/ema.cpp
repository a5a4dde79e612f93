#include "trainer/ema.h"

#include <torch/torch.h>

#include <algorithm>
#include <utility>

namespace ddprun::trainer {

Ema::Ema(NamedTensors model, double decay) : model_(std::move(model)), decay_(decay) {
    for (const auto& [name, tensor] : model_) {
        average_.emplace_back(name, tensor.detach().clone());
    }
}

void Ema::update() {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < model_.size(); ++i) {
        at::Tensor& average = average_[i].second;
        const at::Tensor value = model_[i].second.detach();
        if (updates_ == 0 || !average.is_floating_point()) {
            average.copy_(value);
        } else {
            average.mul_(decay_).add_(value * (1.0 - decay_));
        }
    }
    ++updates_;
}

void Ema::swap() {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < model_.size(); ++i) {
        at::Tensor model = model_[i].second.detach();
        const at::Tensor kept = model.clone();
        model.copy_(average_[i].second);
        average_[i].second.copy_(kept);
    }
}

double adjusted_decay(
    double decay, std::int64_t pictures_per_step, std::int64_t steps_between, double epochs
) {
    const double adjust = static_cast<double>(pictures_per_step) *
                          static_cast<double>(steps_between) / std::max(epochs, 1.0);
    return 1.0 - std::min(1.0, (1.0 - decay) * adjust);
}

}  // namespace ddprun::trainer
