// Checkpoints: what a job needs to go on exactly where it was, in a file that Python reads with
// torch.load(weights_only=True). "model" is a state_dict with torchvision's names, "optimizer" that
// of torch.optim.SGD or AdamW, and "lr_scheduler", "scaler", "model_ema", "epoch" and "args" are
// those of torchvision's reference scripts, which can resume from it; "step", "position",
// "best_top1", "rng" and "ddp_buckets" are ours.
//
// A file appears whole or not at all: it is written under another suffix, flushed to the disk and
// renamed. A checksum over all of it, in the zip's comment, tells damage (checkpoint_reader.h).
#pragma once

#include "proto/result.h"
#include "trainer/named_tensors.h"
#include "trainer/optimizer_record.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddprun::trainer {

struct TrainingState {
    NamedTensors model;  ///< parameters and buffers with torchvision's names
    OptimizerRecord optimizer;
    std::optional<ScheduleRecord> schedule;  ///< written only: the options say what it is
    std::optional<GradScalerState> scaler;
    NamedTensors model_ema;        ///< the names of `model`; empty: none is kept
    std::int64_t ema_updates = 0;  ///< that model_ema has seen

    std::int64_t epoch = -1;    ///< the last one that was finished; -1: none
    std::int64_t step = 0;      ///< steps done, over all restarts
    std::int64_t position = 0;  ///< pictures of epoch + 1 that all ranks together have consumed
    double best_top1 = -1.0;    ///< per cent, of the evaluations so far; below 0: none
    at::Tensor rng;             ///< state of the CPU generator, uint8; undefined: none
    std::vector<std::vector<std::size_t>> ddp_buckets;  ///< layout in force; empty: none yet

    std::vector<std::pair<std::string, std::string>> args;  ///< options, and what else is worth it
};

/// All tensors copied, so that the model may change while the copy is written.
[[nodiscard]] TrainingState snapshot(const TrainingState& state);

/// "step-00000123.pt".
[[nodiscard]] std::string checkpoint_name(std::int64_t step);

/// Writes `state` to `path`; tensors may be on any device. Nothing is left behind on an error: any
/// code but not_found on a missing folder means that the output can't be written (status 73).
[[nodiscard]] Result<void> write_checkpoint(
    const TrainingState& state, const std::filesystem::path& path
);

/// Writes `dir`/checkpoint_name(state.step), makes the folder where it is missing, then removes
/// temporary files of earlier lives and all but the `keep` (at least 1) newest checkpoints. Rank 0
/// only, one at a time. Gives the path.
[[nodiscard]] Result<std::filesystem::path> save_checkpoint(
    const TrainingState& state, const std::filesystem::path& dir, int keep
);

/// The name of the checkpoint with the best evaluation.
inline constexpr std::string_view kBestName = "best.pt";

/// Makes `checkpoint` the best one of its folder, atomically: another name of the same file, or a
/// copy where the file system knows no such thing.
[[nodiscard]] Result<void> mark_best(const std::filesystem::path& checkpoint);

}  // namespace ddprun::trainer
