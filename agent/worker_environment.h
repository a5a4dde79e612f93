// The environment of a worker as a pure function of the round's plan: torchrun's variables and
// ours, over what the launcher's user had, with nothing of an outer job's ranks in it. Also the
// pure half of OMP_NUM_THREADS and the names of a round's folders, which the environment mentions.
#pragma once

#include "proto/round_plan.h"
#include "proto/types.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

struct EnvironmentSettings {
    std::vector<std::string> inherited;  ///< of inherited_environment()
    JobId job;
    std::string role = "default";
    std::string run_folder;  ///< error files lie below it; empty: no error files
    std::string worker_mark;
    std::string memory_folder;  ///< in shared memory, outlives the workers; empty: none
    std::string signals_to_handle;
    bool virtual_local_rank = false;
    std::int32_t allowed_cpus = 1;
    std::optional<std::int32_t> omp_num_threads;  ///< asked for on the command line
    /// By local rank, where workers are bound to CPUs: no more threads than these.
    std::vector<std::int32_t> bound_threads;
    std::optional<std::int32_t> tty_columns;
};

/// `parent` (NAME=VALUE) without every variable that worker_environment() sets itself, whatever an
/// outer job left there.
[[nodiscard]] std::vector<std::string> inherited_environment(const std::vector<std::string>& parent
);

/// NAME=VALUE, complete. `local_rank` must be one of the node's.
[[nodiscard]] std::vector<std::string> worker_environment(
    const EnvironmentSettings& settings,
    const RoundPlan& plan,
    const NodePlace& place,
    LocalRank local_rank
);

/// What marks everything that this life of an agent started: the value, and NAME=VALUE.
[[nodiscard]] std::string worker_mark(Incarnation incarnation);
[[nodiscard]] std::string worker_mark_entry(Incarnation incarnation);

/// The value of NAME in NAME=VALUE strings, the last one counts.
[[nodiscard]] std::optional<std::string_view> find_variable(
    const std::vector<std::string>& environment, std::string_view name
);

/// OMP_NUM_THREADS where the user has no wish: the worker's share of the allowed CPUs, and of those
/// that it is bound to.
[[nodiscard]] std::int32_t default_threads(
    const EnvironmentSettings& settings, LocalWorldSize workers, LocalRank local_rank
);

/// CPUs shared out among the workers of a node, at least 1 each.
[[nodiscard]] std::int32_t threads_per_worker(std::int32_t allowed_cpus, LocalWorldSize workers);

/// "attempt_N" as torchrun names it; rounds that only changed the set of nodes keep N and get
/// "_r<round>", so that nothing is overwritten.
[[nodiscard]] std::string attempt_folder(const RoundPlan& plan);

/// RUN_FOLDER/ATTEMPT/LOCAL_RANK.
[[nodiscard]] std::string worker_folder(
    std::string_view run_folder, const RoundPlan& plan, LocalRank local_rank
);

}  // namespace ddprun
