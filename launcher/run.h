// Puts the parts together for one job: the rendezvous (embedded here, or reached over the network),
// the worker stores and the agent. The only place that knows all of them.
#pragma once

#include "launcher/options.h"

namespace ddprun::launcher {

/// Runs the job of a validated command to its end and returns ddprun's exit status. What went wrong
/// before a worker existed is one line on stderr.
[[nodiscard]] int run(const LaunchCommand& command, const Environment& environment);

}  // namespace ddprun::launcher
