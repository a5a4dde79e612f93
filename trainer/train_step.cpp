#include "trainer/train_step.h"

#include "trainer/batch_mixing.h"

#include <torch/torch.h>

#include <algorithm>
#include <optional>

namespace ddprun::trainer {
namespace {

std::optional<c10::ScalarType> autocast_type(Precision precision) {
    switch (precision) {
        case Precision::fp32: return std::nullopt;
        case Precision::bf16: return c10::ScalarType::BFloat16;
        case Precision::fp16: return c10::ScalarType::Half;
    }
    return std::nullopt;
}

}  // namespace

at::Tensor count_top(const at::Tensor& outputs, const at::Tensor& labels) {
    constexpr std::int64_t kTop = 5;
    const at::Tensor best = std::get<1>(outputs.topk(std::min(kTop, outputs.size(1)), 1));
    const at::Tensor hits = best.eq(labels.view({-1, 1}));
    return torch::stack({hits.select(1, 0).sum(), hits.sum()}).to(at::kDouble);
}

TrainStep::TrainStep(const Options& options, const StepParts& parts, const StepPlace& place)
    : options_(options),
      parts_(parts),
      place_(place) {}

at::Tensor TrainStep::under_autocast(const std::function<at::Tensor()>& pass) const {
    const Autocast autocast(place_.device.type(), autocast_type(options_.amp));
    return pass();
}

at::Tensor TrainStep::forward(const at::Tensor& images) {
    if (parts_.replicas != nullptr) {
        return parts_.replicas->forward(images, [this](const std::function<at::Tensor()>& pass) {
            return under_autocast(pass);
        });
    }
    return under_autocast([&] { return parts_.model.forward(images); });
}

at::Tensor TrainStep::evaluate(const at::Tensor& images) {
    const torch::NoGradGuard no_grad;
    return under_autocast([&] { return parts_.model.forward(images); }).to(place_.device);
}

BatchResult TrainStep::backward(
    const BatchPlace& batch, const at::Tensor& images, const at::Tensor& labels
) {
    if (batch.part == 0) {
        parts_.optimizer.clear_gradients();
    }
    // Only the step's last batch synchronises: the others' gradients just add up.
    std::optional<DistributedDataParallel::NoSync> no_sync;
    if (parts_.ddp != nullptr && batch.part + 1 < batch.parts) {
        no_sync.emplace(*parts_.ddp);
    }
    const MixPlan plan = plan_mix(
        {.mixup_alpha = options_.mixup_alpha, .cutmix_alpha = options_.cutmix_alpha},
        {.seed = options_.seed,
         .step = batch.step,
         .rank = place_.rank,
         .part = static_cast<std::int32_t>(batch.part),
         .height = images.size(2),
         .width = images.size(3)}
    );
    const MixedBatch mixed = mix(plan, images, labels, place_.num_classes);
    const std::function<at::Tensor()> pass = [&] { return forward(mixed.images); };
    const at::Tensor output = parts_.ddp != nullptr ? parts_.ddp->forward(pass) : pass();
    // The model's second half may be on another device than the labels.
    const at::Tensor targets = mixed.labels.to(output.device());
    const at::Tensor loss = under_autocast([&] {
        return at::cross_entropy_loss(
            output, targets, {}, at::Reduction::Mean, -100, options_.label_smoothing
        );
    });
    at::Tensor scaled = batch.parts > 1 ? loss / static_cast<double>(batch.parts) : loss;
    if (parts_.scaler != nullptr) {
        scaled = parts_.scaler->scale(scaled);
    }
    scaled.backward();
    if (parts_.ddp != nullptr && !no_sync) {
        parts_.ddp->rebuild_buckets();
    }
    // One wait for the device instead of three.
    const at::Tensor numbers =
        torch::cat({
                       loss.detach().to(at::kDouble).view({1}),
                       count_top(output.detach(), labels.to(output.device())),
                   })
            .to(at::kCPU);
    const auto* number = numbers.const_data_ptr<double>();
    return {
        .loss_sum = number[0] * static_cast<double>(images.size(0)),
        .correct1 = static_cast<std::int64_t>(number[1]),
        .correct5 = static_cast<std::int64_t>(number[2])};
}

bool TrainStep::update(double learning_rate, std::int64_t step, bool in_warmup) {
    const auto& parameters = parts_.optimizer.parameters();
    const bool finite = parts_.scaler == nullptr || parts_.scaler->unscale(parameters);
    if (finite) {
        if (options_.clip_grad_norm) {
            torch::nn::utils::clip_grad_norm_(parameters, *options_.clip_grad_norm);
        }
        parts_.optimizer.step(learning_rate);
    }
    if (parts_.scaler != nullptr) {
        parts_.scaler->update();
    }
    if (parts_.ema != nullptr && step % options_.model_ema_steps == 0) {
        if (in_warmup) {
            parts_.ema->restart();
        }
        parts_.ema->update();
        if (in_warmup) {
            parts_.ema->restart();
        }
    }
    return finite;
}

}  // namespace ddprun::trainer
