// Whole steps as one recorded graph (--cuda_graph): forward and backward passes, the sums over the
// ranks and the optimizer become one launch, which pays where a step is short beside the host's
// part of it. The first steps run as usual (cuDNN measures its kernels, the Reducer rebuilds its
// buckets and takes its times), then one is recorded, and from then on it is replayed. A batch of
// another shape, as the last one of an epoch may be, runs as usual. Mixing stays outside, since it
// draws anew for each batch.
//
// Collective as TrainStep is: all ranks have batches of the same shapes, so all record and replay
// in the same steps. One thread.
#pragma once

#include "trainer/gpu_module.h"
#include "trainer/train_step.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace ddprun::trainer {

class GraphedStep {
public:
    /// PyTorch wants eleven passes before a capture with DDP.
    static constexpr int kWarmUpSteps = 12;

    /// `step` must outlive it. `device` is that of the batches.
    GraphedStep(TrainStep& step, std::unique_ptr<StepGraph> graph, c10::Device device);

    /// A step of one batch, as TrainStep::backward and update make it.
    [[nodiscard]] BatchResult run(
        const BatchPlace& batch,
        const at::Tensor& images,
        const at::Tensor& labels,
        double learning_rate
    );

    [[nodiscard]] bool recorded() const { return recorded_; }

private:
    void run_full();
    [[nodiscard]] bool fits(const MixedBatch& mixed) const;

    TrainStep& step_;
    std::unique_ptr<StepGraph> graph_;
    at::Tensor learning_rate_;  ///< [] float32
    MixedBatch mixed_;          ///< what the graph reads; undefined before the first batch
    at::Tensor labels_;
    at::Tensor numbers_;  ///< what it writes
    int warm_up_ = 0;     ///< full steps so far
    bool recorded_ = false;
};

}  // namespace ddprun::trainer
