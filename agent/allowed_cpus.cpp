#include "agent/allowed_cpus.h"

#include "agent/cgroups.h"
#include "agent/kernel_file.h"
#include "agent/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string>

namespace ddprun {

namespace {

/// The smallest quota from our group up to the top.
std::optional<std::int32_t> quota_below(std::optional<Cgroup> group, bool version_2) {
    std::optional<std::int32_t> least;
    for (; group; group = group->parent()) {
        const std::string folder = group->folder();
        const std::string text = version_2 ? read_kernel_file(folder + "/cpu.max")
                                           : read_kernel_file(folder + "/cpu.cfs_quota_us") + " " +
                                                 read_kernel_file(folder + "/cpu.cfs_period_us");
        if (const auto cpus = cpus_of_quota(text); cpus && (!least || *cpus < *least)) {
            least = cpus;
        }
    }
    return least;
}

}  // namespace

std::optional<std::int32_t> cpus_of_quota(std::string_view cpu_max) {
    std::istringstream text{std::string(cpu_max)};
    std::int64_t quota = 0;
    std::int64_t period = 0;
    if (!(text >> quota >> period) || quota <= 0 || period <= 0) {
        return std::nullopt;
    }
    return static_cast<std::int32_t>(std::min<std::int64_t>((quota + period - 1) / period, 65'536));
}

std::int32_t allowed_cpus() {
    std::int32_t cpus = std::max(1, static_cast<std::int32_t>(affinity_of_this_process().size()));
    const OwnCgroups groups;
    for (const bool version_2 : {true, false}) {
        const auto group = groups.find(version_2 ? "" : "cpu");
        if (const auto quota = quota_below(group, version_2)) {
            cpus = std::min(cpus, *quota);
        }
    }
    return std::max(1, cpus);
}

}  // namespace ddprun
