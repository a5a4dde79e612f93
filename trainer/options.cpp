#include "trainer/options.h"

#include "proto/limits.h"
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

Group data_group(Options& o) {
    return {
        "Data",
        {
            {"--data",
             "KIND[:DIR]",
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
            {"--workers",
             "N",
             "Loader threads; 0 loads in the training thread [2]",
             whole_number(o.workers, 0, limits::kLoaderThreadsMax)},
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

/// "--batch-size=3" as "--batch_size=3"; values and short options stay.
std::string with_underscores(std::string argument) {
    if (!argument.starts_with("--") || argument.size() == 2) {
        return argument;
    }
    const std::size_t end = std::min(argument.find('='), argument.size());
    std::replace(
        argument.begin() + 2, argument.begin() + static_cast<std::ptrdiff_t>(end), '-', '_'
    );
    return argument;
}

/// A file of "name = value" lines; # begins a comment. Names take hyphens, too.
class ConfigFile final : public CLI::ConfigBase {
public:
    [[nodiscard]] std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
        auto read = ConfigBase::from_config(input);
        for (auto& item : read) {
            std::replace(item.name.begin(), item.name.end(), '-', '_');
        }
        return read;
    }
};

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
        app_.config_formatter(std::make_shared<ConfigFile>());
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

    [[nodiscard]] Result<std::optional<InformationText>> parse(std::vector<std::string> reversed) {
        try {
            app_.parse(std::move(reversed));
        } catch (const CLI::CallForHelp&) {
            return InformationText{app_.help()};
        } catch (const CLI::CallForVersion& version) {
            return InformationText{std::string(version.what()) + "\n"};
        } catch (const CLI::ParseError& error) {
            return fail(describe(error));
        }
        if (const auto applied = apply_recipe(); !applied) {
            return fail(applied.error());
        }
        for (const Given& each : given_) {
            if (const auto taken = take(*each.row, each.value, ""); !taken) {
                return fail(taken.error());
            }
        }
        return std::optional<InformationText>{};
    }

    [[nodiscard]] bool print_config() const { return print_config_; }

private:
    static std::string recipe_help() {
        std::string names;
        for (const std::string_view name : recipe_names()) {
            names += names.empty() ? "" : ", ";
            names += name;
        }
        return "Settings of a known recipe, which any option overrides: " + names;
    }

    void add(const std::string& group, const Row& row) {
        CLI::Option* option = nullptr;
        if (row.placeholder.empty()) {
            option = app_.add_flag_function(
                row.name,
                [this, &row](std::int64_t count) {
                    given_.push_back({&row, count > 0 ? "true" : "false"});
                },
                row.help
            );
        } else {
            option = app_.add_option_function<std::string>(
                             row.name,
                             [this, &row](const std::string& value) {
                                 given_.push_back({&row, value});
                             },
                             row.help
            )
                         ->option_text(row.placeholder);
        }
        option->group(group)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
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

    [[nodiscard]] Error describe(const CLI::ParseError& error) const {
        std::string text = error.what();
        Errc code = Errc::invalid_argument;
        if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
            const std::vector<std::string> unknown = app_.remaining();
            const std::string first = unknown.empty() ? "" : unknown.front();
            text = fmt::format(
                "{} {}; trainer --help lists the options",
                first.starts_with("-") ? "unknown option" : "unexpected argument",
                first
            );
        } else if (dynamic_cast<const CLI::ConfigError*>(&error) != nullptr) {
            text = "--config: " + text;
        } else if (dynamic_cast<const CLI::FileError*>(&error) != nullptr) {
            text = "--config: " + text;
            code = Errc::not_found;
        } else if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
            text = text.substr(0, text.find(':')) + ": needs a value";
        }
        std::replace(text.begin(), text.end(), '\n', ' ');
        return Error{code, text};
    }

    std::vector<Group> groups_;
    std::vector<Given> given_;
    std::string recipe_;
    bool print_config_ = false;
    CLI::App app_{
        "Trains a ResNet, alone or as one worker of a data-parallel job (ddprun, torchrun).\n"
        "`trainer export --help` tells how checkpoints become other files.\n"
        "Names take underscores or hyphens; defaults are in brackets.",
        "trainer"};
};

std::optional<std::string> conflict(const Options& options) {
    const bool sgd = options.optimizer == OptimizerChoice::sgd;
    if (options.nesterov && (options.momentum == 0.0 || !sgd)) {
        return "--nesterov: needs --optimizer=sgd and a --momentum above 0";
    }
    if (options.find_unused_parameters && options.static_graph) {
        return "--find_unused_parameters: not together with --static_graph, which finds them "
               "itself";
    }
    if (options.model_parallel > 1 && options.data_parallel > 1) {
        return "--model_parallel: not together with --data_parallel, which wants the same devices";
    }
    if (options.sync_bn && options.data_parallel > 1) {
        return "--sync_bn: counts over ranks, not over the replicas of --data_parallel";
    }
    return std::nullopt;
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
    Parser parser(options);
    // CLI11 takes the arguments from the back.
    std::vector<std::string> reversed;
    for (auto argument = arguments.rbegin(); argument != arguments.rend(); ++argument) {
        reversed.push_back(with_underscores(*argument));
    }
    auto information = parser.parse(std::move(reversed));
    if (!information) {
        return fail(information.error());
    }
    if (*information) {
        return CommandLine{std::move(**information)};
    }
    if (const auto text = conflict(options)) {
        return fail(Errc::invalid_argument, *text);
    }
    if (parser.print_config()) {
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
