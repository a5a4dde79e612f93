// --print_plan: what would run on this node, as a pure function of the settings that the agent
// would get. A variable that is known only when the job runs (a free port, a rank among several
// nodes) has no value in the plan.
#pragma once

#include "agent/agent_settings.h"
#include "launcher/gpus.h"
#include "launcher/options.h"

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddprun::launcher {

struct PlannedWorker {
    LocalRank local_rank;
    std::vector<std::string> argv;
    /// What is set over the inherited environment; no value: known when the job runs.
    std::vector<std::pair<std::string, std::optional<std::string>>> environment;
    NumberSet cpus;
    NumberSet memory_nodes;               ///< empty: as the kernel chooses
    std::vector<std::string> devices;     ///< that it sees, as entries of CUDA_VISIBLE_DEVICES
    std::optional<UsableGpu> own_device;  ///< the one that its local rank stands for
};

struct LaunchPlan {
    std::string program;  ///< path of what is executed
    std::string working_folder;
    std::optional<std::string> job;  ///< empty: a random id
    std::string rendezvous;          ///< HOST:PORT; empty: within the process
    NodeCount min_nodes{1};
    NodeCount max_nodes{1};
    RestartCount max_restarts{0};
    std::vector<std::string> unset;  ///< variables of ours that workers don't inherit
    std::vector<PlannedWorker> workers;
};

/// What of the machine shows in a plan.
struct PlanFacts {
    std::string working_folder;
    NumberSet allowed_cpus;
    std::vector<UsableGpu> gpus;            ///< that the workers see
    std::set<std::string> own_environment;  ///< NAME=VALUE, ddprun's own
};

[[nodiscard]] LaunchPlan plan_of(
    const LaunchCommand& command, const AgentSettings& settings, const PlanFacts& facts
);

/// For people: a heading, then a paragraph for each worker, whose command can be pasted to a shell.
[[nodiscard]] std::string plan_text(const LaunchPlan& plan);

/// For programs: one JSON object (docs/operations.md); bytes that are no UTF-8 are U+FFFD in it.
[[nodiscard]] std::string plan_json(const LaunchPlan& plan);

/// The word as a POSIX shell, or where it has other bytes than printable ASCII bash, reads it.
[[nodiscard]] std::string shell_quoted(std::string_view word);

}  // namespace ddprun::launcher
