#include "launcher/worker_count.h"

#include "launcher/machine.h"
#include "proto/limits.h"

#include <fmt/format.h>

#include <algorithm>

namespace ddprun::launcher {

namespace {

constexpr std::string_view kChosen = "gpu:";

/// "2,4,7": one number at least, none twice; nothing for another text.
std::optional<std::vector<std::int32_t>> parse_chosen(std::string_view text) {
    std::vector<std::int32_t> chosen;
    while (true) {
        const std::size_t comma = text.find(',');
        const auto number = parse_number(text.substr(0, comma), 0, limits::kLocalWorldSizeMax - 1);
        if (!number || std::ranges::find(chosen, *number) != chosen.end()) {
            return std::nullopt;
        }
        chosen.push_back(static_cast<std::int32_t>(*number));
        if (comma == std::string_view::npos) {
            return chosen;
        }
        text.remove_prefix(comma + 1);
    }
}

Result<LocalWorkers> gpu_workers(
    const LaunchCommand& command, const std::vector<UsableGpu>& usable
) {
    if (!command.chosen_gpus.empty()) {
        const auto gpus = choose_gpus(usable, command.chosen_gpus);
        if (!gpus) {
            return fail(
                gpus.error().code,
                fmt::format(
                    "{}=gpu:LIST: {}", command.origin("nproc_per_node"), gpus.error().context
                )
            );
        }
        return LocalWorkers{
            LocalWorldSize{static_cast<std::int32_t>(gpus->size())}, visible_devices(*gpus)};
    }
    if (usable.empty()) {
        return fail(
            Errc::not_found,
            fmt::format(
                "{}=gpu: no GPU found (CUDA_VISIBLE_DEVICES, NVML, /dev/nvidia*); use a number, or "
                "auto",
                command.origin("nproc_per_node")
            )
        );
    }
    return LocalWorkers{LocalWorldSize{static_cast<std::int32_t>(usable.size())}, std::nullopt};
}

Result<LocalWorkers> counted(
    const LaunchCommand& command,
    const Environment& environment,
    const std::function<std::vector<Gpu>()>& find_gpus
) {
    const auto cpu_workers = [] {
        return LocalWorkers{LocalWorldSize{count_cpus()}, std::nullopt};
    };
    switch (command.worker_source) {
        case WorkerSource::number: return LocalWorkers{command.nproc_per_node, std::nullopt};
        case WorkerSource::cpu: return cpu_workers();
        case WorkerSource::gpu: return gpu_workers(command, usable_gpus(environment, find_gpus()));
        case WorkerSource::automatic: break;
    }
    const std::vector<UsableGpu> usable = usable_gpus(environment, find_gpus());
    return usable.empty() ? cpu_workers() : gpu_workers(command, usable);
}

}  // namespace

void read_worker_count(Reader& reader, LaunchCommand& command) {
    const Sourced* option = reader.find("nproc_per_node");
    if (option == nullptr) {
        return;
    }
    const std::string_view text = option->value;
    if (text == "auto") {
        command.worker_source = WorkerSource::automatic;
    } else if (text == "cpu") {
        command.worker_source = WorkerSource::cpu;
    } else if (text == "gpu") {
        command.worker_source = WorkerSource::gpu;
    } else if (const auto count = parse_number(text, 1, limits::kLocalWorldSizeMax)) {
        command.nproc_per_node = LocalWorldSize{static_cast<std::int32_t>(*count)};
    } else if (auto chosen = text.starts_with(kChosen) ? parse_chosen(text.substr(kChosen.size())) : std::nullopt) {
        command.worker_source = WorkerSource::gpu;
        command.chosen_gpus = std::move(*chosen);
    } else {
        reader.set_error(wrong(
            *option,
            fmt::format(
                "expected a number from 1 to {}, auto, cpu, gpu, or GPUs by number as gpu:2,4,7",
                limits::kLocalWorldSizeMax
            )
        ));
    }
}

Result<LocalWorkers> count_workers(
    const LaunchCommand& command,
    const Environment& environment,
    const std::function<std::vector<Gpu>()>& find_gpus
) {
    auto workers = counted(command, environment, find_gpus);
    if (workers && workers->count.value() > limits::kLocalWorldSizeMax) {
        return fail(
            Errc::limit_exceeded,
            fmt::format(
                "{}: {} workers were counted, at most {} are supported; give a number",
                command.origin("nproc_per_node"),
                workers->count,
                limits::kLocalWorldSizeMax
            )
        );
    }
    return workers;
}

}  // namespace ddprun::launcher
