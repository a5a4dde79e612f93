// What rank 0 tells while it trains: progress on stdout, --log_json, --tensorboard.
#pragma once

#include "proto/log.h"
#include "trainer/event_file.h"
#include "trainer/gpu_monitor.h"
#include "trainer/options.h"
#include "trainer/outcome.h"
#include "trainer/progress.h"
#include "trainer/step_log.h"
#include "trainer/worker_place.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace ddprun::trainer {

class Reporter {
public:
    /// Opens what `options` name. GPUs that can't be watched are left out.
    [[nodiscard]] static Outcome<std::unique_ptr<Reporter>> open(
        const Options& options, const WorkerPlace& place
    );

    Reporter(const Reporter&) = delete;
    Reporter& operator=(const Reporter&) = delete;
    ~Reporter() = default;

    /// Whether the step's progress line will be shown: then it is worth to find out more about it.
    [[nodiscard]] bool shows(std::int64_t step, std::int64_t steps) const;

    [[nodiscard]] Outcome<void> step(
        const ProgressPoint& point, std::chrono::steady_clock::time_point now
    );

    [[nodiscard]] Outcome<void> evaluation(EvaluationRecord record, std::int64_t step);

    /// Present use of the GPUs, as a progress line has it; empty without --gpu_monitor.
    [[nodiscard]] std::string gpu_use() const;

    /// Any other line.
    void line(const std::string& text) { printer_.line(text); }

    /// Nothing more will come.
    void finish() { printer_.finish(); }

private:
    Reporter(const Options& options, const WorkerPlace& place, const ProgressOptions& progress);

    std::int64_t round_;
    std::int64_t log_interval_;
    ProgressPrinter printer_;
    std::optional<StepLog> step_log_;
    std::optional<EventFile> events_;
    std::unique_ptr<GpuMonitor> gpus_;
};

}  // namespace ddprun::trainer
