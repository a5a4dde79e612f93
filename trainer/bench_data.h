// `--bench_data`: reads the training split as a training would, with augmentation and threads, and
// prints how fast that was. No model, no LibTorch.
#pragma once

#include "proto/log.h"
#include "trainer/options.h"
#include "trainer/worker_place.h"

namespace ddprun::trainer {

/// One pass over this worker's share, --epochs of them, or --steps batches. Prints a line to
/// stdout: "data: N images in S s: R images/s, T threads, C images per CPU second". Gives the exit
/// status.
[[nodiscard]] int bench_data(const Options& options, const WorkerPlace& place, Log& log);

}  // namespace ddprun::trainer
