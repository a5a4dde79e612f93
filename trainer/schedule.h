// The learning rate of each step: a warm-up, then a constant, step, exponential, cosine or
// polynomial schedule, counted in steps. The values are those of torch.optim.lr_scheduler's
// SequentialLR of LinearLR (or ConstantLR) and StepLR, ExponentialLR, CosineAnnealingLR or
// PolynomialLR, stepped once a training step; from its closed forms, so that any step can be asked
// for. Pure.
#pragma once

#include <cstdint>

namespace ddprun::trainer {

enum class ScheduleKind { constant, step, exponential, cosine, polynomial };

enum class WarmupKind { linear, constant };

struct ScheduleOptions {
    ScheduleKind kind = ScheduleKind::constant;
    double lr = 0.1;      ///< after the warm-up
    double lr_min = 0.0;  ///< cosine: where it ends; exponential: never below
    double gamma = 0.1;   ///< step and exponential: factor
    double power = 2.0;   ///< polynomial
    /// Steps after which the factor is applied once more (step, exponential); at least 1.
    std::int64_t period = 1;
    std::int64_t total_steps = 1;  ///< of the job, the warm-up included
    std::int64_t warmup_steps = 0;
    WarmupKind warmup = WarmupKind::linear;
    double warmup_factor = 0.01;  ///< of lr, where the warm-up begins (linear) or what it is
};

/// The rate for the step after `done` steps of the job.
[[nodiscard]] double learning_rate(const ScheduleOptions& options, std::int64_t done);

}  // namespace ddprun::trainer
