#include "trainer/atomic_file.h"
#include "trainer/memory_use.h"
#include "trainer/stop_signal.h"
#include "trainer/training.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <array>
#include <csignal>
#include <sstream>
#include <string>
#include <vector>

namespace ddprun::trainer {
namespace {

/// What the ranks add up after a step, in this order.
enum Sum : std::int64_t {
    kLoss,
    kPictures,
    kCorrect1,
    kCorrect5,
    kDataSeconds,
    kTerminate,
    kInterrupt,
    kSaveWish,
    kSumCount,
};

std::int64_t bytes_of(const NamedTensors& tensors) {
    std::int64_t bytes = 0;
    for (const auto& [name, tensor] : tensors) {
        bytes += static_cast<std::int64_t>(tensor.nbytes());
    }
    return bytes;
}

double megabytes(std::int64_t bytes) {
    constexpr double kMegabyte = 1e6;
    return static_cast<double>(bytes) / kMegabyte;
}

}  // namespace

/// Adds up what the ranks have to tell each other after a step, and reports it.
Outcome<void> Training::after_step(StepSums& sums, StepClock& clock, double lr) {
    const int signal = stop_signal::pending();
    std::array<double, kSumCount> mine{};
    mine[kLoss] = sums.loss;
    mine[kPictures] = static_cast<double>(sums.load.pictures);
    mine[kCorrect1] = sums.correct1;
    mine[kCorrect5] = sums.correct5;
    mine[kDataSeconds] = sums.load.data;
    mine[kTerminate] = signal == SIGTERM ? 1.0 : 0.0;
    mine[kInterrupt] = signal == SIGINT ? 1.0 : 0.0;
    mine[kSaveWish] = stop_signal::take_save_wish() ? 1.0 : 0.0;
    at::Tensor all = torch::from_blob(mine.data(), {kSumCount}, at::kDouble).clone();
    all_reduce_sum(group_.group, all);
    clock.lap(sums.load.wait);
    const auto* sum = all.const_data_ptr<double>();
    agree_to_stop(sum[kTerminate] > 0.0, sum[kInterrupt] > 0.0);
    save_wished_ = save_wished_ || sum[kSaveWish] > 0.0;
    load_.pictures += sums.load.pictures;
    load_.data += sums.load.data;
    load_.compute += sums.load.compute;
    load_.update += sums.load.update;
    load_.wait += sums.load.wait;
    if (auto ended = end_profile(); !ended) {
        return ended;
    }
    if (memory_saver_ && memory_saver_->idle()) {
        if (auto begun = memory_saver_->begin(state(), false); !begun) {
            return output_failed(begun.error());
        }
    }
    if (!reporter_) {
        return {};
    }
    constexpr double kPerCent = 100.0;
    const double seconds = clock.total();
    ProgressPoint point{
        .epoch = epoch(),
        .epochs = (total_steps_ + schedule_.shift + steps_per_epoch_ - 1) / steps_per_epoch_,
        .step = position_.step,
        .steps = total_steps_,
        .loss = sum[kLoss] / sum[kPictures],
        .images_per_second = sum[kPictures] / seconds,
        .lr = lr,
        .top1 = kPerCent * sum[kCorrect1] / sum[kPictures],
        .top5 = kPerCent * sum[kCorrect5] / sum[kPictures],
        .data_share = sum[kDataSeconds] / (seconds * place_.world_size),
    };
    if (reporter_->shows(position_.step, total_steps_)) {
        add_details(point);
    }
    return reporter_->step(point, clock.last());
}

/// What costs a moment to find out.
void Training::add_details(ProgressPoint& point) const {
    constexpr double kKilobytes = 1e3;
    point.memory_mb = static_cast<double>(memory_use().resident_kb) / kKilobytes;
    point.more = reporter_->gpu_use();
    if (!ddp_) {
        return;
    }
    const auto timing = ddp_->timing();
    const double step = timing.forward + timing.backward;
    if (step > 0.0 && timing.communication > 0.0) {
        point.communication_share = timing.communication / step;
        point.overlap_share = std::min(1.0, timing.overlap / timing.communication);
    }
}

/// How much of an epoch this rank has waited for its loader threads.
void Training::report_loading(const Loader& loader, Clock::duration epoch_time) {
    if (!reporter_) {
        return;
    }
    constexpr double kPerCent = 100.0;
    const std::chrono::duration<double> waited = loader.waited();
    const std::chrono::duration<double> whole = epoch_time;
    reporter_->line(fmt::format(
        "epoch {}  {:.1f} % of the time spent waiting for data{}",
        epoch() + 1,
        kPerCent * waited / whole,
        bad_train_->count() > 0 ? fmt::format(", {} broken pictures skipped", bad_train_->count())
                                : ""
    ));
}

void Training::begin_profile() {
    if (options_.profile && position_.step - first_step_ + 1 == options_.profile->first) {
        profiler_ = std::make_unique<TraceProfiler>(device_.device.is_cuda());
        was_traced_ = true;
    }
}

Outcome<void> Training::end_profile() {
    const bool last =
        options_.profile && (position_.step - first_step_ == options_.profile->last || over());
    if (!profiler_ || !last) {
        return {};
    }
    const auto path =
        std::filesystem::path(options_.profile_dir) / fmt::format("trace-rank{}.json", place_.rank);
    const auto saved = profiler_->save(path);
    profiler_.reset();
    if (!saved) {
        return output_failed(saved.error());
    }
    if (reporter_) {
        reporter_->line(fmt::format("wrote {}", path.string()));
    }
    return {};
}

Outcome<void> Training::report_end() {
    auto reported = report_load();
    if (options_.memory_summary) {
        report_memory();
    }
    if (reporter_ && options_.profile && !was_traced_) {
        reporter_->line(fmt::format(
            "no trace was written: --profile begins with step {} of a run, this one had {}",
            options_.profile->first,
            position_.step - first_step_
        ));
    }
    if (reporter_) {
        reporter_->finish();
    }
    return reported;
}

/// Collective: each rank's load of this life, as a table and a picture.
Outcome<void> Training::report_load() {
    constexpr std::int64_t kFields = 5;
    const std::int64_t ranks = place_.world_size;
    at::Tensor all = torch::zeros({ranks, kFields}, at::kDouble);
    const std::array<double, kFields> mine{
        static_cast<double>(load_.pictures), load_.data, load_.compute, load_.update, load_.wait};
    for (std::int64_t i = 0; i < kFields; ++i) {
        all[place_.rank][i] = mine[static_cast<std::size_t>(i)];
    }
    all_reduce_sum(group_.group, all);
    if (!reporter_ || position_.step == first_step_) {
        return {};
    }
    std::vector<RankLoad> loads;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const auto* row = all[rank].const_data_ptr<double>();
        loads.push_back({static_cast<std::int64_t>(row[0]), row[1], row[2], row[3], row[4]});
    }
    if (ranks > 1) {
        std::string table = load_table(loads);
        table.pop_back();
        reporter_->line(table);
    }
    if (options_.load_svg.empty()) {
        return {};
    }
    auto file = AtomicFile::create(options_.load_svg);
    if (!file) {
        return output_failed(file.error());
    }
    auto written = file->write(load_picture(loads));
    if (written) {
        written = file->commit();
    }
    return written ? Outcome<void>{} : output_failed(written.error());
}

/// Where this rank's memory went.
void Training::report_memory() {
    NamedTensors gradients;
    for (const auto& parameter : model_->parameters()) {
        if (parameter.grad().defined()) {
            gradients.emplace_back("", parameter.grad());
        }
    }
    std::int64_t optimizer = 0;
    for (const auto& each : optimizer_->state()) {
        optimizer += bytes_of(each);
    }
    constexpr double kKilobytes = 1e3;
    const MemoryUse use = memory_use();
    std::string text = fmt::format(
        "rank {}: memory {:.0f} MB, at most {:.0f} MB; weights and buffers {:.1f} MB, gradients "
        "{:.1f} MB, optimizer {:.1f} MB, average {:.1f} MB",
        place_.rank,
        static_cast<double>(use.resident_kb) / kKilobytes,
        static_cast<double>(use.peak_kb) / kKilobytes,
        megabytes(bytes_of(state_dict(*model_))),
        megabytes(bytes_of(gradients)),
        megabytes(optimizer),
        megabytes(ema_ ? bytes_of(ema_->average()) : 0)
    );
    if (reporter_) {
        reporter_->line(text);
    } else {
        log_.info("{}", text);
    }
}

}  // namespace ddprun::trainer
