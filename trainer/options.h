// The trainer's command line. Names are those of torchvision's reference scripts where they have
// one; underscores and hyphens are the same, and the last of several wins. What a value may be is
// checked here; whether a file is there, by whoever opens it. No LibTorch in it.
//
// Steps are the job's total over all restarts. With --epochs the smaller of both wins; without
// --epochs only steps count; without both it is 90 epochs, as in torchvision.
#pragma once

#include "proto/result.h"
#include "trainer/schedule.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace ddprun::trainer {

enum class DeviceChoice { cpu, cuda, automatic };

enum class DataKind { fashion_mnist, cifar10, image_folder, packed, synthetic };

/// How training pictures are varied. `standard`: RandomResizedCrop and mirroring for image folders,
/// a shift by up to 4 pixels and mirroring for small pictures, nothing for synthetic ones.
enum class Augment { none, standard };

/// `--data KIND[:DIR]`; for synthetic it is `synthetic[:COUNT]`.
struct DataSource {
    DataKind kind = DataKind::synthetic;
    std::string dir;                          ///< where the data set's files are
    std::int64_t synthetic_size = 1'281'167;  ///< pictures in an epoch, ImageNet's count
};

enum class GradientHook { none, allreduce, fp16_compress, bf16_compress, power_sgd };

enum class OptimizerChoice { sgd, lars, adamw };

/// What the operators of a step compute in; weights and gradients stay fp32.
enum class Precision { fp32, bf16, fp16 };

/// Which fp32 operators of a GPU may round their inputs to TF32's 10 bits; PyTorch's default is
/// convolutions.
enum class Tf32 { none, convolutions, all };

/// `--profile=COUNT` or FIRST:LAST; steps of this life of the job, from 1.
struct ProfileWindow {
    std::int64_t first = 0;
    std::int64_t last = 0;
};

struct Options {
    // Model
    std::string model = "resnet50";
    std::optional<std::int64_t> num_classes;  ///< unset: those of the data
    bool zero_init_residual = false;
    std::string weights;  ///< a file to begin with instead of drawn weights

    // Data
    DataSource data;
    std::optional<int> image_size;            ///< unset: that of the data
    std::optional<std::int64_t> limit_train;  ///< only the first pictures of the training split
    std::optional<std::int64_t> limit_test;   ///< only the first pictures of the test split
    Augment augment = Augment::none;
    std::optional<std::array<float, 3>> mean;  ///< of red, green, blue; unset: the data's usual
    std::optional<std::array<float, 3>> std;   ///< deviation, likewise
    std::int64_t max_bad_samples = 10;         ///< pictures that each rank may skip
    bool jpeg_scaling = true;                  ///< large JPEGs at a fraction, where augmented
    bool bench_data = false;                   ///< read the training data, and nothing else
    int workers = 2;                           ///< loader threads; 0 loads in the training thread

    // Training
    std::int64_t batch_size = 32;  ///< of each rank
    std::optional<std::int64_t> epochs;
    std::optional<std::int64_t> steps;
    std::int64_t grad_accum_steps = 1;  ///< batches of each rank in a step
    bool test_only = false;
    std::uint64_t seed = 0;
    bool deterministic = false;

    // Optimizer
    OptimizerChoice optimizer = OptimizerChoice::sgd;
    double lr = 0.1;
    std::optional<std::int64_t> lr_batch;  ///< lr is meant for so many pictures a step
    double momentum = 0.0;
    bool nesterov = false;
    double weight_decay = 0.0;
    std::optional<double> norm_weight_decay;  ///< unset: as all others
    std::optional<double> bias_weight_decay;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double lars_trust = 0.001;
    std::optional<double> clip_grad_norm;

    // Schedule
    ScheduleKind lr_scheduler = ScheduleKind::constant;
    double lr_warmup_epochs = 0.0;
    WarmupKind lr_warmup_method = WarmupKind::linear;
    double lr_warmup_decay = 0.01;
    double lr_step_size = 30.0;  ///< epochs
    double lr_gamma = 0.1;
    double lr_power = 2.0;
    double lr_min = 0.0;

    // Regularization
    double label_smoothing = 0.0;
    double mixup_alpha = 0.0;
    double cutmix_alpha = 0.0;
    bool model_ema = false;
    std::int64_t model_ema_steps = 32;
    double model_ema_decay = 0.99998;

    // Device
    DeviceChoice device = DeviceChoice::automatic;
    std::optional<int> threads;  ///< of LibTorch's operators; unset: LibTorch's choice
    bool channels_last = false;
    Precision amp = Precision::fp32;
    Tf32 tf32 = Tf32::convolutions;
    bool cuda_graph = false;

    // Data parallel
    std::chrono::seconds init_timeout{60};
    std::optional<double> bucket_cap_mb;
    bool find_unused_parameters = false;
    bool static_graph = false;
    bool broadcast_buffers = true;
    bool gradient_as_bucket_view = true;
    GradientHook comm_hook = GradientHook::none;
    std::int64_t powersgd_rank = 1;
    std::int64_t powersgd_start = 1000;  ///< step from which it compresses
    bool sync_bn = false;
    bool ddp = false;        ///< DDP for a single worker, too
    int model_parallel = 1;  ///< parts of the model, each on a device of its own
    int data_parallel = 1;   ///< replicas in this process
    int spawn = 0;           ///< workers that this process starts; 0: it is one itself

    // Checkpoints
    std::string checkpoint_dir;  ///< empty: none are written
    std::int64_t checkpoint_every =
        0;                           ///< steps; 0: only at the start, after epochs and at the end
    int keep = 3;                    ///< newest checkpoints that stay
    std::string resume;              ///< a checkpoint to start from where checkpoint_dir has none
    bool memory_checkpoint = false;  ///< the last state also in memory that outlives the worker

    // Reports
    std::string log_json;  ///< empty: none
    std::int64_t log_interval = 10;
    std::string tensorboard;               ///< folder of event files; empty: none
    std::optional<ProfileWindow> profile;  ///< steps to trace
    std::string profile_dir = ".";
    bool memory_summary = false;
    std::string load_svg;  ///< picture of the ranks' load; empty: none
    bool gpu_monitor = false;
};

/// The schedule that `options` ask for. `pictures_per_step` are those of the whole job.
[[nodiscard]] ScheduleOptions schedule_of(
    const Options& options, std::int64_t steps_per_epoch, std::int64_t pictures_per_step
);

/// A job that changes its number of ranks makes longer or shorter steps from then on, while epochs
/// and the schedule go by pictures. Gives how many of today's steps the job is ahead of the `step`
/// that it has counted: 0 as long as nothing has changed. `left` are today's steps to the end of
/// the epoch after the last finished one, `epoch` (from 0; -1: none).
[[nodiscard]] std::int64_t schedule_shift(
    std::int64_t step, std::int64_t epoch, std::int64_t left, std::int64_t steps_per_epoch
);

/// The total of steps that `options` ask for with `steps_per_epoch`, which must be positive, of a
/// job that is `shift` steps ahead.
[[nodiscard]] std::int64_t total_steps(
    const Options& options, std::int64_t steps_per_epoch, std::int64_t shift = 0
);

/// What --help or --version prints; the program ends with status 0.
struct InformationText {
    std::string text;
};

using CommandLine = std::variant<Options, InformationText>;

/// `arguments` without the program's name. A later source wins: --recipe, --config, the command
/// line. Errors: invalid_argument, one line that names the option and the value; of --config's file
/// not_found.
[[nodiscard]] Result<CommandLine> parse_options(std::span<const std::string> arguments);

/// KIND or KIND:DIR, as --data takes it.
[[nodiscard]] std::string to_string(const DataSource& source);

/// The options as --print_config shows them and a checkpoint's "args" keeps them: name (without
/// hyphens) and value, in the order of --help; those that have no value are left out.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> describe_options(
    const Options& options
);

}  // namespace ddprun::trainer
