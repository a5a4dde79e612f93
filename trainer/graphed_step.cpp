#include "trainer/graphed_step.h"

#include <torch/torch.h>

#include <utility>

namespace ddprun::trainer {

GraphedStep::GraphedStep(TrainStep& step, std::unique_ptr<StepGraph> graph, c10::Device device)
    : step_(step),
      graph_(std::move(graph)),
      learning_rate_(torch::zeros({}, at::TensorOptions(at::kFloat).device(device))) {}

bool GraphedStep::fits(const MixedBatch& mixed) const {
    return mixed.images.sizes() == mixed_.images.sizes() &&
           mixed.labels.sizes() == mixed_.labels.sizes() &&
           mixed.labels.scalar_type() == mixed_.labels.scalar_type();
}

BatchResult GraphedStep::run(
    const BatchPlace& batch,
    const at::Tensor& images,
    const at::Tensor& labels,
    double learning_rate
) {
    const MixedBatch mixed = step_.mix_batch(batch, images, labels);
    learning_rate_.fill_(learning_rate);
    if (!mixed_.images.defined()) {
        mixed_ = {mixed.images.clone(), mixed.labels.clone()};
        labels_ = labels.clone();
    } else if (!fits(mixed)) {
        return TrainStep::read_result(
            step_.run_whole(mixed, labels, learning_rate_), images.size(0)
        );
    } else {
        mixed_.images.copy_(mixed.images);
        mixed_.labels.copy_(mixed.labels);
        labels_.copy_(labels);
    }
    run_full();
    return TrainStep::read_result(numbers_, images.size(0));
}

void GraphedStep::run_full() {
    if (warm_up_ < kWarmUpSteps) {
        numbers_ = step_.run_whole(mixed_, labels_, learning_rate_);
        ++warm_up_;
        return;
    }
    if (!recorded_) {
        step_.prepare_for_capture();
        graph_->capture([this] { numbers_ = step_.run_whole(mixed_, labels_, learning_rate_); });
        recorded_ = true;
    }
    graph_->replay();
}

}  // namespace ddprun::trainer
