// An exponential moving average of a model's parameters and buffers, as torchvision's references
// keep it (torch.optim.swa_utils.AveragedModel with buffers). Batch norm's counter is an integer
// and copied.
#pragma once

#include "trainer/named_tensors.h"

#include <cstdint>

namespace ddprun::trainer {

class Ema {
public:
    /// Begins as a copy of `model`, whose tensors stay the caller's and are read at each update.
    Ema(NamedTensors model, double decay);

    /// Takes the model's present values in; the first update copies them.
    void update();

    /// The next update copies, as the first one: during a warm-up.
    void restart() { updates_ = 0; }

    /// The same names and order as the model.
    [[nodiscard]] const NamedTensors& average() const { return average_; }

    [[nodiscard]] std::int64_t updates() const { return updates_; }

    /// After average()'s tensors have been filled from a checkpoint.
    void set_updates(std::int64_t updates) { updates_ = updates; }

    /// Exchanges the values of model and average: twice is as before. Around an evaluation.
    void swap();

private:
    NamedTensors model_;
    NamedTensors average_;
    double decay_;
    std::int64_t updates_ = 0;
};

/// torchvision's adjustment of the decay to the length of the training and the size of a step.
[[nodiscard]] double adjusted_decay(
    double decay, std::int64_t pictures_per_step, std::int64_t steps_between, double epochs
);

}  // namespace ddprun::trainer
