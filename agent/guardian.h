// Two processes that look after each other, so that nothing survives whatever ends `ddprun`:
//
//   front (the user's process, pid and exit status)  --forks-->  agent (does everything else)
//
// The front passes signals on, waits for the agent and ends with its status. Each is a subreaper,
// so each inherits what the other leaves behind. The front killed: the agent sees it by a pidfd,
// kills all workers and what they started, and ends. The agent killed: its workers die by their
// parent-death signal, their descendants become the front's children, and the front kills those.
// The agent is in a process group of its own, and has a name of its own, so that neither `kill -9`
// of the front's group nor `pkill -9 ddprun` hits both. Both killed in the same instant: workers
// still die, what they started may live on.
#pragma once

#include "proto/result.h"
#include "rendezvous/unique_fd.h"

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>

namespace ddprun {

struct GuardSettings {
    std::set<int> signals;  ///< what the front passes on to the agent
    std::string cgroup;     ///< name of the workers' control group (agent/worker_cgroup.h)
    std::string mark;       ///< NAME=VALUE that workers carry, for a front with other children
};

/// Which of the two this process is now.
struct Guarded {
    /// In the front, which has nothing left to do: the job's exit status.
    std::optional<int> exit_status;
    /// In the agent: readable when the front has ended.
    UniqueFd front;
};

/// Forks. Returns in the agent at once, in the front when the agent and everything it left behind
/// have ended. Call it from the only thread, before anything is started. An error says that there
/// is no second process; nothing else has changed.
[[nodiscard]] Result<Guarded> split_off_agent(const GuardSettings& settings);

/// Kills the children of this process but the `spared` ones and waits for their ends, and so on
/// with the children that those hand over, for at most kSweepTimeMax; what still lives. CHLD must
/// be blocked. With a `mark` (NAME=VALUE) only children that carry it.
std::set<pid_t> sweep_children(const std::set<pid_t>& spared, const std::string& mark);

}  // namespace ddprun
