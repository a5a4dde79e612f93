// The process group of a job, set up from the worker's environment as env:// does in Python: a
// store at MASTER_ADDR:MASTER_PORT (the agent's, or rank 0's own under a plain launcher), Gloo for
// CPU tensors and, with a GPU module, NCCL for CUDA tensors. Set-up is bounded in time.
#pragma once

#include "proto/result.h"
#include "trainer/collectives.h"
#include "trainer/gloo_group.h"
#include "trainer/gpu_module.h"
#include "trainer/worker_place.h"

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

namespace ddprun::trainer {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

struct WorkerGroup {
    StorePtr store;         ///< null for a worker that is alone
    ProcessGroupPtr group;  ///< null for a worker that is alone
};

struct GroupOptions {
    std::chrono::seconds init_timeout{60};
    const GpuModule* gpu = nullptr;  ///< set: NCCL for CUDA tensors
    int device = 0;                  ///< the rank's GPU
    bool even_alone = false;         ///< a group of one, too, which needs MASTER_ADDR and _PORT
};

/// Connects the store and all ranks. An error names what could not be reached; after one the
/// process has to end, since LibTorch's set-up can't be cancelled and goes on in the background.
[[nodiscard]] Result<WorkerGroup> connect_group(
    const WorkerPlace& place, const GroupOptions& options
);

/// The first line of what an exception says, without LibTorch's backtrace.
[[nodiscard]] std::string describe(const std::exception& exception);

}  // namespace ddprun::trainer
