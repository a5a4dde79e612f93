#include "trainer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ddprun::trainer {
namespace {

double main_rate(const ScheduleOptions& o, std::int64_t done, std::int64_t total) {
    const double share =
        total <= 0 ? 1.0 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
    const auto periods = static_cast<double>(done / std::max<std::int64_t>(o.period, 1));
    switch (o.kind) {
        case ScheduleKind::constant: return o.lr;
        case ScheduleKind::step: return o.lr * std::pow(o.gamma, periods);
        case ScheduleKind::exponential:
            return std::max(o.lr_min, o.lr * std::pow(o.gamma, periods));
        case ScheduleKind::cosine:
            return o.lr_min + (o.lr - o.lr_min) * (1.0 + std::cos(std::numbers::pi * share)) / 2.0;
        case ScheduleKind::polynomial: return o.lr * std::pow(1.0 - share, o.power);
    }
    return o.lr;
}

}  // namespace

double learning_rate(const ScheduleOptions& options, std::int64_t done) {
    const std::int64_t warmup = options.warmup_steps;
    if (done >= warmup) {
        return main_rate(options, done - warmup, options.total_steps - warmup);
    }
    const double share = options.warmup == WarmupKind::constant
                             ? 0.0
                             : static_cast<double>(done) / static_cast<double>(warmup);
    return options.lr * (options.warmup_factor + (1.0 - options.warmup_factor) * share);
}

}  // namespace ddprun::trainer
