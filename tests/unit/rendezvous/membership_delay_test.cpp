// The delay before a restart, and the other rules of restarts as the membership core applies them.
#include "proto/exit_codes.h"
#include "proto/limits.h"
#include "rendezvous/membership.h"
#include "tests/unit/rendezvous/membership_job.h"

#include <doctest/doctest.h>

#include <signal.h>

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using test::TestJob;

/// A job of two nodes with a delay of 500 ms, whose first round has failed and stopped.
struct DelayedJob : TestJob {
    DelayedJob() : TestJob({2, 2, 5}) {
        spec.restart_delay = milliseconds(500);
        run_round_of({"1", "2"});
        fail_round(0);
    }

    void fail_round(std::int64_t round, std::int32_t code = 3) {
        worker_fails("2", round, code);
        stopped("1", round);
        stopped("2", round);
    }
};

TEST_SUITE_BEGIN("rendezvous/membership delay");

TEST_CASE("a restart waits for the delay and not longer") {
    DelayedJob job;
    CHECK(job.phase() == Phase::delaying);
    CHECK(job.sent<PrepareRound>("1").size() == 1);
    REQUIRE(job.core().deadline());
    CHECK(job.core().deadline()->value() == job.now.value() + 500);

    job.after(499);
    CHECK(job.sent<PrepareRound>("1").size() == 1);
    job.after(1);

    CHECK(job.sent<PrepareRound>("1").size() == 2);
    CHECK(job.phase() == Phase::preparing);
}

TEST_CASE("every node is told how long the delay is, once") {
    DelayedJob job;

    for (const char* node : {"1", "2"}) {
        const auto told = job.sent<Waiting>(node);
        REQUIRE(told.size() == 1);
        CHECK(told[0].restart_in == milliseconds(500));
        CHECK(told[0].missing == NodeCount{0});
    }
}

TEST_CASE("the next failure in a row doubles the delay") {
    DelayedJob job;
    job.after(500);
    job.begin();

    job.fail_round(1);

    CHECK(job.last<Waiting>("1")->restart_in == milliseconds(1'000));
}

TEST_CASE("a signal during the delay ends the job with 128 + n") {
    DelayedJob job;

    job.stop_job("1", SIGTERM);

    CHECK(job.exit_status == 128 + SIGTERM);
    CHECK(job.last<EndJob>("2")->exit_status == 128 + SIGTERM);
    CHECK_FALSE(job.core().deadline());
    CHECK(job.last<EndJob>("1")->restart_count == RestartCount{0});  // none has begun
}

TEST_CASE("a node lost during the delay is missed after it") {
    DelayedJob job;
    job.lose("2");
    CHECK(job.phase() == Phase::delaying);

    job.after(500);

    CHECK(job.phase() == Phase::gathering);
}

TEST_CASE("a node that joins during the delay takes part afterwards") {
    DelayedJob job;
    job.lose("2");
    job.join("3");
    CHECK(job.phase() == Phase::delaying);

    job.after(500);
    job.begin();

    CHECK(job.rank("3") == 1);
}

TEST_CASE("a node that comes back during the delay is welcomed and told nothing") {
    DelayedJob job;
    job.forget_messages();

    job.join("2");

    CHECK(job.sent<Welcome>("2").size() == 1);
    CHECK(job.messages.size() == 1);
}

TEST_CASE("the join time-out begins after the delay") {
    TestJob job({2, 2, 5});
    job.spec.restart_delay = milliseconds(200'000);
    job.spec.join_timeout = milliseconds(100'000);
    job.run_round_of({"1", "2"});
    job.worker_fails("2", 0);
    job.stopped("1", 0);
    job.stopped("2", 0);
    job.lose("2");

    job.after(200'000);
    CHECK_FALSE(job.exit_status);
    job.after(100'000);

    CHECK(job.exit_status == exit_code::kJoinTimeout);
}

TEST_CASE("a code of --no_restart_codes ends the job, and the reason says so") {
    TestJob job({1, 1, 5});
    job.spec.no_restart_codes = {3};
    job.run_round_of({"1"});

    job.worker_fails("1", 0, 3);
    job.stopped("1", 0);

    CHECK(job.exit_status == 3);
    CHECK(job.last<EndJob>("1")->reason.find("--no_restart_codes") != std::string::npos);
}

TEST_CASE("failures sooner than min_uptime end the job though the budget isn't used up") {
    TestJob job({1, 1, 100});
    job.spec.min_uptime = milliseconds(10'000);
    job.run_round_of({"1"});

    std::int64_t round = 0;
    while (!job.exit_status && round < 50) {
        job.after(5'000);
        job.worker_fails("1", round, 7);
        job.stopped("1", round);
        if (!job.exit_status) {
            job.begin();
        }
        ++round;
    }

    CHECK(job.exit_status == 7);
    CHECK(round == limits::kEarlyRestartsMax + 1);
}

TEST_CASE("the uptime is the round's, to its first failure") {
    TestJob job({1, 1, 100});
    job.spec.min_uptime = milliseconds(10'000);
    job.run_round_of({"1"});

    for (std::int64_t round = 0; round < 10; ++round) {
        job.after(10'000);
        job.worker_fails("1", round, 7);
        job.stopped("1", round);
        REQUIRE_FALSE(job.exit_status);
        job.begin();
    }
}

TEST_CASE("rules of restarts that make no sense are refused") {
    for (const std::int32_t code : {-1, 0, 256}) {
        TestJob job({1, 1, 0});
        job.spec.no_restart_codes = {code};
        job.join("1");
        CHECK(job.refused("1")->reason == RefusalReason::malformed);
    }
    TestJob job({1, 1, 0});
    job.spec.restart_delay = milliseconds(-1);
    job.join("1");
    CHECK(job.refused("1")->reason == RefusalReason::malformed);
}

TEST_CASE("the end lists whom the agents stopped, in the order of their ranks") {
    TestJob job({2, 2, 0});
    job.run_round_of({"1", "2"});
    job.worker_fails("2", 0, 3);

    job.event("2", RoundStopped{SequenceNumber{8}, Round{0}, {}, {{Rank{3}, false}}});
    job.event(
        "1", RoundStopped{SequenceNumber{8}, Round{0}, {}, {{Rank{1}, true}, {Rank{0}, false}}}
    );

    const auto end = job.last<EndJob>("1");
    REQUIRE(end);
    CHECK(
        end->stopped ==
        std::vector<StoppedWorker>{{Rank{0}, false}, {Rank{1}, true}, {Rank{3}, false}}
    );
}

TEST_CASE("whom an earlier round stopped isn't listed") {
    TestJob job({1, 1, 1});
    job.run_round_of({"1"});
    job.worker_fails("1", 0, 3);
    job.event("1", RoundStopped{SequenceNumber{8}, Round{0}, {}, {{Rank{1}, false}}});
    job.event("1", StoreReady{SequenceNumber{9}, Round{1}, Port{1}});
    job.event("1", WorkersSucceeded{SequenceNumber{10}, Round{1}});

    CHECK(job.exit_status == 0);
    CHECK(job.last<EndJob>("1")->stopped.empty());
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
