#include "proto/limits.h"
#include "proto/worker_env.h"
#include "trainer/gpu_monitor.h"
#include "trainer/training.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

namespace ddprun::trainer {

Outcome<void> Training::start() {
    // The device first: LibTorch remembers whether there was CUDA when it was first asked.
    auto device = set_up_device(options_, place_);
    if (!device) {
        return tl::unexpected<Failure>(device.error());
    }
    device_ = *device;
    check_gpus();
    auto devices = devices_of_rank(options_, place_, device_);
    if (!devices) {
        return tl::unexpected<Failure>(devices.error());
    }
    devices_ = std::move(*devices);
    if (auto opened = open_data(); !opened) {
        return opened;
    }
    if (auto connected = connect(); !connected) {
        return connected;
    }
    if (auto built = build_model(); !built) {
        return built;
    }
    build_optimizer();
    return resume_or_begin();
}

/// What the node has, told by the first of its ranks.
void Training::check_gpus() {
    if (place_.local_rank != 0 || (device_.gpu == nullptr && !options_.gpu_monitor)) {
        return;
    }
    const auto monitor = GpuMonitor::open();
    if (!monitor) {
        log_.warning("check of the GPUs: {}", monitor.error().context);
        return;
    }
    for (const auto& line : describe_gpus(**monitor)) {
        log_.info("{}", line);
    }
}

Outcome<void> Training::open_data() {
    for (const Split split : {Split::train, Split::test}) {
        if (split == Split::train && options_.test_only) {
            continue;
        }
        auto data = open_dataset(options_, split);
        if (!data) {
            return input_failed(data.error());
        }
        (split == Split::train ? train_data_ : test_data_) = std::move(*data);
    }
    const auto warn = [this](const std::string& line) { log_.warning("{}", line); };
    bad_train_.emplace(options_.max_bad_samples, warn);
    bad_test_.emplace(options_.max_bad_samples, warn);
    num_classes_ = options_.num_classes.value_or(test_data_->num_classes());
    return options_.test_only ? Outcome<void>{} : count_steps();
}

Outcome<void> Training::count_steps() {
    sampler_ = std::make_unique<DistributedSampler>(SamplerOptions{
        .dataset_size = train_data_->size(),
        .world_size = place_.world_size,
        .rank = place_.rank,
        .seed = options_.seed,
    });
    const std::int64_t batches =
        training_batches(sampler_->samples_per_rank(), options_.batch_size);
    if (batches == 0) {
        return stop_with(
            exit_code::kData,
            fmt::format(
                "{} pictures for {} workers: too few to train on",
                train_data_->size(),
                place_.world_size
            )
        );
    }
    const std::int64_t accumulated = options_.grad_accum_steps;
    steps_per_epoch_ = (batches + accumulated - 1) / accumulated;
    total_steps_ = total_steps(options_, steps_per_epoch_);
    schedule_.options = schedule_of(
        options_, steps_per_epoch_, options_.batch_size * place_.world_size * accumulated
    );
    schedule_.steps_per_epoch = steps_per_epoch_;
    return {};
}

Outcome<void> Training::connect() {
    const int device = device_.gpu != nullptr ? device_.device.index() : 0;
    auto group = connect_group(
        place_,
        {.init_timeout = options_.init_timeout,
         .gpu = device_.gpu,
         .device = device,
         .even_alone = options_.ddp}
    );
    if (!group) {
        const bool usage = group.error().code == Errc::invalid_argument;
        return stop_with(
            usage ? exit_code::kUsage : exit_code::kUnavailable, group.error().context
        );
    }
    group_ = std::move(*group);
    return {};
}

Outcome<void> Training::build_model() {
    torch::manual_seed(options_.seed);
    const ResNetOptions resnet{
        .shape = resnet_shape(options_.model).value(),
        .num_classes = num_classes_,
        .zero_init_residual = options_.zero_init_residual,
    };
    model_ = std::make_shared<ResNet>(resnet);
    if (options_.model_parallel > 1) {
        model_->split(devices_.front(), devices_.back());
    } else {
        model_->to(device_.device);
    }
    if (options_.sync_bn && !place_.alone()) {
        model_->synchronise_norms(group_.group);
    }
    // After the weights are drawn (another layout draws other numbers), before anything views them.
    if (options_.channels_last) {
        for (auto& parameter : model_->parameters()) {
            if (parameter.dim() == 4) {
                parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
            }
        }
    }
    if (options_.data_parallel > 1) {
        replicas_ = std::make_unique<Replicas>(model_, resnet, devices_);
    }
    return {};
}

void Training::build_optimizer() {
    optimizer_ = std::make_unique<Optimizer>(
        parameter_groups(*model_, options_), optimizer_options(options_)
    );
    if (options_.amp == Precision::fp16) {
        scaler_ = std::make_unique<GradScaler>();
    }
    if (options_.model_ema) {
        const double epochs = options_.epochs ? static_cast<double>(*options_.epochs)
                                              : static_cast<double>(total_steps_) /
                                                    static_cast<double>(steps_per_epoch_);
        const std::int64_t pictures =
            options_.batch_size * options_.grad_accum_steps * place_.world_size;
        ema_ = std::make_unique<Ema>(
            state_dict(*model_),
            adjusted_decay(options_.model_ema_decay, pictures, options_.model_ema_steps, epochs)
        );
    }
}

/// Where the job stands, in steps of today's size.
void Training::place_in_schedule() {
    const auto rest =
        static_cast<std::int64_t>(sampler_->indices(position_.epoch + 1, position_.consumed).size()
        );
    const std::int64_t batches = training_batches(rest, options_.batch_size);
    const std::int64_t left = (batches + options_.grad_accum_steps - 1) / options_.grad_accum_steps;
    schedule_.shift = schedule_shift(position_.step, position_.epoch, left, steps_per_epoch_);
    total_steps_ = total_steps(options_, steps_per_epoch_, schedule_.shift);
    schedule_.options.total_steps = std::min(total_steps_, limits::kStepsMax) + schedule_.shift;
}

Outcome<void> Training::resume_or_begin() {
    if (options_.memory_checkpoint) {
        memory_dir_ = process_environment(worker_env::kMemoryDir).value_or("");
        if (memory_dir_.empty() && root()) {
            log_.warning("--memory_checkpoint: no effect, since no ddprun keeps the memory");
        }
    }
    auto resumed = resume(options_, memory_dir_, place_, group_.group, parts(), log_);
    if (!resumed) {
        return tl::unexpected<Failure>(resumed.error());
    }
    position_ = resumed->position;
    // A checkpoint of another program knows epochs alone.
    if (position_.step == 0 && position_.epoch >= 0) {
        position_.step = (position_.epoch + 1) * steps_per_epoch_;
    }
    first_step_ = position_.step;
    if (!options_.test_only) {
        place_in_schedule();
    }
    if (resumed->from_checkpoint_dir) {
        saved_step_ = position_.step;
    }
    // An evaluation alone needs no gradients, and so no DDP: only the same weights everywhere.
    if (group_.group && !options_.test_only) {
        DdpOptions ddp = ddp_options(options_);
        ddp.initial_buckets = std::move(resumed->ddp_buckets);
        ddp_ = std::make_unique<DistributedDataParallel>(model_, group_.group, ddp);
    }
    build_step();
    return root() ? open_outputs(*resumed) : Outcome<void>{};
}

void Training::build_step() {
    step_ = std::make_unique<TrainStep>(
        options_,
        StepParts{
            .model = *model_,
            .optimizer = *optimizer_,
            .ddp = ddp_.get(),
            .scaler = scaler_.get(),
            .ema = ema_.get(),
            .replicas = replicas_.get()},
        StepPlace{.device = device_.device, .rank = place_.rank, .num_classes = num_classes_}
    );
    if (options_.cuda_graph && !options_.test_only) {
        graphed_ =
            std::make_unique<GraphedStep>(*step_, device_.gpu->make_step_graph(), device_.device);
    }
}

Outcome<void> Training::open_outputs(const Resumed& resumed) {
    if (resumed.weights_alone) {
        log_.info("weights taken from {}", resumed.path);
    } else if (!resumed.path.empty()) {
        log_.info("resumed from {} at step {}", resumed.path, position_.step);
    }
    if (!options_.checkpoint_dir.empty() && !options_.test_only) {
        std::error_code ignored;  // the first checkpoint says what is wrong
        std::filesystem::create_directories(options_.checkpoint_dir, ignored);
        saver_ = std::make_unique<CheckpointSaver>(options_.checkpoint_dir, options_.keep);
    }
    if (!memory_dir_.empty() && !options_.test_only) {
        constexpr int kKept = 2;  // one is whole while the next is written
        memory_saver_ = std::make_unique<CheckpointSaver>(memory_dir_, kKept);
    }
    auto reporter = Reporter::open(options_, place_);
    if (!reporter) {
        return tl::unexpected<Failure>(reporter.error());
    }
    reporter_ = std::move(*reporter);
    const Dataset& data = train_data_ ? *train_data_ : *test_data_;
    reporter_->line(fmt::format(
        "{} on {} pictures, {} classes; {} worker{} x batch {}, {} steps, {} steps an epoch; {}",
        options_.model,
        data.size(),
        data.num_classes(),
        place_.world_size,
        place_.alone() ? "" : "s",
        options_.batch_size,
        total_steps_,
        steps_per_epoch_,
        device_.description
    ));
    return {};
}

}  // namespace ddprun::trainer
