#include "trainer/export.h"

#include "proto/standard_output.h"
#include "trainer/checkpoint_reader.h"
#include "trainer/outcome.h"
#include "trainer/resnet.h"
#include "trainer/safetensors_file.h"
#include "trainer/torchscript.h"
#include "trainer/weights.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

namespace ddprun::trainer {
namespace {

struct ExportOptions {
    std::string format;
    std::string model;  ///< empty: the one that the checkpoint names
    bool average = false;
    std::string input;
    std::string output;
};

struct Source {
    NamedTensors weights;
    std::string model;
};

/// A checkpoint's weights or average, or the weights of any other file.
Outcome<Source> read_source(const ExportOptions& options) {
    Source source;
    source.model = options.model;
    if (!is_safetensors(options.input)) {
        auto state = read_checkpoint(options.input);
        if (state) {
            if (options.average && state->model_ema.empty()) {
                return stop_with(
                    exit_code::kData, fmt::format("read {}: no model_ema in it", options.input)
                );
            }
            source.weights = options.average ? state->model_ema : state->model;
            for (const auto& [name, value] : state->args) {
                if (name == "model" && source.model.empty()) {
                    source.model = value;
                }
            }
            return source;
        }
        if (state.error().code != Errc::unsupported) {
            return input_failed(state.error());
        }
    }
    auto weights = read_weights(options.input);
    if (!weights) {
        return input_failed(weights.error());
    }
    source.weights = std::move(*weights);
    return source;
}

Outcome<void> write_torchscript(const Source& source, const ExportOptions& options) {
    const auto shape = resnet_shape(source.model);
    if (!shape) {
        return stop_with(
            exit_code::kUsage,
            source.model.empty()
                ? fmt::format("export {}: it names no model; give --model", options.input)
                : shape.error().context
        );
    }
    const auto head =
        std::find_if(source.weights.begin(), source.weights.end(), [](const auto& entry) {
            return entry.first == "fc.bias";
        });
    ResNet model({
        .shape = *shape,
        .num_classes = head != source.weights.end() ? head->second.numel() : 1,
    });
    NamedTensors target;
    for (const auto& entry : model.named_parameters()) {
        target.emplace_back(entry.key(), entry.value());
    }
    for (const auto& entry : model.named_buffers()) {
        target.emplace_back(entry.key(), entry.value());
    }
    if (auto loaded = load_weights(target, source.weights, options.input); !loaded) {
        return input_failed(loaded.error());
    }
    auto written = save_torchscript(target, *shape, options.output);
    return written ? Outcome<void>{} : output_failed(written.error());
}

Outcome<void> run(const ExportOptions& options) {
    auto source = read_source(options);
    if (!source) {
        return tl::unexpected<Failure>(source.error());
    }
    if (options.format == "torchscript") {
        return write_torchscript(*source, options);
    }
    auto written = write_safetensors(source->weights, options.output);
    return written ? Outcome<void>{} : output_failed(written.error());
}

}  // namespace

int export_weights(std::span<const std::string> arguments, Log& log) {
    ExportOptions options;
    CLI::App app{
        "Writes the weights of a checkpoint (or of a .pth or .safetensors file) in another format.",
        "trainer export"};
    app.add_option("--format", options.format, "safetensors or torchscript")
        ->required()
        ->check(CLI::IsMember({"safetensors", "torchscript"}));
    app.add_option("--model", options.model, "resnet18 ... resnet152 [the checkpoint's own]");
    app.add_flag("--ema", options.average, "The moving average instead of the model");
    app.add_option("input", options.input, "File to read")->required();
    app.add_option("output", options.output, "File to write")->required();
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    try {
        app.parse(reversed);
    } catch (const CLI::CallForHelp&) {
        return print_asked_for("trainer", app.help());
    } catch (const CLI::ParseError& error) {
        std::string text = error.what();
        std::replace(text.begin(), text.end(), '\n', ' ');
        log.error("export: {}", text);
        return exit_code::kUsage;
    }
    const auto done = run(options);
    if (!done) {
        log.error("{}", done.error().line);
        return done.error().status;
    }
    return exit_code::kSuccess;
}

}  // namespace ddprun::trainer
