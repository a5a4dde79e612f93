// What this machine offers: CPUs that may be used, names. Reads the system, decides nothing.
#pragma once

#include "launcher/options.h"
#include "proto/result.h"

#include <filesystem>
#include <string>

namespace ddprun::launcher {

/// CPUs of the affinity mask, at least 1.
[[nodiscard]] int count_cpus();

/// The host name of this machine, as uname reports it.
[[nodiscard]] std::string host_name();

/// The folder of the running program. Errors: Errc::io_error where /proc isn't there.
[[nodiscard]] Result<std::filesystem::path> own_folder();

/// 64 random bits from the kernel, for incarnations and job ids.
[[nodiscard]] Result<std::uint64_t> random_bits();

/// The environment of this process, in the order of names; the last of two equal names wins.
[[nodiscard]] Environment process_environment();

}  // namespace ddprun::launcher
