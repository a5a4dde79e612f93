#include "trainer/options.h"

#include "proto/limits.h"
#include "trainer/arguments.h"
#include "trainer/config_file.h"
#include "trainer/data.h"
#include "trainer/option_groups.h"
#include "trainer/recipes.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

namespace ddprun::trainer {

namespace {

constexpr std::int64_t kDefaultEpochs = 90;

using Row = OptionRow;
using Group = OptionGroup;

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
            {"--weights",
             "FILE",
             "Begin with these (.pth, .pt or .safetensors) instead of drawn ones",
             any_text(o.weights)},
        }};
}

std::vector<Group> all_groups(Options& options) {
    return {
        model_group(options),
        data_group(options),
        training_group(options),
        optimizer_group(options),
        schedule_group(options),
        regularization_group(options),
        device_group(options),
        parallel_group(options),
        checkpoint_group(options),
        report_group(options)};
}

struct Given {
    const Row* row;
    std::string value;
};

Result<void> take(const Row& row, const std::string& value, std::string_view source) {
    if (const Complaint complaint = row.set(value)) {
        return fail(
            Errc::invalid_argument,
            fmt::format("--{}={}: {}{}", row.key(), value, *complaint, source)
        );
    }
    return {};
}

/// One parse of a command line: CLI11 only collects, so that a recipe's settings, wherever the
/// recipe is named, come before what is given.
class Parser {
public:
    explicit Parser(Options& options) : groups_(all_groups(options)) {
        app_.set_help_flag("-h,--help", "This text");
        app_.set_version_flag("--version", std::string("trainer ") + DDPRUN_VERSION);
        app_.config_formatter(config_);
        app_.allow_config_extras(CLI::config_extras_mode::error);
        const std::string group = "Settings";
        app_.add_option("--recipe", recipe_, recipe_help())
            ->option_text("NAME")
            ->group(group)
            ->configurable(false)
            ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
        app_.set_config("--config", "", "Read options from this file, name = value lines")
            ->option_text("FILE")
            ->group(group);
        app_.add_flag("--print_config", print_config_, "Show all settings, as --config takes them")
            ->group(group)
            ->configurable(false);
        for (const Group& each : groups_) {
            for (const Row& row : each.rows) {
                add(each.title, row);
            }
        }
    }

    [[nodiscard]] Result<std::optional<InformationText>> parse(
        std::span<const std::string> arguments
    ) {
        auto information = parse_arguments(app_, arguments);
        if (!information || *information) {
            return information;
        }
        if (auto applied = apply_recipe(); !applied) {
            return fail(std::move(applied.error()));
        }
        for (const Given& each : given_) {
            if (auto taken = take(*each.row, each.value, source_of(*each.row, arguments)); !taken) {
                return fail(std::move(taken.error()));
            }
        }
        return information;
    }

    [[nodiscard]] bool print_config() const { return print_config_; }

private:
    [[nodiscard]] bool is_in_file(const std::string& name) const {
        return std::ranges::any_of(groups_, [&](const Group& group) {
            return std::ranges::any_of(group.rows, [&](const Row& row) {
                return fmt::format(",{},", row.name).find(fmt::format(",--{},", name)) !=
                       std::string::npos;
            });
        });
    }

    /// Where a value comes from, where that isn't the command line.
    [[nodiscard]] std::string source_of(const Row& row, std::span<const std::string> arguments)
        const {
        const std::string name{row.key()};
        const auto line = config_->line_of(name);
        const bool is_given = std::ranges::any_of(arguments, [&](std::string argument) {
            std::ranges::replace(argument, '-', '_');
            return argument == "__" + name || argument.starts_with("__" + name + "=");
        });
        if (!line || is_given) {
            return {};
        }
        return fmt::format(" ({}, line {})", app_.get_config_ptr()->as<std::string>(), *line);
    }

    static std::string recipe_help() {
        std::string names;
        for (const std::string_view name : recipe_names()) {
            names += names.empty() ? "" : ", ";
            names += name;
        }
        return "Settings of a known recipe, which any option overrides: " + names;
    }

    void add(const std::string& group, const Row& row) {
        if (!row.placeholder.empty()) {
            const Setter collect{[this, &row](std::string_view value) -> Complaint {
                given_.push_back({&row, std::string(value)});
                return std::nullopt;
            }};
            add_value(app_, row.name, row.placeholder, row.help, collect).group(group);
            return;
        }
        const auto collect = [this, &row](std::int64_t count) {
            given_.push_back({&row, count > 0 ? "true" : "false"});
        };
        app_.add_flag_function(row.name, collect, row.help)
            ->group(group)
            ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }

    [[nodiscard]] Result<void> apply_recipe() {
        if (recipe_.empty()) {
            return {};
        }
        const auto settings = recipe_settings(recipe_);
        if (!settings) {
            return fail(
                Errc::invalid_argument,
                fmt::format("--recipe={}: not one of {}", recipe_, fmt::join(recipe_names(), ", "))
            );
        }
        for (const auto& [option, value] : *settings) {
            for (const Group& group : groups_) {
                for (const Row& row : group.rows) {
                    if (row.key() != option) {
                        continue;
                    }
                    const auto source = fmt::format(" (recipe {})", recipe_);
                    if (const auto taken = take(row, std::string(value), source); !taken) {
                        return taken;
                    }
                }
            }
        }
        return {};
    }

    std::vector<Group> groups_;
    std::vector<Given> given_;
    std::shared_ptr<ConfigFile> config_ =
        std::make_shared<ConfigFile>([this](const std::string& name) { return is_in_file(name); });
    std::string recipe_;
    bool print_config_ = false;
    CLI::App app_{
        "Trains a ResNet, alone or as one worker of a data-parallel job (ddprun, torchrun).\n"
        "trainer pack SRC OUT decodes a folder of pictures once (trainer pack --help).\n"
        "trainer export IN OUT writes a checkpoint's weights as another file (trainer export "
        "--help).\n"
        "Names take underscores or hyphens; defaults are in brackets.",
        "trainer"};
};

/// What a recorded step can't hold: decisions of the host, or waits for the device.
std::optional<std::string> graph_conflict(const Options& options) {
    const std::pair<bool, const char*> reasons[] = {
        {options.device == DeviceChoice::cpu, "--device=cpu, which has no such graphs"},
        {options.amp == Precision::fp16, "--amp=fp16, whose steps may be left out; take bf16"},
        {options.grad_accum_steps > 1, "--grad_accum_steps above 1"},
        {options.model_parallel > 1, "--model_parallel"},
        {options.data_parallel > 1, "--data_parallel"},
        {options.sync_bn, "--sync_bn, which waits for the other ranks"},
        {options.find_unused_parameters, "--find_unused_parameters, which looks at every step"},
        {options.comm_hook == GradientHook::power_sgd, "--comm_hook=powersgd, which waits"},
    };
    for (const auto& [found, what] : reasons) {
        if (options.cuda_graph && found) {
            return fmt::format("--cuda_graph: not together with {}", what);
        }
    }
    return std::nullopt;
}

std::optional<std::string> conflict(const Options& options) {
    const bool sgd = options.optimizer == OptimizerChoice::sgd;
    if (options.nesterov && (options.momentum == 0.0 || !sgd)) {
        return "--nesterov: needs --optimizer=sgd and a --momentum above 0";
    }
    if (options.find_unused_parameters && options.static_graph) {
        return "--find_unused_parameters: not together with --static_graph, which finds them "
               "itself";
    }
    if (options.static_graph && options.grad_accum_steps > 1) {
        return "--static_graph: not together with --grad_accum_steps above 1: PyTorch's Reducer "
               "learns the graph from a first step without pauses";
    }
    if (options.model_parallel > 1 && options.data_parallel > 1) {
        return "--model_parallel: not together with --data_parallel, which wants the same devices";
    }
    if (options.sync_bn && options.data_parallel > 1) {
        return "--sync_bn: counts over ranks, not over the replicas of --data_parallel";
    }
    return graph_conflict(options);
}

std::string config_text(const Options& options) {
    std::string text;
    for (const auto& [name, value] : describe_options(options)) {
        // Quoted where the reader of the file would take the text for something else.
        const bool plain = value.find_first_of(" ,;#\"'[]") == std::string::npos;
        text += fmt::format("{} = {}\n", name, plain ? value : '"' + value + '"');
    }
    return text;
}

std::int64_t steps_of_epochs(double epochs, std::int64_t steps_per_epoch) {
    return std::llround(epochs * static_cast<double>(steps_per_epoch));
}

}  // namespace

ScheduleOptions schedule_of(
    const Options& options, std::int64_t steps_per_epoch, std::int64_t pictures_per_step
) {
    ScheduleOptions schedule;
    schedule.kind = options.lr_scheduler;
    schedule.lr = options.lr;
    if (options.lr_batch) {
        schedule.lr *=
            static_cast<double>(pictures_per_step) / static_cast<double>(*options.lr_batch);
    }
    schedule.lr_min = options.lr_min;
    schedule.gamma = options.lr_gamma;
    schedule.power = options.lr_power;
    const double period = options.lr_scheduler == ScheduleKind::step ? options.lr_step_size : 1.0;
    schedule.period = std::max<std::int64_t>(1, steps_of_epochs(period, steps_per_epoch));
    schedule.total_steps = total_steps(options, steps_per_epoch);
    schedule.warmup_steps = steps_of_epochs(options.lr_warmup_epochs, steps_per_epoch);
    schedule.warmup = options.lr_warmup_method;
    schedule.warmup_factor = options.lr_warmup_decay;
    return schedule;
}

std::int64_t schedule_shift(
    std::int64_t step, std::int64_t epoch, std::int64_t left, std::int64_t steps_per_epoch
) {
    return (epoch + 2) * steps_per_epoch - left - step;
}

std::int64_t total_steps(const Options& options, std::int64_t steps_per_epoch, std::int64_t shift) {
    std::optional<std::int64_t> epochs = options.epochs;
    if (!epochs && !options.steps) {
        epochs = kDefaultEpochs;
    }
    std::int64_t total = options.steps.value_or(std::numeric_limits<std::int64_t>::max());
    if (epochs && *epochs <= std::numeric_limits<std::int64_t>::max() / 2 / steps_per_epoch) {
        total = std::min(total, *epochs * steps_per_epoch - shift);
    }
    return total;
}

Result<CommandLine> parse_options(std::span<const std::string> arguments) {
    Options options;
    Parser parser(options);
    auto information = parser.parse(arguments);
    if (!information) {
        return fail(std::move(information.error()));
    }
    if (*information) {
        return CommandLine{std::move(**information)};
    }
    if (const auto text = conflict(options)) {
        return fail(Errc::invalid_argument, *text);
    }
    if (parser.print_config()) {
        // Packed pictures bring theirs along, and made ones have none.
        if (options.data.kind != DataKind::packed && options.data.kind != DataKind::synthetic) {
            const Normalisation usual = usual_normalisation(options.data.kind);
            options.mean = options.mean.value_or(usual.mean);
            options.std = options.std.value_or(usual.deviation);
        }
        return CommandLine{InformationText{config_text(options)}};
    }
    return CommandLine{std::move(options)};
}

std::vector<std::pair<std::string, std::string>> describe_options(const Options& options) {
    Options shown = options;
    std::vector<std::pair<std::string, std::string>> described;
    for (const Group& group : all_groups(shown)) {
        for (const Row& row : group.rows) {
            if (auto value = row.set.show()) {
                described.emplace_back(row.key(), std::move(*value));
            }
        }
    }
    return described;
}

}  // namespace ddprun::trainer
