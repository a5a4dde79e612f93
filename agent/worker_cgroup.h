// A control group (version 2) of this agent's workers, below our own, where one may be made and the
// kernel has `cgroup.kill` (5.14): one write ends everything in it, also what forks faster than it
// can be looked for and what can't be told from strangers. Where none may be made there is none,
// quietly: the sweep of children does without.
#pragma once

#include "proto/types.h"
#include "rendezvous/unique_fd.h"

#include <string>

namespace ddprun {

/// Of the workers of this life of an agent.
[[nodiscard]] std::string worker_cgroup_name(Incarnation incarnation);

class WorkerCgroup {
public:
    /// Makes the group, without one for a round. `root` precedes every path, as in agent/cgroups.h.
    explicit WorkerCgroup(const std::string& name, const std::string& root = {});
    WorkerCgroup(const WorkerCgroup&) = delete;
    WorkerCgroup& operator=(const WorkerCgroup&) = delete;
    /// remove()
    ~WorkerCgroup();

    /// Makes a fresh group for a round below it: kernels kill what is started in a group that was
    /// killed before.
    void begin_round(Round round);

    /// The open folder of the round's group, in which children may be started; -1 where there is
    /// none.
    [[nodiscard]] int fd() const { return folder_.get(); }

    /// SIGKILL to everything in the round's group.
    void kill();

    /// Removes it, where nothing in it is alive.
    void remove();

private:
    std::string path_;
    std::string round_path_;
    UniqueFd folder_;
};

/// For whoever outlives an agent in the same control group: kills its workers and what they left.
void kill_worker_cgroup(const std::string& name);

/// The same for the group itself, when nothing in it is alive.
void remove_worker_cgroup(const std::string& name);

}  // namespace ddprun
