#include "rendezvous/membership_texts.h"

#include <fmt/format.h>

#include <string.h>

namespace ddprun {

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

std::string describe_node(const NodeInfo& info) {
    if (info.pid == 0) {
        return info.host;
    }
    return fmt::format("{} (agent pid {})", info.host, info.pid);
}

std::string describe_time(std::chrono::milliseconds time) {
    constexpr double kMillisecondsPerSecond = 1000.0;
    return fmt::format("{:g} s", static_cast<double>(time.count()) / kMillisecondsPerSecond);
}

std::string describe_nnodes(const JobSpec& spec) {
    if (spec.min_nodes == spec.max_nodes) {
        return fmt::format("{}", spec.min_nodes);
    }
    return fmt::format("{}:{}", spec.min_nodes, spec.max_nodes);
}

std::string describe_names(const Waiting& waiting) {
    std::string names = fmt::format("{}", fmt::join(waiting.joined, ", "));
    const auto left_out =
        waiting.present.value() - static_cast<std::int32_t>(waiting.joined.size());
    if (left_out > 0) {
        names += fmt::format(" and {} more", left_out);
    }
    return names;
}

}  // namespace ddprun
