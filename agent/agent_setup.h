// What an agent does to its own process before it starts, and the settings of its core: plain
// functions of AgentSettings.
#pragma once

#include "agent/agent_core.h"
#include "agent/agent_settings.h"

#include <cstdint>
#include <set>
#include <string>

namespace ddprun {

/// Unix time in milliseconds.
[[nodiscard]] std::int64_t wall_time_ms();

/// Numbers 0, 1 and 2 are taken, by /dev/null where they were closed: a program started with closed
/// standard descriptors would get them as pipes of its own.
void ensure_standard_descriptors();

/// Pipes and pidfds of all workers beside what the program has open anyway; workers get the limit
/// that we were given.
void raise_descriptor_limit(const ProcessState& state, LocalWorldSize workers);

/// What an agent reads and its front passes on: signals to stop and to forward, and CHLD, but for
/// those that were ignored at our start.
[[nodiscard]] std::set<int> watched_signals(
    const ProcessState& at_start, const std::set<int>& forwarded
);

/// `settings.at_start` filled in.
[[nodiscard]] AgentSettings completed(AgentSettings settings);

[[nodiscard]] AgentCoreSettings core_settings(
    const AgentSettings& settings, const std::string& run_folder, const std::string& memory_folder
);

}  // namespace ddprun
