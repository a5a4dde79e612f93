// The folders that an agent makes for the time of its life: their names say which process made
// them, so that others can remove what an agent left that was killed. A number means a process only
// in its PID namespace, and containers may share a folder: the name has that of the namespace too.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace ddprun {

inline constexpr std::string_view kMemoryFolderPrefix = "ddprun_memory_";
inline constexpr std::string_view kTemporaryFolderPrefix = "ddprun_";
inline constexpr const char* kSharedMemory = "/dev/shm";

/// Of this process; 0 where it can't be told.
[[nodiscard]] std::uint64_t pid_namespace();

/// BASE/PREFIX<number of the own PID namespace>_<own pid>_<six characters>; empty where it can't be
/// made, with the reason in errno.
[[nodiscard]] std::string make_agent_folder(const std::string& base, std::string_view prefix);

/// Removes folders of this user below `base` with `prefix` and a number for which `is_wanted`
/// holds, and calls `removed` with each path.
void remove_agent_folders(
    const std::string& base,
    std::string_view prefix,
    const std::function<bool(pid_t)>& is_wanted,
    const std::function<void(const std::string&)>& removed = {}
);

/// All that an agent which was killed has left in memory and below the temporary folder.
void remove_folders_left_by(pid_t agent);

}  // namespace ddprun
