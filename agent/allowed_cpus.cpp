#include "agent/allowed_cpus.h"

#include "agent/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace ddprun {

namespace {

std::string read_text(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Mount point of cgroup2, or of v1's cpu controller.
std::string mount_of(std::string_view type, std::string_view option) {
    std::ifstream mounts("/proc/self/mountinfo");
    for (std::string line; std::getline(mounts, line);) {
        const std::size_t separator = line.find(" - ");
        if (separator == std::string::npos) {
            continue;
        }
        std::istringstream tail(line.substr(separator + 3));
        std::string kind;
        std::string source;
        std::string options;
        tail >> kind >> source >> options;
        const std::string wrapped = fmt::format(",{},", options);
        if (kind == type &&
            (option.empty() || wrapped.find(fmt::format(",{},", option)) != std::string::npos)) {
            std::istringstream head(line);
            std::string field;
            for (int i = 0; i < 5; ++i) {
                head >> field;
            }
            return field;
        }
    }
    return {};
}

/// The path of our group in the hierarchy that has `controller`; "" names v2.
std::string group_of(std::string_view controller) {
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
        const std::size_t first = line.find(':');
        const std::size_t second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) {
            continue;
        }
        const std::string names = fmt::format(",{},", line.substr(first + 1, second - first - 1));
        if (names.find(fmt::format(",{},", controller)) != std::string::npos) {
            return line.substr(second + 1);
        }
    }
    return {};
}

/// The smallest quota from our group up to the root.
std::optional<std::int32_t> quota_below(
    const std::string& mount, std::string group, bool version_2
) {
    std::optional<std::int32_t> least;
    while (true) {
        const std::string folder = mount + group;
        const std::string text = version_2 ? read_text(folder + "/cpu.max")
                                           : read_text(folder + "/cpu.cfs_quota_us") + " " +
                                                 read_text(folder + "/cpu.cfs_period_us");
        if (const auto cpus = cpus_of_quota(text); cpus && (!least || *cpus < *least)) {
            least = cpus;
        }
        const std::size_t slash = group.rfind('/');
        if (slash == std::string::npos || group.size() <= 1) {
            return least;
        }
        group.resize(slash);
    }
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
    for (const bool version_2 : {true, false}) {
        const std::string mount = version_2 ? mount_of("cgroup2", "") : mount_of("cgroup", "cpu");
        if (mount.empty()) {
            continue;
        }
        if (const auto quota = quota_below(mount, group_of(version_2 ? "" : "cpu"), version_2)) {
            cpus = std::min(cpus, *quota);
        }
    }
    return std::max(1, cpus);
}

}  // namespace ddprun
