#include "trainer/replicas.h"

#include <torch/torch.h>

#include <exception>
#include <thread>
#include <utility>

namespace ddprun::trainer {
namespace {

/// Lets the parameters of `to` be copies of those of `from` that pass gradients on, and its buffers
/// plain copies.
void share_parameters(ResNet& from, ResNet& to, c10::Device device) {
    const auto sources = from.modules(/*include_self=*/false);
    const auto targets = to.modules(/*include_self=*/false);
    for (std::size_t i = 0; i < sources.size(); ++i) {
        if (const auto* conv = sources[i]->as<torch::nn::Conv2dImpl>()) {
            targets[i]->as<torch::nn::Conv2dImpl>()->weight = conv->weight.to(device);
        } else if (const auto* linear = sources[i]->as<torch::nn::LinearImpl>()) {
            auto* target = targets[i]->as<torch::nn::LinearImpl>();
            target->weight = linear->weight.to(device);
            target->bias = linear->bias.to(device);
        } else if (const auto* norm = sources[i]->as<NormImpl>()) {
            auto* target = targets[i]->as<NormImpl>();
            target->weight = norm->weight.to(device);
            target->bias = norm->bias.to(device);
            target->running_mean = norm->running_mean.detach().to(device, false, /*copy=*/true);
            target->running_var = norm->running_var.detach().to(device, false, /*copy=*/true);
        }
    }
}

}  // namespace

Replicas::Replicas(
    std::shared_ptr<ResNet> model, const ResNetOptions& options, std::vector<c10::Device> devices
)
    : model_(std::move(model)),
      devices_(std::move(devices)) {
    for (std::size_t i = 1; i < devices_.size(); ++i) {
        replicas_.push_back(std::make_shared<ResNet>(options));
        replicas_.back()->to(devices_[i]);
    }
}

at::Tensor Replicas::forward(
    const at::Tensor& images,
    const std::function<at::Tensor(const std::function<at::Tensor()>&)>& around
) {
    const auto parts = images.chunk(static_cast<std::int64_t>(devices_.size()));
    std::vector<at::Tensor> outputs(parts.size());
    std::vector<std::exception_ptr> failures(parts.size());
    const auto run = [&](std::size_t i, ResNet& model) {
        try {
            const at::Tensor part = parts[i].to(devices_[i]);
            outputs[i] = around([&] { return model.forward(part); }).to(devices_.front());
        } catch (...) {
            failures[i] = std::current_exception();
        }
    };
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 1; i < parts.size(); ++i) {
            ResNet& replica = *replicas_[i - 1];
            replica.train(model_->is_training());
            share_parameters(*model_, replica, devices_[i]);
            threads.emplace_back([&run, &replica, i] { run(i, replica); });
        }
        run(0, *model_);
    }
    for (const auto& failure : failures) {
        if (failure) {
            std::rethrow_exception(failure);
        }
    }
    return torch::cat(outputs);
}

}  // namespace ddprun::trainer
