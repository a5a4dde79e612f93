#include "trainer/train_step.h"

#include "trainer/mix_plan.h"
#include "trainer/trace_range.h"

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

MixedBatch TrainStep::mix_batch(
    const BatchPlace& batch, const at::Tensor& images, const at::Tensor& labels
) const {
    const MixPlan plan = plan_mix(
        {.mixup_alpha = options_.mixup_alpha, .cutmix_alpha = options_.cutmix_alpha},
        {.seed = options_.seed,
         .step = batch.step,
         .rank = place_.rank,
         .part = static_cast<std::int32_t>(batch.part),
         .height = images.size(2),
         .width = images.size(3)}
    );
    return mix(plan, images, labels, place_.num_classes);
}

/// Forward and backward pass of one of a step's `parts` batches: its loss and counts, on the
/// device.
at::Tensor TrainStep::run_passes(
    const MixedBatch& mixed, const at::Tensor& labels, std::int64_t parts, bool synchronise
) {
    const std::function<at::Tensor()> pass = [&] { return forward(mixed.images); };
    at::Tensor output;
    at::Tensor loss;
    {
        const TraceRange range("forward");
        output = parts_.ddp != nullptr ? parts_.ddp->forward(pass) : pass();
        // The model's second half may be on another device than the labels.
        const at::Tensor targets = mixed.labels.to(output.device());
        loss = under_autocast([&] {
            return at::cross_entropy_loss(
                output, targets, {}, at::Reduction::Mean, -100, options_.label_smoothing
            );
        });
    }
    at::Tensor scaled = parts > 1 ? loss / static_cast<double>(parts) : loss;
    if (parts_.scaler != nullptr) {
        scaled = parts_.scaler->scale(scaled);
    }
    const TraceRange range("backward");
    scaled.backward();
    if (parts_.ddp != nullptr && synchronise) {
        parts_.ddp->rebuild_buckets();
    }
    // One wait for the device instead of three.
    return torch::cat({
        loss.detach().to(at::kDouble).view({1}),
        count_top(output.detach(), labels.to(output.device())),
    });
}

BatchResult TrainStep::read_result(const at::Tensor& numbers, std::int64_t pictures) {
    const at::Tensor read = numbers.to(at::kCPU);
    const auto* number = read.const_data_ptr<double>();
    return {
        .loss_sum = number[0] * static_cast<double>(pictures),
        .correct1 = static_cast<std::int64_t>(number[1]),
        .correct5 = static_cast<std::int64_t>(number[2])};
}

BatchResult TrainStep::backward(
    const BatchPlace& batch, const at::Tensor& images, const at::Tensor& labels
) {
    if (batch.part == 0) {
        parts_.optimizer.clear_gradients();
    }
    // Only the step's last batch synchronises: the others' gradients just add up.
    const bool last = batch.part + 1 == batch.parts;
    std::optional<DistributedDataParallel::NoSync> no_sync;
    if (parts_.ddp != nullptr && !last) {
        no_sync.emplace(*parts_.ddp);
    }
    const MixedBatch mixed = mix_batch(batch, images, labels);
    return read_result(run_passes(mixed, labels, batch.parts, last), images.size(0));
}

/// As torch.nn.utils.clip_grad_norm_ does it, all of it on the device.
void TrainStep::clip_gradients() {
    const torch::NoGradGuard no_grad;
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : parts_.optimizer.parameters()) {
        if (parameter.grad().defined()) {
            gradients.push_back(parameter.grad());
        }
    }
    if (!options_.clip_grad_norm || gradients.empty()) {
        return;
    }
    constexpr double kEpsilon = 1e-6;
    std::vector<at::Tensor> norms = at::_foreach_norm(gradients, 2);
    for (auto& norm : norms) {
        norm = norm.to(norms.front().device());  // the model may be on two
    }
    const at::Tensor total = torch::stack(norms).norm(2);
    const at::Tensor factor = (*options_.clip_grad_norm / (total + kEpsilon)).clamp_max(1.0);
    if (gradients.front().device() == gradients.back().device()) {
        at::_foreach_mul_(gradients, factor);
        return;
    }
    for (auto& gradient : gradients) {
        gradient.mul_(factor.to(gradient.device()));
    }
}

bool TrainStep::update(double learning_rate) {
    const TraceRange range("update");
    const bool finite =
        parts_.scaler == nullptr || parts_.scaler->unscale(parts_.optimizer.parameters());
    if (finite) {
        clip_gradients();
        parts_.optimizer.step(learning_rate);
    }
    if (parts_.scaler != nullptr) {
        parts_.scaler->update();
    }
    return finite;
}

at::Tensor TrainStep::run_whole(
    const MixedBatch& mixed, const at::Tensor& labels, const at::Tensor& learning_rate
) {
    parts_.optimizer.clear_gradients();
    at::Tensor numbers = run_passes(mixed, labels, /*parts=*/1, /*synchronise=*/true);
    const TraceRange range("update");
    clip_gradients();
    parts_.optimizer.step(learning_rate);
    return numbers;
}

void TrainStep::prepare_for_capture() {
    if (parts_.ddp != nullptr) {
        parts_.ddp->prepare_for_capture();
    }
}

void TrainStep::average(std::int64_t step, bool in_warmup) {
    if (parts_.ema == nullptr || step % options_.model_ema_steps != 0) {
        return;
    }
    if (in_warmup) {
        parts_.ema->restart();
    }
    parts_.ema->update();
    if (in_warmup) {
        parts_.ema->restart();
    }
}

}  // namespace ddprun::trainer
