#include "proto/failure.h"

#include "proto/exit_codes.h"

namespace ddprun {

int exit_status_of(const WorkerFailure& failure) {
    switch (failure.kind) {
        case FailureKind::exited:
        case FailureKind::exec: return failure.code;
        case FailureKind::signaled:
        case FailureKind::out_of_memory: return exit_code::from_signal(failure.code);
        case FailureKind::agent: return exit_code::kInternal;
    }
    return exit_code::kInternal;
}

}  // namespace ddprun
