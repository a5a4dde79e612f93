// The training of a ResNet from its start, or from where an earlier life of the job left off, to
// its end: one rank's part. Read train.cpp from top to bottom.
#pragma once

#include "proto/log.h"
#include "trainer/options.h"
#include "trainer/worker_place.h"

namespace ddprun::trainer {

/// Returns the program's exit status (proto/exit_codes.h), after the line that says why it isn't 0.
/// SIGTERM and SIGINT: the ranks agree after the step in hand, save and end with 128 + signal.
[[nodiscard]] int train(const Options& options, const WorkerPlace& place, Log& log);

}  // namespace ddprun::trainer
