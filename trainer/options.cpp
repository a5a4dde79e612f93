#include "trainer/options.h"

#include "proto/limits.h"
#include "trainer/arguments.h"
#include "trainer/option_values.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

namespace ddprun::trainer {

namespace {

constexpr std::int64_t kDefaultEpochs = 90;
constexpr double kRateMax = 1e6;
constexpr float kDeviationMin = 1e-6F;
constexpr double kBucketMegabytesMax = 65'536.0;

std::string place(std::string_view option, std::string_view value) {
    return fmt::format("{}={}", option, value);
}

struct Row {
    std::string name;
    std::string placeholder;  ///< empty: a flag
    std::string help;
    Setter set;
};

struct Group {
    std::string title;
    std::vector<Row> rows;
};

Group model_group(Options& o) {
    std::vector<std::pair<std::string, std::string>> models;
    for (const char* name : {"resnet18", "resnet34", "resnet50", "resnet101", "resnet152"}) {
        models.emplace_back(name, name);
    }
    return {
        "Model",
        {
            {"--model",
             "NAME",
             "resnet18, 34, 50, 101 or 152 [resnet50]",
             one_of(o.model, std::move(models))},
            {"--num_classes",
             "N",
             "Outputs of the model [those of the data]",
             whole_number(o.num_classes, 1, limits::kClassesMax)},
            {"--zero_init_residual",
             "",
             "Each block begins as the identity",
             flag(o.zero_init_residual, true)},
        }};
}

Group data_group(Options& o) {
    return {
        "Data",
        {
            {"--data",
             "KIND[:DIR]",
             "imagefolder:DIR (train/ and val/ as of ImageNet), packed:DIR (made by trainer "
             "pack), cifar10:DIR (binary version), "
             "fashion-mnist[:DIR] (Debian's package dataset-fashion-mnist without DIR) or "
             "synthetic[:COUNT] [synthetic:1281167]",
             data_source(o.data)},
            {"--image_size",
             "N",
             "Height and width of the pictures [those of the data]",
             whole_number(o.image_size, 1, limits::kImageSizeMax)},
            {"--limit_train",
             "N",
             "Use only the first N pictures of the training split",
             whole_number(o.limit_train, 1, limits::kSamplesMax)},
            {"--limit_test",
             "N",
             "Use only the first N pictures of the test split",
             whole_number(o.limit_test, 1, limits::kSamplesMax)},
            {"--augment",
             "NAME",
             "none or standard: random crops and mirroring of training pictures [none]",
             one_of<Augment>(
                 o.augment, {{"none", Augment::none}, {"standard", Augment::standard}}
             )},
            {"--mean",
             "R,G,B",
             "Subtracted from pictures of 0 to 1; one number for all [usual for the data]",
             channel_numbers(o.mean, 0.0F)},
            {"--std",
             "R,G,B",
             "Divides pictures after --mean [usual for the data]",
             channel_numbers(o.std, kDeviationMin)},
            {"--max_bad_samples",
             "N",
             "Broken pictures that each worker skips and names [10]",
             whole_number(o.max_bad_samples, 0, limits::kBadSamplesMax)},
            {"--no_jpeg_scaling",
             "",
             "Decode JPEGs in full where a random crop is made much smaller",
             flag(o.jpeg_scaling, false)},
            {"--bench_data",
             "",
             "Only read the training data, once or for --epochs or --steps; print images/s",
             flag(o.bench_data, true)},
            {"--workers",
             "N",
             "Loader threads; 0 loads in the training thread [2]",
             whole_number(o.workers, 0, limits::kLoaderThreadsMax)},
        }};
}

Group training_group(Options& o) {
    return {
        "Training",
        {
            {"--batch_size",
             "N",
             "Pictures in a batch of each rank [32]",
             whole_number(o.batch_size, 1, limits::kBatchSizeMax)},
            {"--epochs",
             "N",
             "Passes over the data [90, or as many as --steps needs]",
             whole_number(o.epochs, 0, limits::kStepsMax)},
            {"--steps",
             "N",
             "Steps of the job, over all restarts; 0 only writes a checkpoint",
             whole_number(o.steps, 0, limits::kStepsMax)},
            {"--lr", "RATE", "Learning rate [0.1]", real_number(o.lr, 0.0, kRateMax)},
            {"--momentum", "M", "Momentum of SGD [0]", real_number(o.momentum, 0.0, 1.0)},
            {"--weight_decay",
             "W",
             "Weight decay of SGD [0]",
             real_number(o.weight_decay, 0.0, kRateMax)},
            {"--nesterov", "", "Nesterov momentum", flag(o.nesterov, true)},
            {"--seed",
             "N",
             "Of the first weights and of the order of the data [0]",
             seed_number(o.seed)},
            {"--deterministic", "", "The same bits in every run", flag(o.deterministic, true)},
        }};
}

Group device_group(Options& o) {
    return {
        "Device",
        {
            {"--device",
             "NAME",
             "cpu, cuda or auto (a GPU where there is one) [auto]",
             one_of<DeviceChoice>(
                 o.device,
                 {{"cpu", DeviceChoice::cpu},
                  {"cuda", DeviceChoice::cuda},
                  {"auto", DeviceChoice::automatic}}
             )},
            {"--threads",
             "N",
             "Threads of each rank's operators [OMP_NUM_THREADS, else all CPUs]",
             whole_number(o.threads, 1, limits::kLoaderThreadsMax)},
            {"--channels_last",
             "",
             "Keep pictures and weights with the channels innermost",
             flag(o.channels_last, true)},
        }};
}

Group parallel_group(Options& o) {
    return {
        "Data parallel",
        {
            {"--init_timeout",
             "SECONDS",
             "For all ranks to connect to each other [60]",
             seconds_number(o.init_timeout)},
            {"--bucket_cap_mb",
             "MB",
             "Size of a bucket of gradients [25]",
             real_number(o.bucket_cap_mb, 1e-6, kBucketMegabytesMax)},
            {"--find_unused_parameters",
             "",
             "Some parameters get no gradient in some steps",
             flag(o.find_unused_parameters, true)},
            {"--static_graph",
             "",
             "Every step uses the same parameters in the same order",
             flag(o.static_graph, true)},
            {"--no_broadcast_buffers",
             "",
             "Each rank keeps its own batch norm statistics",
             flag(o.broadcast_buffers, false)},
            {"--no_gradient_as_bucket_view",
             "",
             "Gradients have memory of their own",
             flag(o.gradient_as_bucket_view, false)},
            {"--comm_hook",
             "NAME",
             "none, allreduce, fp16 or bf16 [none]",
             one_of<GradientHook>(
                 o.comm_hook,
                 {{"none", GradientHook::none},
                  {"allreduce", GradientHook::allreduce},
                  {"fp16", GradientHook::fp16_compress},
                  {"bf16", GradientHook::bf16_compress}}
             )},
        }};
}

Group checkpoint_group(Options& o) {
    return {
        "Checkpoints",
        {
            {"--checkpoint_dir",
             "DIR",
             "Write checkpoints here, and go on from the newest one",
             any_text(o.checkpoint_dir)},
            {"--checkpoint_every",
             "N",
             "Steps between checkpoints, beside those at the start, after epochs and at the end",
             whole_number(o.checkpoint_every, 0, limits::kStepsMax)},
            {"--keep",
             "N",
             "Newest checkpoints that stay [3]",
             whole_number(o.keep, 1, limits::kCheckpointsKeptMax)},
            {"--resume",
             "FILE",
             "Start from this one where --checkpoint_dir has none",
             any_text(o.resume)},
        }};
}

Group report_group(Options& o) {
    return {
        "Reports",
        {
            {"--log_json",
             "FILE",
             "A JSON object a line for every step and evaluation",
             any_text(o.log_json)},
            {"--log_interval,--print_freq",
             "N",
             "Steps between progress lines [10]",
             whole_number(o.log_interval, 1, limits::kStepsMax)},
        }};
}

std::vector<Group> all_groups(Options& options) {
    return {
        model_group(options),
        data_group(options),
        training_group(options),
        device_group(options),
        parallel_group(options),
        checkpoint_group(options),
        report_group(options)};
}

void add_row(CLI::App& app, const std::string& group, const Row& row) {
    if (!row.placeholder.empty()) {
        add_value(app, row.name, row.placeholder, row.help, row.set).group(group);
        return;
    }
    const std::string first_name = row.name.substr(0, row.name.find(','));
    const auto take = [first_name, set = row.set](std::int64_t count) {
        const std::string value = count > 0 ? "true" : "false";
        if (const Complaint complaint = set(value)) {
            throw CLI::ValidationError(place(first_name, value), *complaint);
        }
    };
    app.add_flag_function(row.name, take, row.help)
        ->group(group)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

std::optional<std::string> conflict(const Options& options) {
    if (options.nesterov && options.momentum == 0.0) {
        return "--nesterov: needs a --momentum above 0";
    }
    if (options.find_unused_parameters && options.static_graph) {
        return "--find_unused_parameters: not together with --static_graph, which finds them "
               "itself";
    }
    return std::nullopt;
}

}  // namespace

std::int64_t total_steps(const Options& options, std::int64_t steps_per_epoch) {
    std::optional<std::int64_t> epochs = options.epochs;
    if (!epochs && !options.steps) {
        epochs = kDefaultEpochs;
    }
    std::int64_t total = options.steps.value_or(std::numeric_limits<std::int64_t>::max());
    if (epochs && *epochs <= total / steps_per_epoch) {
        total = *epochs * steps_per_epoch;
    }
    return total;
}

Result<CommandLine> parse_options(std::span<const std::string> arguments) {
    Options options;
    CLI::App app{
        "Trains a ResNet, alone or as one worker of a data-parallel job (ddprun, torchrun).\n"
        "trainer pack SRC OUT decodes a folder of pictures once (trainer pack --help).\n"
        "Names take underscores or hyphens; defaults are in brackets.",
        "trainer"};
    app.set_help_flag("-h,--help", "This text");
    app.set_version_flag("--version", std::string("trainer ") + DDPRUN_VERSION);
    for (const Group& group : all_groups(options)) {
        for (const Row& row : group.rows) {
            add_row(app, group.title, row);
        }
    }
    auto information = parse_arguments(app, arguments);
    if (!information) {
        return fail(std::move(information.error()));
    }
    if (*information) {
        return CommandLine{std::move(**information)};
    }
    if (const auto text = conflict(options)) {
        return fail(Errc::invalid_argument, *text);
    }
    return CommandLine{std::move(options)};
}

std::vector<std::pair<std::string, std::string>> describe_options(const Options& options) {
    std::vector<std::pair<std::string, std::string>> described{
        {"model", options.model},
        {"data", to_string(options.data)},
        {"augment", options.augment == Augment::standard ? "standard" : "none"},
        {"batch_size", std::to_string(options.batch_size)},
        {"lr", fmt::format("{}", options.lr)},
        {"momentum", fmt::format("{}", options.momentum)},
        {"weight_decay", fmt::format("{}", options.weight_decay)},
        {"nesterov", options.nesterov ? "true" : "false"},
        {"seed", std::to_string(options.seed)},
        {"deterministic", options.deterministic ? "true" : "false"},
    };
    const auto add = [&described](const char* name, const auto& value) {
        if (value) {
            described.emplace_back(name, std::to_string(*value));
        }
    };
    add("num_classes", options.num_classes);
    add("image_size", options.image_size);
    add("epochs", options.epochs);
    add("steps", options.steps);
    return described;
}

}  // namespace ddprun::trainer
