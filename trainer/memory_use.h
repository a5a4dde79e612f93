// What the kernel says about this process's memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ddprun::trainer {

struct MemoryUse {
    std::int64_t resident_kb = 0;
    std::int64_t peak_kb = 0;
};

/// From the text of /proc/PID/status; none where a line is missing.
[[nodiscard]] std::optional<MemoryUse> parse_status(std::string_view text);

/// Of this process; zeros where /proc can't be read.
[[nodiscard]] MemoryUse memory_use();

}  // namespace ddprun::trainer
