#include "launcher/nvml.h"

#include "proto/limits.h"

#include <fmt/format.h>

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace ddprun::launcher {

namespace {

// What of nvml.h is used, in its binary form, which NVIDIA keeps under the suffixes _v2 and _v3.
using Device = struct DeviceTag*;

struct PciInfo {
    char bus_id_legacy[16];
    unsigned int domain;
    unsigned int bus;
    unsigned int device;
    unsigned int pci_device_id;
    unsigned int pci_subsystem_id;
    char bus_id[32];
};

constexpr int kSuccess = 0;
constexpr unsigned int kUuidBytes = 96;  ///< NVML_DEVICE_UUID_V2_BUFFER_SIZE

struct Functions {
    int (*init)() = nullptr;
    int (*shut_down)() = nullptr;
    int (*count)(unsigned int*) = nullptr;
    int (*handle)(unsigned int, Device*) = nullptr;
    int (*pci_info)(Device, PciInfo*) = nullptr;
    int (*uuid)(Device, char*, unsigned int) = nullptr;
};

/// False where the library lacks the function.
template <class Function>
bool find(void* library, const char* name, Function& function) {
    void* const address = ::dlsym(library, name);
    static_assert(sizeof function == sizeof address);
    std::memcpy(&function, &address, sizeof function);
    return address != nullptr;
}

struct CloseLibrary {
    void operator()(void* library) const { ::dlclose(library); }
};

Gpu read_gpu(const Functions& nvml, unsigned int index) {
    Gpu gpu;
    Device device = nullptr;
    if (nvml.handle(index, &device) != kSuccess) {
        return gpu;  // one that this user may not look at is still there
    }
    PciInfo pci{};
    if (nvml.pci_info(device, &pci) == kSuccess) {
        gpu.pci_address = fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
    }
    char uuid[kUuidBytes + 1] = {};
    if (nvml.uuid(device, uuid, kUuidBytes) == kSuccess) {
        gpu.uuid = uuid;
    }
    return gpu;
}

}  // namespace

Result<std::vector<Gpu>> gpus_by_nvml(const std::string& library) {
    const std::unique_ptr<void, CloseLibrary> loaded{
        ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)};
    if (loaded == nullptr) {
        // NOLINTNEXTLINE(concurrency-mt-unsafe): before there is another thread
        const char* const reason = ::dlerror();
        return fail(
            Errc::not_found,
            fmt::format("load {}: {}", library, reason == nullptr ? "not found" : reason)
        );
    }
    Functions nvml;
    const bool complete = find(loaded.get(), "nvmlInit_v2", nvml.init) &&
                          find(loaded.get(), "nvmlShutdown", nvml.shut_down) &&
                          find(loaded.get(), "nvmlDeviceGetCount_v2", nvml.count) &&
                          find(loaded.get(), "nvmlDeviceGetHandleByIndex_v2", nvml.handle) &&
                          find(loaded.get(), "nvmlDeviceGetPciInfo_v3", nvml.pci_info) &&
                          find(loaded.get(), "nvmlDeviceGetUUID", nvml.uuid);
    if (!complete) {
        return fail(Errc::not_found, fmt::format("load {}: it is too old or no NVML", library));
    }
    if (const int status = nvml.init(); status != kSuccess) {
        return fail(Errc::unsupported, fmt::format("ask {}: nvmlInit gives {}", library, status));
    }
    std::vector<Gpu> gpus;
    unsigned int count = 0;
    const int status = nvml.count(&count);
    count = std::min(count, static_cast<unsigned int>(limits::kLocalWorldSizeMax));
    for (unsigned int index = 0; status == kSuccess && index < count; ++index) {
        gpus.push_back(read_gpu(nvml, index));
    }
    nvml.shut_down();
    if (status != kSuccess) {
        return fail(
            Errc::unsupported, fmt::format("ask {}: the number of GPUs gives {}", library, status)
        );
    }
    return gpus;
}

}  // namespace ddprun::launcher
