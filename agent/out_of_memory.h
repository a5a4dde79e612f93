// Whether a process that SIGKILL ended was ended by the kernel for lack of memory. Three witnesses:
// the kernel's log, which names the process, where it may be read; else the count of such kills in
// our control group, version 2 (memory.events) or 1 (memory.oom_control). The parsers are pure; the
// watch reads files below a root, which is empty but in tests.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun {

/// The number behind `oom_kill` in memory.events or memory.oom_control; none where there is none.
[[nodiscard]] std::optional<std::uint64_t> count_of_oom_kills(std::string_view text);

/// Whether the kernel's log says that `pid` was killed for lack of memory not before `since`
/// seconds after the boot. Lines without a time count for nothing: a number is used again.
[[nodiscard]] bool log_names_victim(std::string_view log, pid_t pid, double since);

class OutOfMemoryWatch {
public:
    /// `read_log` gives the end of the kernel's log, or nothing.
    OutOfMemoryWatch(std::string root, std::function<std::string()> read_log);

    /// Of this machine.
    [[nodiscard]] static OutOfMemoryWatch of_machine();

    /// Kills up to now are those of others. Call it before workers start.
    void begin();

    /// Once for each worker that SIGKILL ended and that we didn't kill; `since` is when it started,
    /// in seconds after the boot. A kill that was counted is counted for one worker.
    [[nodiscard]] bool was_killed(pid_t pid, double since);

private:
    [[nodiscard]] std::uint64_t kills() const;

    std::string root_;
    std::function<std::string()> read_log_;
    std::uint64_t accounted_ = 0;
};

/// Seconds after the boot, as the kernel's log counts them.
[[nodiscard]] double seconds_since_boot();

}  // namespace ddprun
