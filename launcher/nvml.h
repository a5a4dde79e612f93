// NVIDIA's management library, loaded at run time where there is one: ddprun is built and runs
// without it. Asked once at a start, and let go again.
#pragma once

#include "proto/result.h"

#include <string>
#include <vector>

namespace ddprun::launcher {

/// One GPU of this machine.
struct Gpu {
    std::string uuid;         ///< "GPU-8932f937-..."; empty: not known
    std::string pci_address;  ///< as sysfs writes it, "0000:3b:00.0"; empty: not known

    friend bool operator==(const Gpu&, const Gpu&) = default;
};

/// The GPUs that `library` (a name for the dynamic loader, or a path) lists, in its order, which is
/// that of PCI addresses. Errors: Errc::not_found where it can't be loaded, Errc::unsupported where
/// it refuses to answer (no driver, or one of another version).
[[nodiscard]] Result<std::vector<Gpu>> gpus_by_nvml(const std::string& library);

}  // namespace ddprun::launcher
