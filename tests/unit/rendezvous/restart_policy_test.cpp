#include "rendezvous/restart_policy.h"

#include "proto/limits.h"

#include <doctest/doctest.h>

#include <signal.h>

namespace ddprun {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongTime{3'600'000};

JobSpec spec_with_budget(std::int32_t max_restarts) {
    JobSpec spec;
    spec.max_restarts = RestartCount{max_restarts};
    return spec;
}

WorkerFailure exited(std::int32_t code) {
    WorkerFailure failure;
    failure.code = code;
    return failure;
}

WorkerFailure killed(std::int32_t signal) {
    WorkerFailure failure;
    failure.kind = FailureKind::signaled;
    failure.code = signal;
    return failure;
}

/// Decides for `count` failures one after another; the last decision.
RestartDecision after_failures(const JobSpec& spec, int count, milliseconds lived) {
    RestartDecision decision;
    for (int i = 0; i < count; ++i) {
        decision = decide_restart(spec, decision.after, exited(1), lived);
    }
    return decision;
}

TEST_SUITE_BEGIN("rendezvous/restart_policy");

TEST_CASE("a failure within the budget is a restart at once and charges it") {
    const RestartDecision decision =
        decide_restart(spec_with_budget(1), RestartHistory{}, exited(1), kLongTime);

    CHECK(decision.verdict == RestartVerdict::restart);
    CHECK(decision.delay == milliseconds(0));
    CHECK(decision.after.restarts == RestartCount{1});
}

TEST_CASE("a budget that is used up is final") {
    const RestartDecision decision = after_failures(spec_with_budget(1), 2, kLongTime);

    CHECK(decision.verdict == RestartVerdict::budget_used_up);
    CHECK(decision.after.restarts == RestartCount{1});
}

TEST_CASE("a program that can't be executed is never restarted") {
    WorkerFailure failure = exited(127);
    failure.kind = FailureKind::exec;

    const RestartDecision decision =
        decide_restart(spec_with_budget(5), RestartHistory{}, failure, milliseconds(0));

    CHECK(decision.verdict == RestartVerdict::not_executable);
}

TEST_CASE("a code of the list is never restarted, another one is") {
    JobSpec spec = spec_with_budget(5);
    spec.no_restart_codes = {3, 42};

    CHECK(
        decide_restart(spec, RestartHistory{}, exited(42), kLongTime).verdict ==
        RestartVerdict::code_is_final
    );
    CHECK(
        decide_restart(spec, RestartHistory{}, exited(41), kLongTime).verdict ==
        RestartVerdict::restart
    );
}

TEST_CASE("128 + n in the list stands for signal n") {
    JobSpec spec = spec_with_budget(5);
    spec.no_restart_codes = {128 + SIGSEGV};

    CHECK(
        decide_restart(spec, RestartHistory{}, killed(SIGSEGV), kLongTime).verdict ==
        RestartVerdict::code_is_final
    );
    CHECK(
        decide_restart(spec, RestartHistory{}, exited(SIGSEGV), kLongTime).verdict ==
        RestartVerdict::restart
    );
}

TEST_CASE("the delay doubles with each failure in a row") {
    JobSpec spec = spec_with_budget(10);
    spec.restart_delay = milliseconds(500);

    CHECK(after_failures(spec, 1, milliseconds(10)).delay == milliseconds(500));
    CHECK(after_failures(spec, 2, milliseconds(10)).delay == milliseconds(1'000));
    CHECK(after_failures(spec, 3, milliseconds(10)).delay == milliseconds(2'000));
}

TEST_CASE("a doubled delay is capped, one that was asked for stays") {
    JobSpec spec = spec_with_budget(1'000);
    spec.restart_delay = milliseconds(500);
    CHECK(after_failures(spec, 500, milliseconds(10)).delay == limits::kRestartDelayMax);

    spec.restart_delay = 2 * limits::kRestartDelayMax;
    CHECK(after_failures(spec, 5, milliseconds(10)).delay == 2 * limits::kRestartDelayMax);
}

TEST_CASE("a round that lived long ends the row") {
    JobSpec spec = spec_with_budget(10);
    spec.restart_delay = milliseconds(500);
    const RestartDecision third = after_failures(spec, 3, milliseconds(10));

    const RestartDecision decision = decide_restart(spec, third.after, exited(1), kLongTime);

    CHECK(decision.delay == milliseconds(500));
    CHECK(decision.after.short_in_a_row == 0);
    CHECK(decision.after.restarts == RestartCount{4});
}

TEST_CASE("failures sooner than min_uptime have a smaller budget") {
    JobSpec spec = spec_with_budget(100);
    spec.min_uptime = milliseconds(10'000);

    const RestartDecision last =
        after_failures(spec, limits::kEarlyRestartsMax, milliseconds(9'999));
    CHECK(last.verdict == RestartVerdict::restart);

    const RestartDecision decision =
        decide_restart(spec, last.after, exited(1), milliseconds(9'999));
    CHECK(decision.verdict == RestartVerdict::fails_too_early);
    CHECK(
        describe_verdict(spec, decision) ==
        "4 failures in a row within 10 s of the start (--min_uptime)"
    );
}

TEST_CASE("a failure at min_uptime or later doesn't count against the smaller budget") {
    JobSpec spec = spec_with_budget(100);
    spec.min_uptime = milliseconds(10'000);

    CHECK(after_failures(spec, 50, milliseconds(10'000)).verdict == RestartVerdict::restart);
}

TEST_CASE("without min_uptime there is no smaller budget") {
    CHECK(
        after_failures(spec_with_budget(100), 50, milliseconds(0)).verdict ==
        RestartVerdict::restart
    );
}

TEST_CASE("a budget that is used up needs no words") {
    const JobSpec spec = spec_with_budget(1);

    CHECK(describe_verdict(spec, after_failures(spec, 2, kLongTime)) == "");
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
