#include "trainer/setup.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <malloc.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

namespace ddprun::trainer {
namespace {

/// CPUs that this process may use, shared with the node's other workers.
int cpu_share(const WorkerPlace& place) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    const int count = ::sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    return std::max(1, count / std::max(1, static_cast<int>(place.local_world_size)));
}

int thread_count(const Options& options, const WorkerPlace& place) {
    if (options.threads) {
        return *options.threads;
    }
    if (const auto text = process_environment("OMP_NUM_THREADS")) {
        int value = 0;
        const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
        if (error == std::errc{} && value > 0) {
            return value;
        }
    }
    return cpu_share(place);
}

/// Activations and gradients are the same blocks in every step: given back to the system after each
/// and fetched again page by page, they cost a tenth of the step. One arena: with one for each
/// thread an epoch's new loader threads leave their blocks in other holes each time, and memory
/// creeps up by megabytes over thousands of steps.
void keep_memory() {
    ::mallopt(M_ARENA_MAX, 1);
    ::mallopt(M_MMAP_MAX, 0);  // the threshold can't go above 32 MiB, and blocks are larger
    ::mallopt(M_TRIM_THRESHOLD, -1);
    ::mallopt(M_TOP_PAD, 64 * 1024 * 1024);
}

bool want_gpu(DeviceChoice choice) {
    switch (choice) {
        case DeviceChoice::cpu: return false;
        case DeviceChoice::cuda: return true;
        case DeviceChoice::automatic: break;
    }
    // A look at the driver costs nothing; loading LibTorch's CUDA part to find out does.
    std::error_code ignored;
    return std::filesystem::exists("/dev/nvidiactl", ignored);
}

Outcome<Device> select_gpu(const Options& options, const WorkerPlace& place) {
    auto gpu = load_gpu_module();
    if (!gpu) {
        if (options.device == DeviceChoice::automatic) {
            return Device{};
        }
        return stop_with(exit_code::kUsage, gpu.error().context);
    }
    const int count = (*gpu)->device_count();
    if (place.local_rank >= count) {
        return stop_with(
            exit_code::kUsage,
            fmt::format(
                "device cuda: local rank {} has no GPU of its own, there are {}",
                place.local_rank,
                count
            )
        );
    }
    // With several a rank, its first one.
    const int several = std::max(options.model_parallel, options.data_parallel);
    const int own = std::min(place.local_rank * several, count - 1);
    (*gpu)->select_device(own);
    if (options.cuda_graph) {
        (*gpu)->use_own_stream(own);
    }
    at::globalContext().setAllowTF32CuDNN(options.tf32 != Tf32::none);
    at::globalContext().setAllowTF32CuBLAS(options.tf32 == Tf32::all);
    return Device{
        .device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(own)),
        .gpu = *gpu,
        .description = (*gpu)->device_name(own),
    };
}

CommHook comm_hook(GradientHook hook) {
    switch (hook) {
        case GradientHook::none: return CommHook::none;
        case GradientHook::allreduce: return CommHook::allreduce;
        case GradientHook::fp16_compress: return CommHook::fp16_compress;
        case GradientHook::bf16_compress: return CommHook::bf16_compress;
        case GradientHook::power_sgd: return CommHook::power_sgd;
    }
    return CommHook::none;
}

}  // namespace

Outcome<Device> set_up_device(const Options& options, const WorkerPlace& place) {
    Device device;
    if (want_gpu(options.device)) {
        auto selected = select_gpu(options, place);
        if (!selected) {
            return selected;
        }
        device = std::move(*selected);
    }
    if (options.cuda_graph && device.gpu == nullptr) {
        return stop_with(exit_code::kUsage, "--cuda_graph: needs a GPU, and none was found");
    }
    keep_memory();
    const int threads = thread_count(options, place);
    at::set_num_threads(threads);
    if (options.deterministic) {
        at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
        // It would fill each new tensor with NaN, against reads of what nobody has written.
        at::globalContext().setDeterministicFillUninitializedMemory(false);
        at::globalContext().setDeterministicCuDNN(true);
        at::globalContext().setBenchmarkCuDNN(false);
    }
    if (device.description.empty()) {
        device.description = fmt::format("CPU, {} thread{}", threads, threads == 1 ? "" : "s");
    }
    return device;
}

DdpOptions ddp_options(const Options& options) {
    return {
        .bucket_cap_mb = options.bucket_cap_mb,
        .find_unused_parameters = options.find_unused_parameters,
        .broadcast_buffers = options.broadcast_buffers,
        .gradient_as_bucket_view = options.gradient_as_bucket_view,
        .static_graph = options.static_graph,
        .comm_hook = comm_hook(options.comm_hook),
        .power_sgd =
            {.rank = options.powersgd_rank,
             .start_step = options.powersgd_start,
             .seed = static_cast<std::uint32_t>(options.seed)},
        .initial_buckets = {},
    };
}

OptimizerOptions optimizer_options(const Options& options) {
    OptimizerOptions result;
    switch (options.optimizer) {
        case OptimizerChoice::sgd: result.kind = OptimizerKind::sgd; break;
        case OptimizerChoice::lars: result.kind = OptimizerKind::lars; break;
        case OptimizerChoice::adamw: result.kind = OptimizerKind::adamw; break;
    }
    result.momentum = options.momentum;
    result.nesterov = options.nesterov;
    result.beta1 = options.beta1;
    result.beta2 = options.beta2;
    result.eps = options.eps;
    result.trust = options.lars_trust;
    return result;
}

Outcome<std::vector<c10::Device>> devices_of_rank(
    const Options& options, const WorkerPlace& place, const Device& device
) {
    const int wanted = std::max(options.model_parallel, options.data_parallel);
    if (!device.device.is_cuda()) {
        return std::vector<c10::Device>(static_cast<std::size_t>(wanted), device.device);
    }
    std::vector<c10::Device> devices;
    for (int i = 0; i < wanted; ++i) {
        const int index = place.local_rank * wanted + i;
        if (index >= device.gpu->device_count()) {
            return stop_with(
                exit_code::kUsage,
                fmt::format(
                    "device cuda: local rank {} wants {} GPUs of its own, there are {} in all",
                    place.local_rank,
                    wanted,
                    device.gpu->device_count()
                )
            );
        }
        devices.emplace_back(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
    }
    return devices;
}

}  // namespace ddprun::trainer
