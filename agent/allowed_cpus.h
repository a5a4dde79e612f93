// How many CPUs this process may use: its affinity mask, and the quota of its control group.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ddprun {

/// At least 1.
[[nodiscard]] std::int32_t allowed_cpus();

/// Whole CPUs of cgroup v2's cpu.max ("200000 100000", "max 100000"), rounded up; empty for no
/// quota or no sense.
[[nodiscard]] std::optional<std::int32_t> cpus_of_quota(std::string_view cpu_max);

}  // namespace ddprun
