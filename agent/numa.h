// Which CPUs and memory nodes each worker of a node is bound to (--numa_binding), as a pure
// function of what sysfs tells of the machine (agent/topology.h reads it). The modes are
// torchrun's:
//
//   node          all CPUs of the NUMA node at which the worker's GPU is
//   socket        all CPUs of all nodes of that node's socket
//   exclusive     a share of that node's cores of the worker's own
//   core_complex  the CPUs that share one last-level cache, another one for each GPU in turn
//
// Worker i uses GPU i. Where there are fewer GPUs than workers, the workers are spread over the
// nodes evenly and in order, as if each had a GPU there.
#pragma once

#include "proto/result.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

/// Numbers of CPUs or of NUMA nodes, in ascending order.
using NumberSet = std::set<std::int32_t>;

enum class NumaMode : std::uint8_t { node, socket, exclusive, core_complex };

/// The machine as sysfs describes it.
struct Topology {
    struct Cpu {
        std::int32_t package = 0;
        NumberSet siblings;  ///< the CPUs of its core, itself too
        NumberSet sharers;   ///< of its largest data or unified cache, itself too
    };

    std::map<std::int32_t, NumberSet> nodes;  ///< the CPUs of each NUMA node
    std::map<std::int32_t, Cpu> cpus;         ///< of every node
};

struct BindingRequest {
    NumaMode mode = NumaMode::node;
    NumberSet allowed_cpus;    ///< by our own affinity mask
    NumberSet allowed_memory;  ///< NUMA nodes whose memory we may use
    /// NUMA node of each GPU in the workers' order; -1, which means that the firmware doesn't tell,
    /// counts as 0.
    std::vector<std::int32_t> device_nodes;
    std::int32_t workers = 1;
};

struct WorkerBinding {
    NumberSet cpus;            ///< never empty
    NumberSet memory_nodes;    ///< preferred; empty: as the kernel chooses
    std::int32_t threads = 1;  ///< its share of its CPUs where workers share them, at least 1

    friend bool operator==(const WorkerBinding&, const WorkerBinding&) = default;
};

/// sysfs's and taskset's notation: "0-3,8"; empty for an empty text. Errors:
/// Errc::invalid_argument for another text and for numbers above `largest`.
[[nodiscard]] Result<NumberSet> parse_number_list(std::string_view text, std::int32_t largest);

[[nodiscard]] std::string number_list(const NumberSet& numbers);

/// The set as a bit mask for the kernel, as long as its largest number needs.
[[nodiscard]] std::vector<unsigned long> bit_mask(const NumberSet& numbers);

/// One binding for each worker. Errors: Errc::not_found where a GPU's node isn't in the topology or
/// has no CPU that we may use, Errc::limit_exceeded where a node has fewer cores than GPUs.
[[nodiscard]] Result<std::vector<WorkerBinding>> bind_workers(
    const Topology& topology, const BindingRequest& request
);

}  // namespace ddprun
