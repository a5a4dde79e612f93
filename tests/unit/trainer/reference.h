// What PyTorch and torchvision compute, by tests/support/trainer_reference.py: lines of a name and
// numbers. One start of Python for each CASE of it.
#pragma once

#include "tests/support/command.h"

#include <ATen/core/Tensor.h>
#include <doctest/doctest.h>
#include <torch/types.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace ddprun::trainer::test {

using Reference = std::map<std::string, std::vector<double>>;

inline bool has_python() {
    return !std::string(DDPRUN_PYTHON).empty();
}

inline Reference reference(const std::string& name) {
    const auto result = ddprun::test::run_command(
        {.argv = {DDPRUN_PYTHON, DDPRUN_SOURCE_DIR "/tests/support/trainer_reference.py", name},
         .env = {"OMP_NUM_THREADS=1"},
         .deadline = std::chrono::seconds(240)}
    );
    REQUIRE_MESSAGE(result.exit_code == 0, ddprun::test::describe(result), result.err);
    Reference values;
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string key;
        words >> key;
        for (std::string word; words >> word;) {
            values[key].push_back(std::strtod(word.c_str(), nullptr));
        }
    }
    return values;
}

/// sin(0.37 i + phase), as the script has it.
inline at::Tensor wave(std::int64_t count, double phase = 0.0) {
    return torch::sin(torch::arange(count, torch::kDouble) * 0.37 + phase);
}

/// The largest difference, relative to the largest number.
inline double difference(const at::Tensor& ours, const std::vector<double>& theirs) {
    const at::Tensor flat = ours.detach().to(torch::kDouble).reshape({-1}).contiguous();
    REQUIRE(flat.numel() == static_cast<std::int64_t>(theirs.size()));
    double largest = 0.0;
    double scale = 1e-300;
    for (std::size_t i = 0; i < theirs.size(); ++i) {
        largest = std::max(largest, std::abs(flat.const_data_ptr<double>()[i] - theirs[i]));
        scale = std::max(scale, std::abs(theirs[i]));
    }
    return largest / scale;
}

}  // namespace ddprun::trainer::test
