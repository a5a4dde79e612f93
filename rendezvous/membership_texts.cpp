#include "rendezvous/membership_texts.h"

#include <fmt/format.h>

namespace ddprun {

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

std::string describe_taken(GroupRank rank, const std::string& host) {
    return fmt::format("node_rank {} is taken by {}", rank, host);
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
