// Which GPUs the workers of this node may use: those of the machine, cut down by
// CUDA_VISIBLE_DEVICES as CUDA reads it and by --nproc_per_node=gpu:LIST. What is decided is pure;
// only machine_gpus() asks the system.
#pragma once

#include "launcher/nvml.h"
#include "launcher/option_parser.h"
#include "proto/result.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ddprun::launcher {

/// Where GPUs are looked for; the defaults are those of Linux.
struct GpuSources {
    std::string nvml_library = "libnvidia-ml.so.1";
    std::filesystem::path device_folder = "/dev";
    std::filesystem::path driver_folder = "/proc/driver/nvidia/gpus";
};

/// The GPUs of this machine by NVML, or, where that isn't there or doesn't answer, by the numbered
/// device files (in the order of their numbers), with what the driver tells of each in /proc.
[[nodiscard]] std::vector<Gpu> machine_gpus(const GpuSources& sources = {});

/// One that a worker may use.
struct UsableGpu {
    std::string name;        ///< its entry for CUDA_VISIBLE_DEVICES
    std::optional<Gpu> gpu;  ///< empty where the machine's own list doesn't tell

    friend bool operator==(const UsableGpu&, const UsableGpu&) = default;
};

/// In the order in which CUDA numbers them for a process with this environment: all of the machine,
/// or the entries of CUDA_VISIBLE_DEVICES up to the first that names none. Where the machine's list
/// is empty the variable is believed.
[[nodiscard]] std::vector<UsableGpu> usable_gpus(
    const Environment& environment, const std::vector<Gpu>& machine
);

/// Those with these numbers, in the order of `chosen`. Errors: Errc::not_found, naming the number
/// that isn't there.
[[nodiscard]] Result<std::vector<UsableGpu>> choose_gpus(
    const std::vector<UsableGpu>& usable, const std::vector<std::int32_t>& chosen
);

/// The value of CUDA_VISIBLE_DEVICES that shows just these.
[[nodiscard]] std::string visible_devices(const std::vector<UsableGpu>& gpus);

}  // namespace ddprun::launcher
