// One step of the training: forward and backward passes of its batches, then the optimizer. What
// the options ask for around it is here: mixing, label smoothing, autocast, scaled loss, clipping,
// accumulation, the moving average. Collective where there is a DDP.
#pragma once

#include "trainer/amp.h"
#include "trainer/batch_mixing.h"
#include "trainer/ddp.h"
#include "trainer/ema.h"
#include "trainer/optimizer.h"
#include "trainer/options.h"
#include "trainer/replicas.h"
#include "trainer/resnet.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>

namespace ddprun::trainer {

struct StepParts {
    ResNet& model;
    Optimizer& optimizer;
    DistributedDataParallel* ddp = nullptr;  ///< null for a worker that is alone
    GradScaler* scaler = nullptr;            ///< null: the loss is not scaled
    Ema* ema = nullptr;                      ///< null: none is kept
    Replicas* replicas = nullptr;            ///< null: the model itself
};

struct StepPlace {
    c10::Device device{c10::kCPU};  ///< of the model's input and loss
    std::int32_t rank = 0;
    std::int64_t num_classes = 0;
};

/// What one batch of a step came to, on this rank.
struct BatchResult {
    double loss_sum = 0.0;  ///< over its pictures
    std::int64_t correct1 = 0;
    std::int64_t correct5 = 0;
};

/// Which batch of which step.
struct BatchPlace {
    std::int64_t step = 0;   ///< from 1
    std::int64_t part = 0;   ///< of the step, from 0
    std::int64_t parts = 1;  ///< batches of the step
};

class TrainStep {
public:
    TrainStep(const Options& options, const StepParts& parts, const StepPlace& place);

    /// Leaves the gradients of the batch in the parameters, added to those of the step's earlier
    /// batches; after the last one they are the mean over all ranks. Images [N, 3, H, W], labels
    /// [N] int64, both on the place's device.
    [[nodiscard]] BatchResult backward(
        const BatchPlace& batch, const at::Tensor& images, const at::Tensor& labels
    );

    /// The optimizer's part, after the step's last batch. False if the gradients were not finite
    /// and the step was left out.
    bool update(double learning_rate);

    /// The moving average's part, after update. `step` from 1; `in_warmup`: the average is only a
    /// copy of the model.
    void average(std::int64_t step, bool in_warmup);

    /// A batch as the options mix it.
    [[nodiscard]] MixedBatch mix_batch(
        const BatchPlace& batch, const at::Tensor& images, const at::Tensor& labels
    ) const;

    /// A step of one batch, forward pass to optimizer, without a look at its numbers, so that it
    /// can be recorded; not with a scaler. `labels` are the unmixed ones, `learning_rate` is []
    /// float32. Gives what read_result takes.
    [[nodiscard]] at::Tensor run_whole(
        const MixedBatch& mixed, const at::Tensor& labels, const at::Tensor& learning_rate
    );

    /// The numbers of a batch of `pictures`; waits for the device.
    [[nodiscard]] static BatchResult read_result(const at::Tensor& numbers, std::int64_t pictures);

    /// Makes the DDP ready for a run_whole that is recorded.
    void prepare_for_capture();

    /// A forward pass under the options' precision, without gradients; for evaluations.
    [[nodiscard]] at::Tensor evaluate(const at::Tensor& images);

private:
    [[nodiscard]] at::Tensor forward(const at::Tensor& images);
    [[nodiscard]] at::Tensor run_passes(
        const MixedBatch& mixed, const at::Tensor& labels, std::int64_t parts, bool synchronise
    );
    void clip_gradients();
    [[nodiscard]] at::Tensor under_autocast(const std::function<at::Tensor()>& pass) const;

    const Options& options_;
    StepParts parts_;
    StepPlace place_;
};

/// How many of [N, C] outputs have the label [N] as their largest, and among their five largest:
/// two numbers in double, where the outputs are.
[[nodiscard]] at::Tensor count_top(const at::Tensor& outputs, const at::Tensor& labels);

}  // namespace ddprun::trainer
