// The text that every node prints when a job has failed: which rank failed first, with what, what
// it said last, who failed later and whom we stopped. Pure, at most 25 lines, the same on every
// node.
#pragma once

#include "proto/agent_messages.h"
#include "proto/failure.h"

#include <cstdint>
#include <string>

namespace ddprun {

/// Lines with their newlines. `end` is what the rendezvous said; without failures it is its reason.
[[nodiscard]] std::string format_failure_report(const JobId& job, const EndJob& end);

/// "exit code 3", "signal 11 (SIGSEGV), core dumped", "signal 6 (SIGABRT), no core dump", "out of
/// memory, killed by the kernel with signal 9 (SIGKILL)", ...
[[nodiscard]] std::string cause_of(const WorkerFailure& failure);

/// Unix milliseconds as UTC "2026-01-31 09:05:07.042Z": the same text on every node.
[[nodiscard]] std::string format_wall_time(std::int64_t unix_ms);

/// The same as programs read it: "2026-01-31T09:05:07.042Z".
[[nodiscard]] std::string format_iso_time(std::int64_t unix_ms);

}  // namespace ddprun
