// --spawn N: workers on this node without a launcher, as torch.multiprocessing.spawn starts them.
// The baseline to compare a launcher with: no restarts, one node. The parent holds the listening
// socket of the store, which rank 0 inherits, so that no port is guessed; it passes stop signals
// and SIGUSR1 on, ends all when one fails, and dies with none left (each asks the kernel to die
// with it).
#pragma once

#include "proto/log.h"
#include "proto/result.h"

#include <string>
#include <vector>

namespace ddprun::trainer {

/// The variable by which a worker knows its parent, "PID".
inline constexpr const char* kSpawnedVariable = "DDPRUN_SPAWNED";

/// Starts this program `count` times with `arguments` and waits for all. Gives the status of the
/// first that failed (128 + n after signal n), else 0.
[[nodiscard]] Result<int> spawn_workers(
    const std::vector<std::string>& arguments, int count, Log& log
);

/// In a spawned worker: from now on it dies with its parent. False if the parent is gone already.
[[nodiscard]] bool tie_to_parent(const std::string& parent_pid);

}  // namespace ddprun::trainer
