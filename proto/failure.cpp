#include "proto/failure.h"

#include "proto/exit_codes.h"

#include <fmt/format.h>

#include <string.h>

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

std::string describe_signal(std::int32_t signal) {
    const char* name = ::sigabbrev_np(signal);
    if (name == nullptr) {
        return fmt::format("signal {}", signal);
    }
    return fmt::format("signal {} (SIG{})", signal, name);
}

std::string describe_failure(const WorkerFailure& failure) {
    if (failure.kind == FailureKind::agent) {
        return fmt::format("{} could not do its part: {}", failure.host, failure.message);
    }
    const std::string worker =
        failure.pid == 0
            ? fmt::format("rank {} on {}", failure.rank, failure.host)
            : fmt::format("rank {} on {} (pid {})", failure.rank, failure.host, failure.pid);
    switch (failure.kind) {
        case FailureKind::exited:
            return fmt::format("{} exited with code {}", worker, failure.code);
        case FailureKind::signaled:
            return fmt::format(
                "{} was killed by {}{}",
                worker,
                describe_signal(failure.code),
                failure.core_dumped ? ", core dumped" : ""
            );
        case FailureKind::out_of_memory:
            return fmt::format(
                "{} was killed by the kernel because memory ran out ({})",
                worker,
                describe_signal(failure.code)
            );
        case FailureKind::exec:
            return fmt::format("{} could not be started: {}", worker, failure.message);
        case FailureKind::agent: break;
    }
    return worker;
}

}  // namespace ddprun
