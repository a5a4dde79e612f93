// The folder of a job's checkpoints: which one it goes on from.
#pragma once

#include "proto/log.h"
#include "proto/result.h"
#include "trainer/checkpoint.h"

#include <filesystem>
#include <optional>

namespace ddprun::trainer {

struct FoundCheckpoint {
    std::filesystem::path path;
    TrainingState state;
};

/// The newest readable *.pt of `dir`: step-*.pt by their numbers, then others (best.pt) by their
/// time; none where the folder is missing or has none. A damaged one is skipped with a warning that
/// names it. Errors: malformed where the newest readable one does not fit `model`, or where there
/// are only damaged ones; unsupported where it is no checkpoint at all.
[[nodiscard]] Result<std::optional<FoundCheckpoint>> newest_good_checkpoint(
    const std::filesystem::path& dir, const NamedTensors& model, Log& log
);

}  // namespace ddprun::trainer
