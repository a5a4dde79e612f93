// Names a part of a step for whoever looks on: NVTX ranges for Nsight Systems (where the build
// found its headers), and LibTorch's profiler (--profile). Costs nothing to speak of when nobody
// does.
#pragma once

#include <ATen/record_function.h>

namespace ddprun::trainer {

/// From its construction to its end; they nest. `name` is a literal.
class TraceRange {
public:
    explicit TraceRange(const char* name);
    TraceRange(const TraceRange&) = delete;
    TraceRange& operator=(const TraceRange&) = delete;
    ~TraceRange();

private:
    at::RecordFunction record_{at::RecordScope::USER_SCOPE};
};

}  // namespace ddprun::trainer
