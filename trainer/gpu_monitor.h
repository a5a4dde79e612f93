// Use and memory of this machine's GPUs, and who reaches whose memory, by NVIDIA's management
// library, which is loaded at run time. One thread uses it. A GPU that gives no number is told
// without it.
#pragma once

#include "proto/result.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddprun::trainer {

struct GpuUse {
    std::string name;
    std::optional<unsigned int> busy;  ///< per cent of the last moment
    std::uint64_t memory_used = 0;     ///< bytes
    std::uint64_t memory_total = 0;    ///< bytes; 0: not known
};

class GpuMonitor {
public:
    /// `library` is a name for the dynamic loader, or a path. Errors: not_found where it can't be
    /// loaded, unsupported where it refuses to answer.
    [[nodiscard]] static Result<std::unique_ptr<GpuMonitor>> open(
        const std::string& library = "libnvidia-ml.so.1"
    );

    GpuMonitor(const GpuMonitor&) = delete;
    GpuMonitor& operator=(const GpuMonitor&) = delete;
    ~GpuMonitor();

    /// The driver's version; empty: not known.
    [[nodiscard]] std::string driver() const;

    /// At present, in the library's order.
    [[nodiscard]] std::vector<GpuUse> read() const;

    /// The pairs (the lower index first) whose GPUs can't read each other's memory. None where the
    /// library doesn't know.
    [[nodiscard]] std::optional<std::vector<std::pair<int, int>>> apart() const;

private:
    struct Library;
    explicit GpuMonitor(std::unique_ptr<Library> library);

    std::unique_ptr<Library> library_;
};

/// The check at the start, a line each: count and driver, each GPU's name and memory, and whether
/// all reach each other's memory ("peer access").
[[nodiscard]] std::vector<std::string> describe_gpus(const GpuMonitor& monitor);

/// "  gpu0 87 % 41.2/139.8 GB  gpu1 ..."
[[nodiscard]] std::string describe_use(const std::vector<GpuUse>& gpus);

}  // namespace ddprun::trainer
