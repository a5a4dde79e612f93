// What is known of a worker that failed: made by the agent of its node, carried by the rendezvous
// to every node, shown in the report. A value; no clocks, no formatting.
#pragma once

#include "proto/types.h"

#include <cstdint>
#include <string>

namespace ddprun {

enum class FailureKind : std::uint8_t {
    exited = 0,         ///< ended by itself with a status other than 0
    signaled = 1,       ///< ended by a signal
    out_of_memory = 2,  ///< ended by the kernel's out-of-memory killer
    exec = 3,   ///< the program could not be executed: missing (127) or not executable (126)
    agent = 4,  ///< the node could not do its part (for example bind the worker store)
};

struct WorkerFailure {
    std::string host;        ///< host name of the node
    GroupRank group_rank{};  ///< of the node
    Rank rank{};             ///< global
    LocalRank local_rank{};
    std::int32_t pid = 0;  ///< 0 where no process was started
    FailureKind kind = FailureKind::exited;
    std::int32_t code =
        0;  ///< the exit code (exited, exec), or the signal's number (signaled, out_of_memory)
    bool core_dumped = false;
    std::int64_t wall_time_ms = 0;  ///< Unix time of its death
    std::int64_t uptime_ms = 0;     ///< from its start to its death
    std::string message;      ///< from its error file, or the system's words for a failed start
    std::string traceback;    ///< from its error file
    std::string stderr_tail;  ///< its last lines on stderr

    friend bool operator==(const WorkerFailure&, const WorkerFailure&) = default;
};

/// The exit status that this failure gives to the job (proto/exit_codes.h).
[[nodiscard]] int exit_status_of(const WorkerFailure& failure);

/// "signal 9 (SIGKILL)".
[[nodiscard]] std::string describe_signal(std::int32_t signal);

/// In plain words, for example "rank 1 on node2 (pid 4711) was killed by signal 9 (SIGKILL)".
[[nodiscard]] std::string describe_failure(const WorkerFailure& failure);

}  // namespace ddprun
