// The trainer's command line. Names are those of torchvision's reference scripts where they have
// one; underscores and hyphens are the same, and the last of several wins. What a value may be is
// checked here; whether a file is there, by whoever opens it. No LibTorch in it.
//
// Steps are the job's total over all restarts. With --epochs the smaller of both wins; without
// --epochs only steps count; without both it is 90 epochs, as in torchvision.
#pragma once

#include "proto/result.h"

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

enum class GradientHook { none, allreduce, fp16_compress, bf16_compress };

struct Options {
    // Model
    std::string model = "resnet50";
    std::optional<std::int64_t> num_classes;  ///< unset: those of the data
    bool zero_init_residual = false;

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
    double lr = 0.1;
    double momentum = 0.0;
    double weight_decay = 0.0;
    bool nesterov = false;
    std::uint64_t seed = 0;
    bool deterministic = false;

    // Device
    DeviceChoice device = DeviceChoice::automatic;
    std::optional<int> threads;  ///< of LibTorch's operators; unset: LibTorch's choice
    bool channels_last = false;

    // Data parallel
    std::chrono::seconds init_timeout{60};
    std::optional<double> bucket_cap_mb;
    bool find_unused_parameters = false;
    bool static_graph = false;
    bool broadcast_buffers = true;
    bool gradient_as_bucket_view = true;
    GradientHook comm_hook = GradientHook::none;

    // Checkpoints
    std::string checkpoint_dir;  ///< empty: none are written
    std::int64_t checkpoint_every =
        0;               ///< steps; 0: only at the start, after epochs and at the end
    int keep = 3;        ///< newest checkpoints that stay
    std::string resume;  ///< a checkpoint to start from where checkpoint_dir has none

    // Reports
    std::string log_json;  ///< empty: none
    std::int64_t log_interval = 10;
};

/// The total of steps that `options` ask for with `steps_per_epoch`, which must be positive.
[[nodiscard]] std::int64_t total_steps(const Options& options, std::int64_t steps_per_epoch);

/// What --help or --version prints; the program ends with status 0.
struct InformationText {
    std::string text;
};

using CommandLine = std::variant<Options, InformationText>;

/// `arguments` without the program's name. Errors: invalid_argument, one line that names the option
/// and the value.
[[nodiscard]] Result<CommandLine> parse_options(std::span<const std::string> arguments);

/// KIND or KIND:DIR, as --data takes it.
[[nodiscard]] std::string to_string(const DataSource& source);

/// The options as a checkpoint's "args" keeps them: name (without hyphens) and value, those that
/// have no value left out.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> describe_options(
    const Options& options
);

}  // namespace ddprun::trainer
