// What the trainer needs of CUDA and NCCL, behind a module that is loaded only when a GPU is asked
// for: a program that links LibTorch's CUDA part starts slower and takes 370 MB more.
// load_gpu_module must come before anything that asks LibTorch about CUDA (a seed, a device), since
// LibTorch remembers the first answer.
#pragma once

#include "proto/result.h"

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace ddprun::trainer {

struct NcclOptions {
    int rank = 0;
    int world_size = 1;
    int device = 0;
    std::chrono::milliseconds timeout{0};
};

/// Work for the device, recorded once and run again without the host's part of it (a CUDA graph).
/// All of its memory is that of the recording: inputs are written into the same tensors each time.
class StepGraph {
public:
    StepGraph() = default;
    StepGraph(const StepGraph&) = delete;
    StepGraph& operator=(const StepGraph&) = delete;
    virtual ~StepGraph() = default;

    /// Records what `work` puts on the current stream, which must not be the default one. Nothing
    /// of it is executed. Once. Throws where `work` waits for the device.
    virtual void capture(const std::function<void()>& work) = 0;

    /// Puts the recorded work on the current stream.
    virtual void replay() = 0;
};

/// The module's table of functions. They throw c10::Error.
struct GpuModule {
    int (*device_count)();
    void (*select_device)(int device);
    void (*synchronize)();
    std::string (*device_name)(int device);
    /// From now on this thread's work goes to a stream of its own, as a StepGraph wants it.
    void (*use_own_stream)(int device);
    std::unique_ptr<StepGraph> (*make_step_graph)();
    c10::intrusive_ptr<c10d::Backend> (*make_nccl
    )(const c10::intrusive_ptr<c10d::Store>& store, const NcclOptions& options);
};

/// Loads libddprun_gpu.so from beside the program or ../lib, once; it stays loaded. Fails where the
/// module was not built, can't be loaded, or finds no GPU.
[[nodiscard]] Result<const GpuModule*> load_gpu_module();

/// The symbol by which the module gives its table.
inline constexpr const char* kGpuModuleEntry = "ddprun_gpu_module";

}  // namespace ddprun::trainer
