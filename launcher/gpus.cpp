#include "launcher/gpus.h"

#include "launcher/rendezvous_conf.h"
#include "proto/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string_view>
#include <system_error>

namespace ddprun::launcher {

namespace {

namespace fs = std::filesystem;

/// N of nvidiaN; not of nvidiactl or nvidia-uvm.
std::optional<std::int32_t> device_number(std::string_view name) {
    constexpr std::string_view kPrefix = "nvidia";
    if (!name.starts_with(kPrefix)) {
        return std::nullopt;
    }
    const auto number = parse_number(name.substr(kPrefix.size()), 0, limits::kLocalWorldSizeMax);
    return number ? std::optional{static_cast<std::int32_t>(*number)} : std::nullopt;
}

/// What the driver tells of one GPU ("Device Minor: 0", "GPU UUID: GPU-...") and its number.
std::pair<std::optional<std::int32_t>, Gpu> read_information(const fs::path& folder) {
    std::pair<std::optional<std::int32_t>, Gpu> result;
    result.second.pci_address = folder.filename().string();
    std::ifstream file{folder / "information"};
    for (std::string line; std::getline(file, line);) {
        const std::size_t colon = std::min(line.find(':'), line.size());
        const std::string_view key = trimmed(std::string_view{line}.substr(0, colon));
        const std::string_view value =
            trimmed(std::string_view{line}.substr(std::min(colon + 1, line.size())));
        if (key == "Device Minor") {
            const auto number = parse_number(value, 0, limits::kLocalWorldSizeMax);
            if (number) {
                result.first = static_cast<std::int32_t>(*number);
            }
        } else if (key == "GPU UUID" && value.find('?') == std::string_view::npos) {
            result.second.uuid = value;
        }
    }
    return result;
}

std::vector<Gpu> gpus_by_files(const GpuSources& sources) {
    std::error_code ignored;  // a folder that isn't there has no GPUs
    std::map<std::int32_t, Gpu> by_number;
    for (const fs::directory_entry& entry :
         fs::directory_iterator(sources.device_folder, ignored)) {
        if (const auto number = device_number(entry.path().filename().string())) {
            by_number.emplace(*number, Gpu{});
        }
    }
    for (const fs::directory_entry& entry :
         fs::directory_iterator(sources.driver_folder, ignored)) {
        auto [number, gpu] = read_information(entry.path());
        const auto found = number ? by_number.find(*number) : by_number.end();
        if (found != by_number.end()) {
            found->second = std::move(gpu);
        }
    }
    std::vector<Gpu> gpus;
    for (auto& [number, gpu] : by_number) {
        gpus.push_back(std::move(gpu));
    }
    return gpus;
}

/// The GPU that an entry of CUDA_VISIBLE_DEVICES names, or why the list ends there.
struct Entry {
    bool valid = false;
    std::optional<Gpu> gpu;
};

Entry read_entry(std::string_view text, const std::vector<Gpu>& machine) {
    if (const auto index = parse_number(text, 0, limits::kLocalWorldSizeMax)) {
        const auto place = static_cast<std::size_t>(*index);
        if (machine.empty()) {
            return {true, std::nullopt};
        }
        return place < machine.size() ? Entry{true, machine[place]} : Entry{};
    }
    if (text.starts_with("MIG-")) {
        return {true, std::nullopt};
    }
    if (!text.starts_with("GPU-")) {
        return {};
    }
    const auto found = std::ranges::find_if(machine, [&](const Gpu& gpu) {
        return gpu.uuid.starts_with(text);  // CUDA takes an abbreviation
    });
    if (found != machine.end()) {
        return {true, *found};
    }
    const bool all_known = !machine.empty() && std::ranges::none_of(machine, [](const Gpu& gpu) {
        return gpu.uuid.empty();
    });
    return {!all_known, std::nullopt};
}

}  // namespace

std::vector<Gpu> machine_gpus(const GpuSources& sources) {
    auto gpus = gpus_by_nvml(sources.nvml_library);
    return gpus ? std::move(*gpus) : gpus_by_files(sources);
}

std::vector<UsableGpu> usable_gpus(
    const Environment& environment, const std::vector<Gpu>& machine
) {
    std::vector<UsableGpu> usable;
    const auto visible = environment.find("CUDA_VISIBLE_DEVICES");
    if (visible == environment.end()) {
        for (const Gpu& gpu : machine) {
            usable.push_back({fmt::to_string(usable.size()), gpu});
        }
        return usable;
    }
    std::string_view rest = visible->second;
    std::set<std::string, std::less<>> seen;
    while (true) {
        const std::size_t comma = rest.find(',');
        const std::string_view text = trimmed(rest.substr(0, comma));
        Entry entry = read_entry(text, machine);
        if (!entry.valid) {
            return usable;
        }
        if (!seen.emplace(text).second) {
            return {};  // CUDA shows none where one is named twice
        }
        usable.push_back({std::string{text}, std::move(entry.gpu)});
        if (comma == std::string_view::npos) {
            return usable;
        }
        rest.remove_prefix(comma + 1);
    }
}

Result<std::vector<UsableGpu>> choose_gpus(
    const std::vector<UsableGpu>& usable, const std::vector<std::int32_t>& chosen
) {
    std::vector<UsableGpu> result;
    for (const std::int32_t number : chosen) {
        if (static_cast<std::size_t>(number) >= usable.size()) {
            return fail(
                Errc::not_found,
                fmt::format(
                    "GPU {} is not there: {} can be used here, counted from 0 "
                    "(CUDA_VISIBLE_DEVICES, NVML, /dev/nvidia*)",
                    number,
                    usable.size()
                )
            );
        }
        result.push_back(usable[static_cast<std::size_t>(number)]);
    }
    return result;
}

std::string visible_devices(const std::vector<UsableGpu>& gpus) {
    std::string list;
    for (const UsableGpu& gpu : gpus) {
        list += list.empty() ? "" : ",";
        list += gpu.name;
    }
    return list;
}

}  // namespace ddprun::launcher
