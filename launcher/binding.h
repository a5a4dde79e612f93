// --numa_binding: from the option and this machine's GPUs, CPUs and nodes to the binding of each
// worker. What is decided is agent/numa.h's; this asks the system.
#pragma once

#include "agent/numa.h"
#include "launcher/gpus.h"
#include "launcher/option_reader.h"
#include "launcher/options.h"

#include <string>
#include <vector>

namespace ddprun::launcher {

/// Reads --numa_binding and --sysfs_root into `command`.
void read_numa_binding(Reader& reader, LaunchCommand& command);

/// What the workers get of this machine, besides their number.
struct Devices {
    std::vector<UsableGpu> gpus;          ///< that they see
    std::vector<WorkerBinding> bindings;  ///< by local rank; empty where the command asks for none
    std::vector<std::string> notes;       ///< sentences for the log
};

/// Looks only where the command needs it: for --numa_binding and --print_plan. `environment` is
/// what the workers inherit. Errors: one sentence that begins with the option.
[[nodiscard]] Result<Devices> find_devices(
    const LaunchCommand& command, const Environment& environment, LocalWorldSize workers
);

}  // namespace ddprun::launcher
