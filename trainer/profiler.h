// A Chrome trace of some steps, by LibTorch's own profiler (Kineto): operators, backward,
// collectives and, on a GPU, its kernels. Open it at chrome://tracing or in Perfetto.
#pragma once

#include "proto/result.h"

#include <filesystem>

namespace ddprun::trainer {

class TraceProfiler {
public:
    /// Begins; one at a time in a process. `cuda`: the GPU's kernels, too.
    explicit TraceProfiler(bool cuda);
    TraceProfiler(const TraceProfiler&) = delete;
    TraceProfiler& operator=(const TraceProfiler&) = delete;
    /// Drops what was recorded, unless it was saved.
    ~TraceProfiler();

    /// Ends it and writes the trace; the folder is made where it is missing.
    [[nodiscard]] Result<void> save(const std::filesystem::path& path);

private:
    bool running_ = true;
};

}  // namespace ddprun::trainer
