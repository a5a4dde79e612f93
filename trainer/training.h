// One rank's life: made by `start` (training_start.cpp), then `run` (train.cpp, which is to be read
// from top to bottom); training_report.cpp has what it tells. Used by train.cpp alone.
#pragma once

#include "proto/log.h"
#include "trainer/bad_samples.h"
#include "trainer/checkpoint_saver.h"
#include "trainer/ddp.h"
#include "trainer/device_batches.h"
#include "trainer/ema.h"
#include "trainer/evaluation.h"
#include "trainer/graphed_step.h"
#include "trainer/job_state.h"
#include "trainer/load_report.h"
#include "trainer/loader.h"
#include "trainer/optimizer_record.h"
#include "trainer/options.h"
#include "trainer/outcome.h"
#include "trainer/process_group.h"
#include "trainer/profiler.h"
#include "trainer/reporter.h"
#include "trainer/resnet.h"
#include "trainer/sampler.h"
#include "trainer/setup.h"
#include "trainer/train_step.h"
#include "trainer/worker_place.h"

#include <chrono>
#include <memory>
#include <optional>

namespace ddprun::trainer {

using Clock = std::chrono::steady_clock;

/// Seconds from lap to lap.
class StepClock {
public:
    /// Adds the time since the last lap to `sum`.
    void lap(double& sum) {
        const auto now = Clock::now();
        sum += std::chrono::duration<double>(now - last_).count();
        last_ = now;
    }

    [[nodiscard]] double total() const {
        return std::chrono::duration<double>(last_ - begin_).count();
    }

    [[nodiscard]] Clock::time_point last() const { return last_; }

private:
    Clock::time_point begin_ = Clock::now();
    Clock::time_point last_ = begin_;
};

/// What a step came to, on this rank.
struct StepSums {
    double loss = 0.0;
    double correct1 = 0.0;
    double correct5 = 0.0;
    RankLoad load;

    void add(const BatchResult& result, std::int64_t pictures) {
        loss += result.loss_sum;
        correct1 += static_cast<double>(result.correct1);
        correct5 += static_cast<double>(result.correct5);
        load.pictures += pictures;
    }
};

class Training {
public:
    Training(const Options& options, const WorkerPlace& place, Log& log)
        : options_(options),
          place_(place),
          log_(log) {}

    [[nodiscard]] Outcome<void> start();
    [[nodiscard]] Outcome<int> run();

private:
    // training_start.cpp
    void check_gpus();
    [[nodiscard]] Outcome<void> open_data();
    [[nodiscard]] Outcome<void> count_steps();
    [[nodiscard]] Outcome<void> connect();
    [[nodiscard]] Outcome<void> build_model();
    void build_optimizer();
    void place_in_schedule();
    [[nodiscard]] Outcome<void> resume_or_begin();
    void build_step();
    [[nodiscard]] Outcome<void> open_outputs(const Resumed& resumed);

    // train.cpp
    [[nodiscard]] Outcome<int> test_only();
    [[nodiscard]] Outcome<void> run_epoch();
    [[nodiscard]] Outcome<void> run_step(DeviceBatches& batches, std::int64_t parts);
    [[nodiscard]] BatchResult run_batch(
        const BatchPlace& place, const DeviceBatch& batch, double learning_rate
    );
    [[nodiscard]] Outcome<void> finish_epoch();
    [[nodiscard]] Outcome<double> evaluate_model(std::int64_t epoch);
    [[nodiscard]] Outcome<void> save_if_wanted(bool best);
    [[nodiscard]] Outcome<void> finish_saving();
    void agree_to_stop(bool terminate, bool interrupt);

    // training_report.cpp
    [[nodiscard]] Outcome<void> after_step(StepSums& sums, StepClock& clock, double lr);
    [[nodiscard]] Outcome<void> report_end();
    [[nodiscard]] Outcome<void> report_load();
    void report_memory();
    void report_loading(const Loader& loader, Clock::duration epoch_time);
    void add_details(ProgressPoint& point) const;
    void begin_profile();
    [[nodiscard]] Outcome<void> end_profile();

    [[nodiscard]] bool root() const { return place_.rank == 0; }

    [[nodiscard]] std::int64_t epoch() const { return position_.epoch + 1; }

    [[nodiscard]] bool over() const { return position_.step >= total_steps_ || stopped_by_ != 0; }

    [[nodiscard]] JobParts parts() { return {*model_, *optimizer_, scaler_.get(), ema_.get()}; }

    [[nodiscard]] TrainingState state() {
        return state_of_job(options_, position_, parts(), schedule_, ddp_.get());
    }

    [[nodiscard]] BatchForm batch_form(const ImageShape& shape) const {
        return {shape, device_.device, options_.channels_last};
    }

    const Options& options_;
    const WorkerPlace& place_;
    Log& log_;

    Device device_;
    std::vector<c10::Device> devices_;     ///< of this rank, the first is device_
    std::unique_ptr<Dataset> train_data_;  ///< null with --test_only
    std::unique_ptr<Dataset> test_data_;
    std::optional<BadSamples> bad_train_;
    std::optional<BadSamples> bad_test_;
    std::int64_t num_classes_ = 0;
    WorkerGroup group_;
    std::shared_ptr<ResNet> model_;
    std::unique_ptr<Optimizer> optimizer_;
    std::unique_ptr<GradScaler> scaler_;            ///< null but for fp16
    std::unique_ptr<Ema> ema_;                      ///< null without --model_ema
    std::unique_ptr<DistributedDataParallel> ddp_;  ///< null for a worker that is alone
    std::unique_ptr<Replicas> replicas_;            ///< null without --data_parallel
    std::unique_ptr<TrainStep> step_;
    std::unique_ptr<GraphedStep> graphed_;  ///< null without --cuda_graph
    std::unique_ptr<DistributedSampler> sampler_;
    std::int64_t steps_per_epoch_ = 1;
    std::int64_t total_steps_ = 0;
    ScheduleRecord schedule_;
    Position position_;
    std::int64_t saved_step_ = -1;            ///< of the newest checkpoint in the folder
    std::int64_t first_step_ = 0;             ///< position at which this life began
    bool save_wished_ = false;                ///< a rank got SIGUSR1
    int stopped_by_ = 0;                      ///< the signal by which all ranks have agreed to stop
    std::string memory_dir_;                  ///< of --memory_checkpoint; empty: none
    std::unique_ptr<CheckpointSaver> saver_;  ///< rank 0 with --checkpoint_dir
    std::unique_ptr<CheckpointSaver> memory_saver_;  ///< rank 0 with a memory_dir_
    std::unique_ptr<Reporter> reporter_;             ///< rank 0
    bool was_traced_ = false;
    std::unique_ptr<TraceProfiler> profiler_;  ///< while steps are traced
    RankLoad load_;                            ///< of this life
};

}  // namespace ddprun::trainer
