// Reads checkpoints and weights: ours, torchvision's and other files of Python's torch.save (dicts,
// lists, numbers, strings and tensors; the names of other classes are kept, nothing is ever run).
// Damage is an error, never a crash and never wrong weights.
#pragma once

#include "proto/log.h"
#include "proto/result.h"
#include "trainer/checkpoint.h"

#include <filesystem>
#include <optional>
#include <string_view>

namespace ddprun::trainer {

/// A whole checkpoint. What a file of another program lacks keeps its default. Errors: not_found,
/// permission_denied, io_error, malformed (damaged, or no checkpoint).
[[nodiscard]] Result<TrainingState> read_checkpoint(const std::filesystem::path& path);

/// The weights of a file: a plain state_dict, one below "model" or "state_dict", with or without
/// the prefix "module.".
[[nodiscard]] Result<NamedTensors> read_weights(const std::filesystem::path& path);

/// Copies `weights` into the tensors of `model` (in place, without gradient) if the names and
/// shapes are the same; else changes nothing and fails (malformed) with a list of what is missing,
/// unexpected or of another shape. `source` names where the weights come from. Weights of another
/// floating-point type are converted.
[[nodiscard]] Result<void> load_weights(
    const NamedTensors& model, const NamedTensors& weights, std::string_view source
);

struct FoundCheckpoint {
    std::filesystem::path path;
    TrainingState state;
};

/// The newest readable step-*.pt of `dir`; none where the folder is missing or has no such file.
/// A damaged one is skipped with a warning that names it. Errors: malformed where the newest
/// readable one does not fit `model`, or where there are only damaged ones.
[[nodiscard]] Result<std::optional<FoundCheckpoint>> newest_good_checkpoint(
    const std::filesystem::path& dir, const NamedTensors& model, Log& log
);

}  // namespace ddprun::trainer
