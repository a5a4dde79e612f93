#include "trainer/reporter.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>
#include <vector>

namespace ddprun::trainer {
namespace {

void add(std::vector<Scalar>& scalars, std::string tag, const std::optional<double>& value) {
    if (value) {
        scalars.push_back({std::move(tag), *value});
    }
}

}  // namespace

Reporter::Reporter(
    const Options& options, const WorkerPlace& place, const ProgressOptions& progress
)
    : round_(place.round),
      log_interval_(options.log_interval),
      printer_(stdout, progress) {}

Outcome<std::unique_ptr<Reporter>> Reporter::open(
    const Options& options, const WorkerPlace& place
) {
    ProgressOptions progress;
    progress.log_interval = options.log_interval;
    // Under ddprun stdout is a pipe, and the launcher says how wide its terminal is.
    progress.columns = place.terminal_columns ? place.terminal_columns : terminal_columns(1);
    std::unique_ptr<Reporter> reporter(new Reporter(options, place, progress));
    if (!options.log_json.empty()) {
        auto step_log = StepLog::open(options.log_json);
        if (!step_log) {
            return output_failed(step_log.error());
        }
        reporter->step_log_.emplace(std::move(*step_log));
    }
    if (!options.tensorboard.empty()) {
        auto events = EventFile::create(options.tensorboard);
        if (!events) {
            return output_failed(events.error());
        }
        reporter->events_.emplace(std::move(*events));
    }
    if (options.gpu_monitor) {
        // The check at the start has told where it can't be had.
        if (auto monitor = GpuMonitor::open()) {
            reporter->gpus_ = std::move(*monitor);
        }
    }
    return reporter;
}

std::string Reporter::gpu_use() const {
    return gpus_ ? describe_use(gpus_->read()) : std::string{};
}

bool Reporter::shows(std::int64_t step, std::int64_t steps) const {
    return step % log_interval_ == 0 || step == steps;
}

Outcome<void> Reporter::step(
    const ProgressPoint& point, std::chrono::steady_clock::time_point now
) {
    printer_.step(point, now);
    if (step_log_) {
        auto written = step_log_->write(StepRecord{
            .step = point.step,
            .epoch = point.epoch,
            .loss = point.loss,
            .lr = point.lr,
            .images_per_second = point.images_per_second,
            .round = round_,
            .data_share = point.data_share.value_or(0.0),
        });
        if (!written) {
            return output_failed(written.error());
        }
    }
    if (events_) {
        std::vector<Scalar> scalars;
        add(scalars, "train/loss", point.loss);
        add(scalars, "train/lr", point.lr);
        add(scalars, "train/images_per_second", point.images_per_second);
        add(scalars, "train/top1", point.top1);
        add(scalars, "train/top5", point.top5);
        add(scalars, "time/data_share", point.data_share);
        add(scalars, "time/communication_share", point.communication_share);
        add(scalars, "time/overlap_share", point.overlap_share);
        add(scalars, "memory/resident_mb", point.memory_mb);
        if (auto written = events_->write(point.step, scalars); !written) {
            return output_failed(written.error());
        }
    }
    return {};
}

Outcome<void> Reporter::evaluation(EvaluationRecord record, std::int64_t step) {
    record.round = round_;
    std::string text = fmt::format(
        "epoch {}  accuracy {:.2f} % of {} test pictures, top 5 {:.2f} %",
        record.epoch + 1,
        record.top1,
        record.count,
        record.top5
    );
    if (record.ema_top1 && record.ema_top5) {
        text += fmt::format(
            "; of the average {:.2f} %, top 5 {:.2f} %", *record.ema_top1, *record.ema_top5
        );
    }
    printer_.line(text);
    if (step_log_) {
        if (auto written = step_log_->write(record); !written) {
            return output_failed(written.error());
        }
    }
    if (events_) {
        std::vector<Scalar> scalars;
        add(scalars, "test/top1", record.top1);
        add(scalars, "test/top5", record.top5);
        add(scalars, "test/ema_top1", record.ema_top1);
        add(scalars, "test/ema_top5", record.ema_top5);
        if (auto written = events_->write(step, scalars); !written) {
            return output_failed(written.error());
        }
    }
    return {};
}

}  // namespace ddprun::trainer
