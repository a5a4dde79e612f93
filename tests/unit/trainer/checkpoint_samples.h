// What the tests of checkpoints share: a small state, Python, logs.
#pragma once

#include "proto/log.h"
#include "tests/support/command.h"
#include "tests/unit/trainer/temp_folder.h"
#include "trainer/checkpoint.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddprun::trainer {

namespace fs = std::filesystem;

/// Keeps the lines for a look afterwards.
class LineLog final : public Log {
public:
    void write(LogLevel, std::string_view line) override { lines.emplace_back(line); }

    [[nodiscard]] bool enabled(LogLevel) const override { return true; }

    std::vector<std::string> lines;
};

inline TrainingState small_state() {
    torch::manual_seed(3);
    TrainingState state;
    state.model = {
        {"conv.weight", torch::randn({4, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast)},
        {"bn.num_batches_tracked", torch::tensor(std::int64_t{17})},
        {"fc.weight", torch::randn({2, 4}).t()},
        {"fc.bias", torch::randn({4}, torch::kDouble)},
    };
    state.optimizer.options = {.momentum = 0.9, .nesterov = true};
    state.optimizer.groups = {
        {.parameters = 2, .lr = 0.05, .initial_lr = 0.1, .weight_decay = 1e-4},
        {.parameters = 1, .lr = 0.05, .initial_lr = 0.1, .weight_decay = 0.0}};
    state.optimizer.state = {
        {{"momentum_buffer", torch::randn({4, 3, 2, 2})}},
        {},
        {{"momentum_buffer", torch::randn({4})}}};
    state.scaler = GradScalerState{.scale = 1024.0, .growth_tracker = 17};
    for (const auto& [name, tensor] : state.model) {
        state.model_ema.emplace_back(name, tensor.clone());
    }
    state.ema_updates = 5;
    state.best_top1 = 71.25;
    state.epoch = 2;
    state.step = 123;
    state.position = 4'096;
    state.rng = torch::randint(0, 255, {64}, torch::kUInt8);
    state.ddp_buckets = {{2, 1}, {0}};
    state.args = {{"model", "resnet18"}, {"seed", "0"}};
    return state;
}

inline void check_equal(const NamedTensors& left, const NamedTensors& right) {
    REQUIRE(left.size() == right.size());
    for (std::size_t i = 0; i < left.size(); ++i) {
        CHECK(left[i].first == right[i].first);
        CHECK(left[i].second.dtype() == right[i].second.dtype());
        CHECK_MESSAGE(torch::equal(left[i].second, right[i].second), left[i].first);
    }
}

inline NamedTensors state_dict_of(const torch::nn::Module& module) {
    NamedTensors named;
    for (const auto& entry : module.named_parameters()) {
        named.emplace_back(entry.key(), entry.value());
    }
    for (const auto& entry : module.named_buffers()) {
        named.emplace_back(entry.key(), entry.value());
    }
    return named;
}

inline std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) {
        names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

inline std::string run_python(
    const std::string& program, const std::vector<std::string>& arguments
) {
    std::vector<std::string> argv{DDPRUN_PYTHON, "-c", program};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    const auto result =
        test::run_command({.argv = std::move(argv), .deadline = std::chrono::seconds(90)});
    REQUIRE_MESSAGE(result.exit_code == 0, test::describe(result), result.err);
    return result.out;
}

inline bool has_python() {
    return !std::string_view(DDPRUN_PYTHON).empty();
}

}  // namespace ddprun::trainer
