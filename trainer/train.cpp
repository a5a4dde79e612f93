#include "trainer/train.h"

#include "trainer/bad_samples.h"
#include "trainer/data.h"
#include "trainer/ddp.h"
#include "trainer/gpu_module.h"
#include "trainer/job_state.h"
#include "trainer/loader.h"
#include "trainer/outcome.h"
#include "trainer/prefetch.h"
#include "trainer/process_group.h"
#include "trainer/progress.h"
#include "trainer/resnet.h"
#include "trainer/sampler.h"
#include "trainer/setup.h"
#include "trainer/sgd.h"
#include "trainer/step_log.h"
#include "trainer/stop_signal.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

namespace ddprun::trainer {
namespace {

using Clock = std::chrono::steady_clock;

/// One rank's life: made by `start`, then `run`.
class Training {
public:
    Training(const Options& options, const WorkerPlace& place, Log& log)
        : options_(options),
          place_(place),
          log_(log) {}

    [[nodiscard]] Outcome<void> start();
    [[nodiscard]] Outcome<int> run();

private:
    [[nodiscard]] Outcome<void> open_data();
    [[nodiscard]] Outcome<void> connect();
    void build_model();
    [[nodiscard]] Outcome<void> resume_or_begin();
    void open_reports();

    [[nodiscard]] Outcome<void> run_epoch();
    [[nodiscard]] double backward(const DeviceBatch& batch);
    [[nodiscard]] Outcome<void> after_step(double loss, std::int64_t pictures);
    [[nodiscard]] Outcome<void> finish_epoch();
    [[nodiscard]] Outcome<void> evaluate(std::int64_t epoch);
    [[nodiscard]] Outcome<void> save_if_wanted();
    void report_loading(const Loader& loader, Clock::duration epoch_time);
    void agree_to_stop(bool terminate, bool interrupt);
    [[nodiscard]] at::Tensor images_of(const DeviceBatch& batch) const;

    [[nodiscard]] bool root() const { return place_.rank == 0; }

    [[nodiscard]] std::int64_t epoch() const { return position_.epoch + 1; }

    [[nodiscard]] bool over() const { return position_.step >= total_steps_ || stopped_by_ != 0; }

    const Options& options_;
    const WorkerPlace& place_;
    Log& log_;

    Device device_;
    std::unique_ptr<Dataset> train_data_;
    std::unique_ptr<Dataset> test_data_;
    std::optional<BadSamples> bad_train_;
    std::optional<BadSamples> bad_test_;
    WorkerGroup group_;
    std::shared_ptr<ResNet> model_;
    std::unique_ptr<Sgd> sgd_;
    std::unique_ptr<DistributedDataParallel> ddp_;  ///< null for a worker that is alone
    std::unique_ptr<DistributedSampler> sampler_;
    std::int64_t steps_per_epoch_ = 0;
    std::int64_t total_steps_ = 0;
    Position position_;
    std::int64_t saved_step_ = -1;  ///< of the newest checkpoint in the folder
    int stopped_by_ = 0;            ///< the signal by which all ranks have agreed to stop
    std::optional<StepLog> step_log_;
    std::unique_ptr<ProgressPrinter> progress_;
    Clock::time_point step_begin_;
};

// ---- start -------------------------------------------------------------------------------------

Outcome<void> Training::start() {
    // The device first: LibTorch remembers whether there was CUDA when it was first asked.
    auto device = set_up_device(options_, place_);
    if (!device) {
        return tl::unexpected<Failure>(device.error());
    }
    device_ = *device;
    if (auto opened = open_data(); !opened) {
        return opened;
    }
    if (auto connected = connect(); !connected) {
        return connected;
    }
    build_model();
    return resume_or_begin();
}

Outcome<void> Training::open_data() {
    for (const Split split : {Split::train, Split::test}) {
        auto data = open_dataset(options_, split);
        if (!data) {
            return input_failed(data.error());
        }
        (split == Split::train ? train_data_ : test_data_) = std::move(*data);
    }
    const auto warn = [this](const std::string& line) { log_.warning("{}", line); };
    bad_train_.emplace(options_.max_bad_samples, warn);
    bad_test_.emplace(options_.max_bad_samples, warn);
    sampler_ = std::make_unique<DistributedSampler>(SamplerOptions{
        .dataset_size = train_data_->size(),
        .world_size = place_.world_size,
        .rank = place_.rank,
        .seed = options_.seed,
    });
    steps_per_epoch_ = training_batches(sampler_->samples_per_rank(), options_.batch_size);
    if (steps_per_epoch_ == 0) {
        return stop_with(
            exit_code::kData,
            fmt::format(
                "{} pictures for {} workers: too few to train on",
                train_data_->size(),
                place_.world_size
            )
        );
    }
    total_steps_ = total_steps(options_, steps_per_epoch_);
    return {};
}

Outcome<void> Training::connect() {
    auto group = connect_group(place_, {.init_timeout = options_.init_timeout, .gpu = device_.gpu});
    if (!group) {
        return stop_with(exit_code::kUnavailable, group.error().context);
    }
    group_ = std::move(*group);
    return {};
}

void Training::build_model() {
    torch::manual_seed(options_.seed);
    model_ = std::make_shared<ResNet>(ResNetOptions{
        .shape = resnet_shape(options_.model).value(),
        .num_classes = options_.num_classes.value_or(train_data_->num_classes()),
        .zero_init_residual = options_.zero_init_residual,
    });
    model_->to(device_.device);
    // After the weights are drawn (another layout draws other numbers), before anything views them.
    if (options_.channels_last) {
        for (auto& parameter : model_->parameters()) {
            if (parameter.dim() == 4) {
                parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
            }
        }
    }
    sgd_ = std::make_unique<Sgd>(
        model_->parameters(),
        SgdOptions{
            .momentum = options_.momentum,
            .weight_decay = options_.weight_decay,
            .nesterov = options_.nesterov,
        }
    );
}

Outcome<void> Training::resume_or_begin() {
    auto resumed = resume(options_, place_, group_.group, *model_, *sgd_, log_);
    if (!resumed) {
        return tl::unexpected<Failure>(resumed.error());
    }
    position_ = resumed->position;
    if (resumed->from_checkpoint_dir) {
        saved_step_ = position_.step;
    }
    if (!place_.alone()) {
        DdpOptions ddp = ddp_options(options_);
        ddp.initial_buckets = std::move(resumed->ddp_buckets);
        ddp_ = std::make_unique<DistributedDataParallel>(model_, group_.group, ddp);
    }
    if (!root()) {
        return {};
    }
    if (!resumed->path.empty()) {
        log_.info("resumed from {} at step {}", resumed->path, position_.step);
    }
    if (!options_.checkpoint_dir.empty()) {
        std::error_code ignored;  // the first checkpoint says what is wrong
        std::filesystem::create_directories(options_.checkpoint_dir, ignored);
    }
    if (!options_.log_json.empty()) {
        auto step_log = StepLog::open(options_.log_json);
        if (!step_log) {
            return output_failed(step_log.error());
        }
        step_log_.emplace(std::move(*step_log));
    }
    open_reports();
    return {};
}

void Training::open_reports() {
    ProgressOptions progress;
    progress.log_interval = options_.log_interval;
    // Under ddprun stdout is a pipe, and the launcher says how wide its terminal is.
    progress.columns = place_.terminal_columns ? place_.terminal_columns : terminal_columns(1);
    progress_ = std::make_unique<ProgressPrinter>(stdout, progress);
    progress_->line(fmt::format(
        "{} on {} pictures, {} classes; {} worker{} x batch {}, {} steps, {} steps an epoch; {}",
        options_.model,
        train_data_->size(),
        train_data_->num_classes(),
        place_.world_size,
        place_.alone() ? "" : "s",
        options_.batch_size,
        total_steps_,
        steps_per_epoch_,
        device_.description
    ));
}

// ---- training ----------------------------------------------------------------------------------

Outcome<int> Training::run() {
    if (auto saved = save_if_wanted(); !saved) {
        return tl::unexpected<Failure>(saved.error());
    }
    // An earlier life may have ended between the last step and telling what it had reached.
    if (position_.step >= total_steps_ && position_.step > 0 && position_.consumed == 0) {
        if (auto evaluated = evaluate(position_.epoch); !evaluated) {
            return tl::unexpected<Failure>(evaluated.error());
        }
    }
    while (!over()) {
        if (auto trained = run_epoch(); !trained) {
            return tl::unexpected<Failure>(trained.error());
        }
    }
    if (auto saved = save_if_wanted(); !saved) {
        return tl::unexpected<Failure>(saved.error());
    }
    // Rank 0 may be the server of the store, and all wait until its checkpoint is on the disk.
    barrier(group_.group);
    if (progress_) {
        progress_->finish();
    }
    if (stopped_by_ != 0) {
        return exit_code::from_signal(stopped_by_);
    }
    return exit_code::kSuccess;
}

/// From the position in the epoch to its end, or until the job is over.
Outcome<void> Training::run_epoch() {
    model_->train();
    Loader loader(
        *train_data_,
        sampler_->indices(epoch(), position_.consumed),
        {.batch_size = options_.batch_size,
         .workers = options_.workers,
         .training = true,
         .epoch = epoch(),
         .bad = &*bad_train_,
         .make_memory = pinned_memory(device_.device)}
    );
    DeviceBatches batches(loader, device_.device, train_data_->shape());
    const auto epoch_begin = Clock::now();
    step_begin_ = epoch_begin;
    for (std::int64_t left = loader.batches(); left > 0 && !over(); --left) {
        auto batch = batches.next();
        if (!batch) {
            return input_failed(batch.error());
        }
        const double loss = backward(**batch);
        sgd_->step(options_.lr);
        position_.step += 1;
        position_.consumed += (*batch)->size * place_.world_size;
        if (auto told = after_step(loss, (*batch)->size); !told) {
            return told;
        }
        const bool due =
            options_.checkpoint_every > 0 && position_.step % options_.checkpoint_every == 0;
        if (due && !over()) {
            if (auto saved = save_if_wanted(); !saved) {
                return saved;
            }
        }
        if (left == 1) {
            report_loading(loader, Clock::now() - epoch_begin);
            return finish_epoch();
        }
    }
    return loader.batches() == 0 ? finish_epoch() : Outcome<void>{};
}

/// Leaves the gradients of all ranks' mean loss in the parameters; gives this rank's loss.
double Training::backward(const DeviceBatch& batch) {
    const at::Tensor images = images_of(batch);
    const at::Tensor& labels = batch.labels;
    sgd_->clear_gradients();
    const std::function<at::Tensor()> forward = [&] { return model_->forward(images); };
    const at::Tensor output = ddp_ ? ddp_->forward(forward) : forward();
    const at::Tensor loss = at::cross_entropy_loss(output, labels);
    loss.backward();
    if (ddp_) {
        ddp_->rebuild_buckets();
    }
    return loss.item<double>();
}

/// What any rank was told, all know now.
void Training::agree_to_stop(bool terminate, bool interrupt) {
    if (terminate) {
        stopped_by_ = SIGTERM;
    } else if (interrupt) {
        stopped_by_ = SIGINT;
    }
}

/// Adds up what the ranks have to tell each other after a step, and reports it.
Outcome<void> Training::after_step(double loss, std::int64_t pictures) {
    const auto mine = static_cast<double>(pictures);
    const int signal = stop_signal::pending();
    at::Tensor sums = torch::tensor(
        {loss * mine, mine, signal == SIGTERM ? 1.0 : 0.0, signal == SIGINT ? 1.0 : 0.0},
        at::kDouble
    );
    all_reduce_sum(group_.group, sums);
    const auto* sum = sums.const_data_ptr<double>();
    agree_to_stop(sum[2] > 0.0, sum[3] > 0.0);
    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - step_begin_).count();
    step_begin_ = now;
    if (!root()) {
        return {};
    }
    const double mean_loss = sum[0] / sum[1];
    const double rate = sum[1] / seconds;
    progress_->step(
        {
            .epoch = epoch(),
            .epochs = (total_steps_ + steps_per_epoch_ - 1) / steps_per_epoch_,
            .step = position_.step,
            .steps = total_steps_,
            .loss = mean_loss,
            .images_per_second = rate,
            .lr = options_.lr,
        },
        now
    );
    if (!step_log_) {
        return {};
    }
    auto written = step_log_->write(StepRecord{
        .step = position_.step,
        .epoch = epoch(),
        .loss = mean_loss,
        .lr = options_.lr,
        .images_per_second = rate,
        .round = place_.round,
    });
    if (!written) {
        return output_failed(written.error());
    }
    return {};
}

/// How much of an epoch this rank has waited for its loader threads.
void Training::report_loading(const Loader& loader, Clock::duration epoch_time) {
    if (!root()) {
        return;
    }
    constexpr double kPerCent = 100.0;
    const std::chrono::duration<double> waited = loader.waited();
    const std::chrono::duration<double> whole = epoch_time;
    progress_->line(fmt::format(
        "epoch {}  {:.1f} % of the time spent waiting for data{}",
        epoch() + 1,
        kPerCent * waited / whole,
        bad_train_->count() > 0 ? fmt::format(", {} broken pictures skipped", bad_train_->count())
                                : ""
    ));
}

Outcome<void> Training::finish_epoch() {
    if (stopped_by_ != 0) {
        return {};  // the next life evaluates
    }
    auto evaluated = evaluate(epoch());
    if (!evaluated || stopped_by_ != 0) {
        return evaluated;
    }
    position_.epoch += 1;
    position_.consumed = 0;
    saved_step_ = -1;  // the same step, but now the epoch is over
    return save_if_wanted();
}

/// Accuracy on the test split, each picture counted once, over all ranks.
Outcome<void> Training::evaluate(std::int64_t epoch) {
    const torch::NoGradGuard no_grad;
    if (ddp_) {
        ddp_->sync_buffers();
    }
    model_->eval();
    Loader loader(
        *test_data_,
        evaluation_indices(test_data_->size(), place_.world_size, place_.rank),
        {.batch_size = options_.batch_size,
         .workers = options_.workers,
         .training = false,
         .epoch = 0,
         .bad = &*bad_test_,
         .make_memory = pinned_memory(device_.device)}
    );
    DeviceBatches batches(loader, device_.device, test_data_->shape());
    std::int64_t correct = 0;
    std::int64_t count = 0;
    for (std::int64_t left = loader.batches(); left > 0 && stop_signal::pending() == 0; --left) {
        auto batch = batches.next();
        if (!batch) {
            return input_failed(batch.error());
        }
        if ((*batch)->size == 0) {
            continue;  // every picture of it was broken
        }
        const at::Tensor output = model_->forward(images_of(**batch));
        correct += output.argmax(1).eq((*batch)->labels).sum().item<std::int64_t>();
        count += (*batch)->size;
    }
    const int signal = stop_signal::pending();
    const auto flag = [signal](int which) { return std::int64_t{signal == which ? 1 : 0}; };
    at::Tensor sums = torch::tensor({correct, count, flag(SIGTERM), flag(SIGINT)}, at::kLong);
    all_reduce_sum(group_.group, sums);
    const auto* sum = sums.const_data_ptr<std::int64_t>();
    agree_to_stop(sum[2] > 0, sum[3] > 0);
    if (!root() || stopped_by_ != 0) {
        return {};  // stopped in the middle: the next life evaluates
    }
    constexpr double kPerCent = 100.0;
    const double top1 = kPerCent * static_cast<double>(sum[0]) / static_cast<double>(sum[1]);
    progress_->line(
        fmt::format("epoch {}  accuracy {:.2f} % of {} test pictures", epoch + 1, top1, sum[1])
    );
    if (step_log_) {
        auto written = step_log_->write(EvaluationRecord{
            .epoch = epoch, .top1 = top1, .count = sum[1], .round = place_.round});
        if (!written) {
            return output_failed(written.error());
        }
    }
    return {};
}

Outcome<void> Training::save_if_wanted() {
    if (!root() || options_.checkpoint_dir.empty() || saved_step_ == position_.step) {
        return {};
    }
    auto saved = save(options_, position_, *model_, *sgd_, ddp_.get());
    if (saved) {
        saved_step_ = position_.step;
    }
    return saved;
}

at::Tensor Training::images_of(const DeviceBatch& batch) const {
    return options_.channels_last ? batch.images.contiguous(at::MemoryFormat::ChannelsLast)
                                  : batch.images;
}

}  // namespace

int train(const Options& options, const WorkerPlace& place, Log& log) {
    // Left behind on purpose: after a failure a peer may be gone, and the destructors of its
    // connections would wait for it. main ends the process without them.
    auto* training = new Training(options, place, log);
    try {
        Outcome<int> status = 0;
        if (auto started = training->start(); !started) {
            status = tl::unexpected<Failure>(started.error());
        } else {
            stop_signal::catch_all();
            status = training->run();
        }
        if (!status) {
            if (!status.error().line.empty()) {
                log.error("{}", status.error().line);
            }
            return status.error().status;
        }
        return *status;
    } catch (const std::exception& exception) {
        // LibTorch reports a lost peer so, and everything that it did not expect.
        log.error("rank {}: {}", place.rank, describe(exception));
        return place.alone() ? exit_code::kInternal : exit_code::kUnavailable;
    }
}

}  // namespace ddprun::trainer
