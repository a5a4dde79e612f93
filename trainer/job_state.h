// What a job is made of that a checkpoint holds: model, optimizer, scaler, average and position.
// Found again at start by rank 0 and sent to all ranks, so that nodes without the checkpoint's
// folder can join.
#pragma once

#include "proto/log.h"
#include "trainer/amp.h"
#include "trainer/checkpoint.h"
#include "trainer/ddp.h"
#include "trainer/ema.h"
#include "trainer/optimizer.h"
#include "trainer/options.h"
#include "trainer/outcome.h"
#include "trainer/process_group.h"

#include <torch/nn.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun::trainer {

/// Where a job is. Steps count from 1, epochs from 0.
struct Position {
    std::int64_t step = 0;      ///< steps done, over all restarts
    std::int64_t epoch = -1;    ///< the last one that was finished
    std::int64_t consumed = 0;  ///< pictures of epoch + 1 that all ranks together have seen
    double best_top1 = -1.0;    ///< per cent; below 0: no evaluation yet
};

struct JobParts {
    torch::nn::Module& model;
    Optimizer& optimizer;
    GradScaler* scaler = nullptr;  ///< null: none
    Ema* ema = nullptr;            ///< null: none
};

struct Resumed {
    Position position;
    bool from_checkpoint_dir = false;  ///< `position.step` is in the folder already
    std::string path;                  ///< on rank 0; empty: a fresh start
    bool weights_alone = false;        ///< all that `path` gave
    std::vector<std::vector<std::size_t>> ddp_buckets;
};

/// Parameters and buffers with torchvision's names, in the order of a state_dict.
[[nodiscard]] NamedTensors state_dict(const torch::nn::Module& module);

/// The parameters in the groups, and the order, of torchvision's reference scripts: those of
/// weights, of norms (with a decay of their own) and of biases (the same).
[[nodiscard]] std::vector<ParameterGroup> parameter_groups(
    const torch::nn::Module& module, const Options& options
);

/// Collective. Rank 0 looks for the newest good checkpoint of --checkpoint_dir or of `memory_dir`
/// (empty: none), else --resume, else --weights; all ranks take over what is there (weights,
/// optimizer, scaler, average, random state), or go on as they are where there is nothing.
[[nodiscard]] Outcome<Resumed> resume(
    const Options& options,
    const std::string& memory_dir,
    const WorkerPlace& place,
    const ProcessGroupPtr& group,
    const JobParts& parts,
    Log& log
);

/// The state of `parts` at `position`; its tensors are those in use (checkpoint.h has snapshot).
[[nodiscard]] TrainingState state_of_job(
    const Options& options,
    const Position& position,
    const JobParts& parts,
    const ScheduleRecord& schedule,
    const DistributedDataParallel* ddp
);

}  // namespace ddprun::trainer
