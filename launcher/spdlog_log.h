// The program's Log: lines on stderr by spdlog, which only the source file of this header knows.
#pragma once

#include "proto/log.h"

#include <memory>
#include <string_view>

namespace ddprun::launcher {

/// Lines like "[ddprun 05:44:55.123 W] text" on stderr, from `level` on. `name` is the program's.
[[nodiscard]] std::unique_ptr<Log> make_stderr_log(std::string_view name, LogLevel level);

}  // namespace ddprun::launcher
