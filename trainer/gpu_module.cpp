#include "trainer/gpu_module.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace ddprun::trainer {
namespace {

int device_count() {
    return static_cast<int>(c10::cuda::device_count());
}

void select_device(int device) {
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
    // Shapes don't change from step to step: let cuDNN measure its kernels once.
    at::globalContext().setBenchmarkCuDNN(true);
}

void synchronize() {
    c10::cuda::device_synchronize();
}

std::string device_name(int device) {
    return at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device))->name;
}

void use_own_stream(int device) {
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(
        /*isHighPriority=*/false, static_cast<c10::DeviceIndex>(device)
    ));
}

class CudaStepGraph final : public StepGraph {
public:
    void capture(const std::function<void()>& work) override {
        c10::cuda::device_synchronize();
        // Other threads (NCCL's watchdog, the loader's page-locked memory) may do what a capture
        // forbids; only this one and those of its backward pass may not.
        graph_.capture_begin(/*pool=*/{0, 0}, cudaStreamCaptureModeThreadLocal);
        work();
        graph_.capture_end();
    }

    void replay() override { graph_.replay(); }

private:
    at::cuda::CUDAGraph graph_;
};

std::unique_ptr<StepGraph> make_step_graph() {
    return std::make_unique<CudaStepGraph>();
}

c10::intrusive_ptr<c10d::Backend> make_nccl(
    const c10::intrusive_ptr<c10d::Store>& store, const NcclOptions& options
) {
    auto nccl = c10d::ProcessGroupNCCL::Options::create();
    nccl->timeout = options.timeout;
    auto backend =
        c10::make_intrusive<c10d::ProcessGroupNCCL>(store, options.rank, options.world_size, nccl);
    backend->setBoundDeviceId(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(options.device)));
    return backend;
}

constexpr GpuModule kModule{
    .device_count = device_count,
    .select_device = select_device,
    .synchronize = synchronize,
    .device_name = device_name,
    .use_own_stream = use_own_stream,
    .make_step_graph = make_step_graph,
    .make_nccl = make_nccl,
};

}  // namespace
}  // namespace ddprun::trainer

extern "C" __attribute__((visibility("default"))) const ddprun::trainer::GpuModule*
ddprun_gpu_module() {
    return &ddprun::trainer::kModule;
}
