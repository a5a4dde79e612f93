#include "trainer/trace_range.h"

#ifdef DDPRUN_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace ddprun::trainer {

TraceRange::TraceRange(const char* name) {
#ifdef DDPRUN_NVTX
    ::nvtxRangePushA(name);
#endif
    if (record_.isActive()) {
        record_.before(name);
    }
}

TraceRange::~TraceRange() {
#ifdef DDPRUN_NVTX
    ::nvtxRangePop();
#endif
}

}  // namespace ddprun::trainer
