// Reads checkpoints: ours, and those of torchvision's reference scripts (dicts, lists, numbers,
// strings and tensors; the names of other classes are kept, nothing is ever run).
// Damage is an error, never a crash and never wrong weights.
#pragma once

#include "proto/result.h"
#include "trainer/checkpoint.h"

#include <filesystem>

namespace ddprun::trainer {

/// A whole checkpoint. What a file of another program lacks keeps its default. Errors: not_found,
/// permission_denied, io_error, malformed (damaged), unsupported (no checkpoint).
[[nodiscard]] Result<TrainingState> read_checkpoint(const std::filesystem::path& path);

}  // namespace ddprun::trainer
