#include "launcher/binding.h"

#include "agent/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ddprun::launcher {

namespace {

NumaMode mode_of(std::string_view word) {
    if (word == "socket") {
        return NumaMode::socket;
    }
    if (word == "exclusive") {
        return NumaMode::exclusive;
    }
    return word == "core-complex" ? NumaMode::core_complex : NumaMode::node;
}

Result<void> bind(const LaunchCommand& command, LocalWorldSize workers, Devices& devices) {
    const auto topology = read_topology(command.sysfs_root);
    if (!topology) {
        return fail(topology.error());
    }
    BindingRequest request;
    request.mode = *command.numa_binding;
    request.allowed_cpus = affinity_of_this_process();
    request.workers = workers.value();
    if (const auto policy = try_memory_policy(); policy) {
        request.allowed_memory = memory_of_this_process();
    } else {
        devices.notes.push_back(
            fmt::format("workers are bound to CPUs alone ({})", policy.error().context)
        );
    }
    for (const UsableGpu& usable : devices.gpus) {
        const std::string address = usable.gpu ? usable.gpu->pci_address : std::string{};
        request.device_nodes.push_back(node_of_pci_device(command.sysfs_root, address));
    }
    if (devices.gpus.size() < static_cast<std::size_t>(workers.value())) {
        devices.notes.push_back(fmt::format(
            "{} {} for {} {}, spread over the NUMA nodes",
            devices.gpus.size(),
            devices.gpus.size() == 1 ? "GPU" : "GPUs",
            workers,
            workers.value() == 1 ? "worker" : "workers"
        ));
    } else if (topology->nodes.size() > 1 && std::ranges::count(request.device_nodes, -1) > 0) {
        devices.notes.emplace_back("the NUMA node of a GPU isn't known, 0 is used for it");
    }
    auto bindings = bind_workers(*topology, request);
    if (!bindings) {
        return fail(bindings.error());
    }
    devices.bindings = std::move(*bindings);
    return {};
}

}  // namespace

void read_numa_binding(Reader& reader, LaunchCommand& command) {
    const auto word = reader.choice("numa_binding", words_of(*find_option("numa_binding")));
    if (word) {
        command.numa_binding = mode_of(*word);
        command.numa_binding_text = fmt::format("{}={}", reader.origin("numa_binding"), *word);
    }
    command.sysfs_root = reader.text("sysfs_root", command.sysfs_root);
}

Result<Devices> find_devices(
    const LaunchCommand& command, const Environment& environment, LocalWorldSize workers
) {
    Devices devices;
    if (!command.numa_binding && !command.print_plan) {
        return devices;
    }
    devices.gpus = usable_gpus(environment, machine_gpus());
    if (!command.numa_binding) {
        return devices;
    }
    if (const auto bound = bind(command, workers, devices); !bound) {
        return fail(
            bound.error().code,
            fmt::format("{}: {}", command.numa_binding_text, bound.error().context)
        );
    }
    for (std::string& note : devices.notes) {
        note = fmt::format("{}: {}", command.numa_binding_text, note);
    }
    return devices;
}

}  // namespace ddprun::launcher
