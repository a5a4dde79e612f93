// What a job is made of that a checkpoint holds: model, optimizer and position. Found again at
// start by rank 0 and sent to all ranks, so that nodes without the checkpoint's folder can join.
#pragma once

#include "proto/log.h"
#include "trainer/checkpoint.h"
#include "trainer/ddp.h"
#include "trainer/options.h"
#include "trainer/outcome.h"
#include "trainer/process_group.h"
#include "trainer/sgd.h"

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
};

struct Resumed {
    Position position;
    bool from_checkpoint_dir = false;  ///< `position.step` is in the folder already
    std::string path;                  ///< on rank 0; empty: a fresh start
    std::vector<std::vector<std::size_t>> ddp_buckets;
};

/// Parameters and buffers with torchvision's names, in the order of a state_dict.
[[nodiscard]] NamedTensors state_dict(const torch::nn::Module& module);

/// Collective. Rank 0 looks for the newest good checkpoint of --checkpoint_dir, else --resume; all
/// ranks take its weights, momentum and random state over, or go on as they are where there is
/// none.
[[nodiscard]] Outcome<Resumed> resume(
    const Options& options,
    const WorkerPlace& place,
    const ProcessGroupPtr& group,
    torch::nn::Module& model,
    Sgd& sgd,
    Log& log
);

/// Rank 0 writes the checkpoint of `position`; the others do nothing.
[[nodiscard]] Outcome<void> save(
    const Options& options,
    const Position& position,
    const torch::nn::Module& model,
    const Sgd& sgd,
    const DistributedDataParallel* ddp
);

}  // namespace ddprun::trainer
