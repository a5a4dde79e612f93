#include "trainer/gpu_monitor.h"

#include "proto/limits.h"

#include <fmt/format.h>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace ddprun::trainer {

// What of nvml.h is used, in its binary form, which NVIDIA keeps under the suffix _v2.
struct GpuMonitor::Library {
    using Device = struct DeviceTag*;

    struct Utilization {
        unsigned int gpu;
        unsigned int memory;
    };

    struct Memory {
        unsigned long long total;
        unsigned long long free;
        unsigned long long used;
    };

    Library() = default;
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;

    ~Library() {
        if (running) {
            shut_down();
        }
        if (loaded != nullptr) {
            ::dlclose(loaded);
        }
    }

    template <class Function>
    bool find(const char* function_name, Function& function) {
        void* const address = ::dlsym(loaded, function_name);
        static_assert(sizeof function == sizeof address);
        std::memcpy(&function, &address, sizeof function);
        return address != nullptr;
    }

    void* loaded = nullptr;
    bool running = false;
    int (*init)() = nullptr;
    int (*shut_down)() = nullptr;
    int (*driver_version)(char*, unsigned int) = nullptr;
    int (*count)(unsigned int*) = nullptr;
    int (*handle)(unsigned int, Device*) = nullptr;
    int (*name)(Device, char*, unsigned int) = nullptr;
    int (*utilization)(Device, Utilization*) = nullptr;
    int (*memory)(Device, Memory*) = nullptr;
    int (*p2p_status)(Device, Device, int, int*) = nullptr;  ///< null in an old library
};

namespace {

constexpr int kSuccess = 0;
constexpr int kP2pRead = 0;  ///< NVML_P2P_CAPS_INDEX_READ
constexpr int kP2pStatusOk = 0;
constexpr double kGigabyte = 1e9;
constexpr std::size_t kTextBytes = 96;  ///< the largest of NVML's buffer sizes

}  // namespace

Result<std::unique_ptr<GpuMonitor>> GpuMonitor::open(const std::string& library) {
    auto nvml = std::make_unique<Library>();
    nvml->loaded = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (nvml->loaded == nullptr) {
        const char* const reason = ::dlerror();
        return fail(
            Errc::not_found,
            fmt::format("load {}: {}", library, reason == nullptr ? "not found" : reason)
        );
    }
    const bool complete = nvml->find("nvmlInit_v2", nvml->init) &&
                          nvml->find("nvmlShutdown", nvml->shut_down) &&
                          nvml->find("nvmlSystemGetDriverVersion", nvml->driver_version) &&
                          nvml->find("nvmlDeviceGetCount_v2", nvml->count) &&
                          nvml->find("nvmlDeviceGetHandleByIndex_v2", nvml->handle) &&
                          nvml->find("nvmlDeviceGetName", nvml->name) &&
                          nvml->find("nvmlDeviceGetUtilizationRates", nvml->utilization) &&
                          nvml->find("nvmlDeviceGetMemoryInfo", nvml->memory);
    if (!complete) {
        return fail(Errc::not_found, fmt::format("load {}: it is too old or no NVML", library));
    }
    nvml->find("nvmlDeviceGetP2PStatus", nvml->p2p_status);
    if (const int status = nvml->init(); status != kSuccess) {
        return fail(Errc::unsupported, fmt::format("ask {}: nvmlInit gives {}", library, status));
    }
    nvml->running = true;
    return std::unique_ptr<GpuMonitor>(new GpuMonitor(std::move(nvml)));
}

GpuMonitor::GpuMonitor(std::unique_ptr<Library> library) : library_(std::move(library)) {}

GpuMonitor::~GpuMonitor() = default;

std::string GpuMonitor::driver() const {
    std::array<char, kTextBytes> text{};
    return library_->driver_version(text.data(), kTextBytes - 1) == kSuccess ? text.data() : "";
}

std::vector<GpuUse> GpuMonitor::read() const {
    std::vector<GpuUse> gpus;
    unsigned int count = 0;
    if (library_->count(&count) != kSuccess) {
        return gpus;
    }
    count = std::min(count, static_cast<unsigned int>(limits::kLocalWorldSizeMax));
    for (unsigned int index = 0; index < count; ++index) {
        GpuUse& gpu = gpus.emplace_back();
        Library::Device device = nullptr;
        if (library_->handle(index, &device) != kSuccess) {
            continue;
        }
        std::array<char, kTextBytes> text{};
        if (library_->name(device, text.data(), kTextBytes - 1) == kSuccess) {
            gpu.name = text.data();
        }
        Library::Utilization utilization{};
        if (library_->utilization(device, &utilization) == kSuccess) {
            gpu.busy = utilization.gpu;
        }
        Library::Memory memory{};
        if (library_->memory(device, &memory) == kSuccess) {
            gpu.memory_used = memory.used;
            gpu.memory_total = memory.total;
        }
    }
    return gpus;
}

std::optional<std::vector<std::pair<int, int>>> GpuMonitor::apart() const {
    unsigned int count = 0;
    if (library_->p2p_status == nullptr || library_->count(&count) != kSuccess) {
        return std::nullopt;
    }
    std::vector<Library::Device> devices;
    count = std::min(count, static_cast<unsigned int>(limits::kLocalWorldSizeMax));
    for (unsigned int index = 0; index < count; ++index) {
        if (library_->handle(index, &devices.emplace_back()) != kSuccess) {
            return std::nullopt;
        }
    }
    std::vector<std::pair<int, int>> pairs;
    for (std::size_t high = 1; high < devices.size(); ++high) {
        for (std::size_t low = 0; low < high; ++low) {
            int status = kP2pStatusOk;
            if (library_->p2p_status(devices[low], devices[high], kP2pRead, &status) != kSuccess) {
                return std::nullopt;
            }
            if (status != kP2pStatusOk) {
                pairs.emplace_back(static_cast<int>(low), static_cast<int>(high));
            }
        }
    }
    return pairs;
}

std::vector<std::string> describe_gpus(const GpuMonitor& monitor) {
    const auto gpus = monitor.read();
    const std::string driver = monitor.driver();
    std::vector<std::string> lines{fmt::format(
        "{} GPU{}, driver {}",
        gpus.size(),
        gpus.size() == 1 ? "" : "s",
        driver.empty() ? "of unknown version" : driver
    )};
    for (std::size_t i = 0; i < gpus.size(); ++i) {
        lines.push_back(fmt::format(
            "gpu{}: {}, {:.1f} GB, {:.1f} GB of it in use",
            i,
            gpus[i].name.empty() ? "no name" : gpus[i].name,
            static_cast<double>(gpus[i].memory_total) / kGigabyte,
            static_cast<double>(gpus[i].memory_used) / kGigabyte
        ));
    }
    if (gpus.size() < 2) {
        return lines;
    }
    const auto apart = monitor.apart();
    if (!apart) {
        lines.emplace_back("peer access: not known");
        return lines;
    }
    const std::size_t pairs = gpus.size() * (gpus.size() - 1) / 2;
    std::string text = fmt::format("peer access: {} of {} pairs", pairs - apart->size(), pairs);
    constexpr std::size_t kNamed = 8;
    for (std::size_t i = 0; i < std::min(apart->size(), kNamed); ++i) {
        text += fmt::format(
            "{} gpu{}-gpu{}", i == 0 ? "; not" : ",", (*apart)[i].first, (*apart)[i].second
        );
    }
    lines.push_back(text + (apart->size() > kNamed ? ", ..." : ""));
    return lines;
}

std::string describe_use(const std::vector<GpuUse>& gpus) {
    std::string text;
    for (std::size_t i = 0; i < gpus.size(); ++i) {
        text += fmt::format("  gpu{}", i);
        if (gpus[i].busy) {
            text += fmt::format(" {} %", *gpus[i].busy);
        }
        if (gpus[i].memory_total > 0) {
            text += fmt::format(
                " {:.1f}/{:.1f} GB",
                static_cast<double>(gpus[i].memory_used) / kGigabyte,
                static_cast<double>(gpus[i].memory_total) / kGigabyte
            );
        }
    }
    return text;
}

}  // namespace ddprun::trainer
