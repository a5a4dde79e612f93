// The options of how workers are supervised: restarts, signals, the report for programs,
// descriptors that are passed on. Pure.
#pragma once

#include "launcher/option_reader.h"
#include "launcher/options.h"
#include "proto/result.h"

#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

namespace ddprun::launcher {

/// "3,128-130": statuses from 1 to 255, in ascending order, each once. Errors: invalid_argument.
[[nodiscard]] Result<std::vector<std::int32_t>> parse_statuses(std::string_view text);

/// "USR1,SIGWINCH,RTMIN+2,40": signals that a program may be sent for its own purposes. Errors:
/// invalid_argument; also for those that stop a job, that can't be caught or mean a fault.
[[nodiscard]] Result<std::set<int>> parse_signals(std::string_view text);

/// "5,7": descriptors above 2. Errors: invalid_argument.
[[nodiscard]] Result<std::set<int>> parse_descriptors(std::string_view text);

/// Reads these options into `command`.
void read_supervision(Reader& reader, LaunchCommand& command);

}  // namespace ddprun::launcher
