// What a rank sets up once before it trains: device, threads, memory, LibTorch's switches.
#pragma once

#include "trainer/ddp.h"
#include "trainer/gpu_module.h"
#include "trainer/optimizer.h"
#include "trainer/options.h"
#include "trainer/outcome.h"
#include "trainer/worker_place.h"

#include <c10/core/Device.h>

#include <string>
#include <vector>

namespace ddprun::trainer {

struct Device {
    c10::Device device{c10::kCPU};
    const GpuModule* gpu = nullptr;  ///< set with a CUDA device
    std::string description;         ///< "CPU, 2 threads" or the GPU's name
};

/// Chooses and selects the device, the number of threads and --deterministic, and tells malloc to
/// keep memory between steps. Before anything else that asks LibTorch about CUDA.
[[nodiscard]] Outcome<Device> set_up_device(const Options& options, const WorkerPlace& place);

[[nodiscard]] DdpOptions ddp_options(const Options& options);

[[nodiscard]] OptimizerOptions optimizer_options(const Options& options);

/// The devices of --model_parallel or --data_parallel, the first is `device` itself; without GPUs
/// all are the CPU.
[[nodiscard]] Outcome<std::vector<c10::Device>> devices_of_rank(
    const Options& options, const WorkerPlace& place, const Device& device
);

}  // namespace ddprun::trainer
