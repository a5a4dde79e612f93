#include "rendezvous/restart_policy.h"

#include "proto/limits.h"
#include "rendezvous/membership_texts.h"

#include <fmt/format.h>

#include <algorithm>

namespace ddprun {

namespace {

/// `base`, doubled for each failure in a row after the first one, to kRestartDelayMax.
std::chrono::milliseconds grown_delay(std::chrono::milliseconds base, std::int32_t in_a_row) {
    std::chrono::milliseconds delay = base;
    for (std::int32_t i = 1; i < in_a_row && delay < limits::kRestartDelayMax; ++i) {
        delay = std::min(2 * delay, limits::kRestartDelayMax);
    }
    return std::max(base, delay);
}

}  // namespace

RestartDecision decide_restart(
    const JobSpec& spec,
    const RestartHistory& history,
    const WorkerFailure& first,
    std::chrono::milliseconds lived
) {
    const bool counts_early = spec.min_uptime.count() > 0;
    const bool is_short = lived < (counts_early ? spec.min_uptime : limits::kShortRound);
    RestartDecision decision;
    decision.after = history;
    decision.after.short_in_a_row = is_short ? history.short_in_a_row + 1 : 0;

    const auto& final_codes = spec.no_restart_codes;
    if (first.kind == FailureKind::exec) {
        decision.verdict = RestartVerdict::not_executable;
    } else if (std::find(final_codes.begin(), final_codes.end(), exit_status_of(first)) !=
               final_codes.end()) {
        decision.verdict = RestartVerdict::code_is_final;
    } else if (history.restarts >= spec.max_restarts) {
        decision.verdict = RestartVerdict::budget_used_up;
    } else if (counts_early && decision.after.short_in_a_row > limits::kEarlyRestartsMax) {
        decision.verdict = RestartVerdict::fails_too_early;
    } else {
        decision.after.restarts = RestartCount{history.restarts.value() + 1};
        decision.delay = grown_delay(spec.restart_delay, decision.after.short_in_a_row);
    }
    return decision;
}

std::string describe_verdict(const JobSpec& spec, const RestartDecision& decision) {
    switch (decision.verdict) {
        case RestartVerdict::restart:
        case RestartVerdict::not_executable:
        case RestartVerdict::budget_used_up: return {};
        case RestartVerdict::code_is_final: return "--no_restart_codes has this status";
        case RestartVerdict::fails_too_early:
            return fmt::format(
                "{} failures in a row within {} of the start (--min_uptime)",
                decision.after.short_in_a_row,
                describe_time(spec.min_uptime)
            );
    }
    return {};
}

}  // namespace ddprun
