// --nproc_per_node: how many workers this node starts, and on which GPUs. The text is read without
// a look at the machine; the count is made at the start.
#pragma once

#include "launcher/gpus.h"
#include "launcher/option_reader.h"
#include "launcher/options.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ddprun::launcher {

/// Reads --nproc_per_node into `command`.
void read_worker_count(Reader& reader, LaunchCommand& command);

struct LocalWorkers {
    LocalWorldSize count{1};
    /// CUDA_VISIBLE_DEVICES of the workers, where gpu:LIST chose.
    std::optional<std::string> visible_devices;
};

/// The workers that the command asks for. `find_gpus` is called where GPUs are to be counted.
/// Errors: Errc::not_found where it says gpu and there is none, or not the chosen ones;
/// Errc::limit_exceeded where the machine has more than limits::kLocalWorldSizeMax of what is
/// counted.
[[nodiscard]] Result<LocalWorkers> count_workers(
    const LaunchCommand& command,
    const Environment& environment,
    const std::function<std::vector<Gpu>()>& find_gpus
);

}  // namespace ddprun::launcher
