// Whether a job starts again after a worker has failed, and after which delay: a pure function of
// the job's settings, what happened before and the failure. The budget is the job's, not a node's.
//
// Failures of rounds that lived shorter than `--min_uptime` (or, where that is off, kShortRound)
// follow each other "in a row"; a round that lived longer ends the row. Each one in a row doubles
// the delay. With `--min_uptime` at most kEarlyRestartsMax restarts follow such failures in a row:
// a job that can't start does not use up days of machine time.
#pragma once

#include "proto/agent_messages.h"
#include "proto/failure.h"

#include <chrono>
#include <cstdint>
#include <string>

namespace ddprun {

enum class RestartVerdict : std::uint8_t {
    restart = 0,
    not_executable = 1,   ///< the program won't be there the next time either
    code_is_final = 2,    ///< one of --no_restart_codes
    budget_used_up = 3,   ///< --max_restarts
    fails_too_early = 4,  ///< kEarlyRestartsMax in a row were sooner than --min_uptime
};

/// What came before the failure.
struct RestartHistory {
    RestartCount restarts{};          ///< rounds that began because a worker had failed
    std::int32_t short_in_a_row = 0;  ///< failures of short-lived rounds up to now

    friend bool operator==(const RestartHistory&, const RestartHistory&) = default;
};

struct RestartDecision {
    RestartVerdict verdict = RestartVerdict::restart;
    std::chrono::milliseconds delay{0};  ///< before the next round
    RestartHistory after;                ///< the history with this failure and this restart in it

    friend bool operator==(const RestartDecision&, const RestartDecision&) = default;
};

/// `first` is the round's first failure, `lived` the time from the round's start to it.
[[nodiscard]] RestartDecision decide_restart(
    const JobSpec& spec,
    const RestartHistory& history,
    const WorkerFailure& first,
    std::chrono::milliseconds lived
);

/// Why there is no restart though the budget would allow one; empty where that isn't the case.
[[nodiscard]] std::string describe_verdict(const JobSpec& spec, const RestartDecision& decision);

}  // namespace ddprun
