// A made sysfs tree for tests of NUMA binding: nodes, CPUs, caches and PCI devices as files below a
// temporary folder.
#pragma once

#include "tests/support/system.h"

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace ddprun::test {

class SysfsTree {
public:
    [[nodiscard]] std::string root() const { return folder_.path(); }

    void node(int number, std::string_view cpus) const {
        write(fmt::format("devices/system/node/node{}/cpulist", number), cpus);
    }

    void online(std::string_view cpus) const { write("devices/system/cpu/online", cpus); }

    /// A CPU with its socket, the CPUs of its core, and those that share its third-level cache.
    void cpu(int number, int package, std::string_view siblings, std::string_view sharers = {})
        const {
        const std::string cpu = fmt::format("devices/system/cpu/cpu{}", number);
        write(cpu + "/topology/physical_package_id", fmt::format("{}", package));
        write(cpu + "/topology/thread_siblings_list", siblings);
        cache(cpu + "/cache/index0", 1, "Data", siblings);
        cache(cpu + "/cache/index1", 1, "Instruction", siblings);
        cache(cpu + "/cache/index2", 2, "Unified", siblings);
        if (!sharers.empty()) {
            cache(cpu + "/cache/index3", 3, "Unified", sharers);
        }
    }

    void pci_device(std::string_view address, int node) const {
        write(fmt::format("bus/pci/devices/{}/numa_node", address), fmt::format("{}", node));
    }

    void write(std::string_view path, std::string_view text) const {
        const std::filesystem::path full = folder_.path(path);
        std::filesystem::create_directories(full.parent_path());
        static_cast<void>(folder_.file(path, fmt::format("{}\n", text)));
    }

private:
    void cache(const std::string& path, int level, std::string_view type, std::string_view sharers)
        const {
        write(path + "/level", fmt::format("{}", level));
        write(path + "/type", type);
        write(path + "/shared_cpu_list", sharers);
    }

    TemporaryFolder folder_;
};

}  // namespace ddprun::test
