// What the system tells of its CPUs, NUMA nodes and caches, read from sysfs and /proc; decides
// nothing (agent/numa.h does). The root is a parameter, so that tests bring trees of their own.
#pragma once

#include "agent/numa.h"
#include "proto/result.h"

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace ddprun {

/// The topology below `sysfs_root` (/sys). A machine without NUMA is one node, 0, with all CPUs
/// that are online. Errors: Errc::not_found where it lists no CPUs, Errc::invalid_argument where a
/// file holds what it shouldn't; the context names the file.
[[nodiscard]] Result<Topology> read_topology(const std::filesystem::path& sysfs_root);

/// The NUMA node of a PCI device ("0000:3b:00.0"); -1 where that isn't told.
[[nodiscard]] std::int32_t node_of_pci_device(
    const std::filesystem::path& sysfs_root, std::string_view address
);

/// The CPUs of this process's affinity mask.
[[nodiscard]] NumberSet affinity_of_this_process();

/// The NUMA nodes whose memory this process may use.
[[nodiscard]] NumberSet memory_of_this_process();

/// Whether the kernel lets us set memory policies: containers often forbid it. Errors: its own.
[[nodiscard]] Result<void> try_memory_policy();

}  // namespace ddprun
