#include "agent/topology.h"

#include "agent/kernel_file.h"
#include "proto/limits.h"

#include <fmt/format.h>

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>

namespace ddprun {

namespace {

namespace fs = std::filesystem;

std::optional<std::int32_t> read_number(const fs::path& path) {
    std::ifstream file(path);
    std::int32_t number = 0;
    return file >> number ? std::optional{number} : std::nullopt;
}

/// Empty where there is no such file.
Result<NumberSet> read_list(const fs::path& path) {
    auto numbers = parse_number_list(read_kernel_file(path), limits::kCpusMax - 1);
    if (!numbers) {
        return fail(
            numbers.error().code, fmt::format("{}: {}", path.string(), numbers.error().context)
        );
    }
    return numbers;
}

/// The N of entries PREFIXN of a folder.
NumberSet numbered_entries(const fs::path& folder, std::string_view prefix) {
    NumberSet numbers;
    std::error_code ignored;  // a folder that isn't there has no entries
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
        const std::string name = entry.path().filename().string();
        if (name.size() > prefix.size() && name.starts_with(prefix)) {
            const auto number = parse_number_list(name.substr(prefix.size()), limits::kCpusMax - 1);
            if (number && number->size() == 1) {
                numbers.insert(*number->begin());
            }
        }
    }
    return numbers;
}

/// The CPUs that share the largest cache of a CPU that isn't for instructions alone.
Result<NumberSet> read_sharers(const fs::path& caches) {
    std::int32_t highest = 0;
    NumberSet sharers;
    for (const std::int32_t index : numbered_entries(caches, "index")) {
        const fs::path cache = caches / fmt::format("index{}", index);
        const std::int32_t level = read_number(cache / "level").value_or(0);
        const std::string type = read_kernel_file(cache / "type");
        if (level > highest && (type.starts_with("Data") || type.starts_with("Unified"))) {
            auto list = read_list(cache / "shared_cpu_list");
            if (!list) {
                return fail(list.error());
            }
            highest = level;
            sharers = std::move(*list);
        }
    }
    return sharers;
}

Result<Topology::Cpu> read_cpu(const fs::path& folder) {
    auto siblings = read_list(folder / "topology/thread_siblings_list");
    if (!siblings) {
        return fail(siblings.error());
    }
    auto sharers = read_sharers(folder / "cache");
    if (!sharers) {
        return fail(sharers.error());
    }
    return Topology::Cpu{
        read_number(folder / "topology/physical_package_id").value_or(0),
        std::move(*siblings),
        std::move(*sharers),
    };
}

}  // namespace

Result<Topology> read_topology(const fs::path& sysfs_root) {
    const fs::path cpus = sysfs_root / "devices/system/cpu";
    const fs::path nodes = sysfs_root / "devices/system/node";
    Topology topology;
    for (const std::int32_t node : numbered_entries(nodes, "node")) {
        auto list = read_list(nodes / fmt::format("node{}", node) / "cpulist");
        if (!list) {
            return fail(list.error());
        }
        topology.nodes.emplace(node, std::move(*list));
    }
    if (topology.nodes.empty()) {
        auto online = read_list(cpus / "online");
        if (!online) {
            return fail(online.error());
        }
        topology.nodes.emplace(0, std::move(*online));
    }
    for (const auto& [node, list] : topology.nodes) {
        for (const std::int32_t cpu : list) {
            auto described = read_cpu(cpus / fmt::format("cpu{}", cpu));
            if (!described) {
                return fail(described.error());
            }
            topology.cpus.emplace(cpu, std::move(*described));
        }
    }
    if (topology.cpus.empty()) {
        return fail(
            Errc::not_found, fmt::format("{}: lists no CPUs", (sysfs_root / "devices").string())
        );
    }
    return topology;
}

std::int32_t node_of_pci_device(const fs::path& sysfs_root, std::string_view address) {
    constexpr std::int32_t kUnknown = -1;
    return address.empty() ? kUnknown
                           : read_number(sysfs_root / "bus/pci/devices" / address / "numa_node")
                                 .value_or(kUnknown);
}

NumberSet affinity_of_this_process() {
    // The kernel wants room for all CPUs that it could have, whatever the mask says.
    cpu_set_t* mask = CPU_ALLOC(limits::kCpusMax);
    const std::size_t bytes = CPU_ALLOC_SIZE(limits::kCpusMax);
    NumberSet cpus;
    if (mask != nullptr && ::sched_getaffinity(0, bytes, mask) == 0) {
        for (std::int32_t cpu = 0; cpu < limits::kCpusMax; ++cpu) {
            if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, mask)) {
                cpus.insert(cpus.end(), cpu);
            }
        }
    }
    CPU_FREE(mask);
    return cpus;
}

NumberSet memory_of_this_process() {
    constexpr std::string_view kKey = "Mems_allowed_list:";
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with(kKey)) {
            const std::size_t begin = line.find_first_not_of(" \t", kKey.size());
            const auto nodes = begin == std::string::npos
                                   ? NumberSet{}
                                   : parse_number_list(line.substr(begin), limits::kCpusMax - 1);
            return nodes.value_or(NumberSet{});
        }
    }
    return {};
}

Result<void> try_memory_policy() {
    // Whoever forbids to set a policy (seccomp, a kernel without NUMA) forbids to read it as well.
    if (::syscall(SYS_get_mempolicy, nullptr, nullptr, 0, nullptr, 0) != 0) {
        return fail(from_errno(errno, "read the memory policy"));
    }
    return {};
}

}  // namespace ddprun
