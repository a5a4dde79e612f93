// A rendezvous that comes back knowing nothing goes on with what its agents tell it.
#include "proto/exit_codes.h"
#include "proto/limits.h"
#include "rendezvous/membership.h"
#include "tests/unit/rendezvous/membership_job.h"

#include <doctest/doctest.h>

#include <signal.h>

namespace ddprun {
namespace {

using test::TestJob;

TEST_SUITE_BEGIN("rendezvous/membership_rebuild");

TEST_CASE("nodes that come back with their round run on: nobody is told anything new") {
    TestJob job({2, 2});

    job.rejoin("1", 5, 0, 2);
    job.rejoin("2", 5, 1, 2);

    CHECK(job.phase() == Phase::running);
    for (const char* node : {"1", "2"}) {
        CHECK(job.last<Welcome>(node)->send_again);
        CHECK(!job.last<StopRound>(node));
        CHECK(!job.last<PrepareRound>(node));
        CHECK(!job.last<BeginRound>(node));
    }
    job.succeeds("1", 5);
    job.succeeds("2", 5);
    CHECK(job.exit_status == exit_code::kSuccess);
}

TEST_CASE("a node whose first connection to the new rendezvous broke is asked for its reports again"
) {
    TestJob job({2, 2});
    job.rejoin("1", 5, 0, 2);
    job.rejoin("2", 5, 1, 2);
    const std::size_t before = job.sent<Welcome>("2").size();

    job.rejoin("2", 5, 1, 2);

    REQUIRE(job.sent<Welcome>("2").size() == before + 1);
    CHECK(job.last<Welcome>("2")->send_again);
}

TEST_CASE("a success that only the former rendezvous knew is told again and counts") {
    TestJob job({2, 2});
    job.rejoin("1", 5, 0, 2);
    job.succeeds("1", 5);
    CHECK(!job.exit_status);

    job.rejoin("2", 5, 1, 2);
    job.succeeds("2", 5);

    CHECK(job.exit_status == exit_code::kSuccess);
}

TEST_CASE("a failure that only the former rendezvous knew starts the next round, charged once") {
    TestJob job({2, 2, 3});
    job.rejoin("2", 5, 1, 2, 1);
    job.stopped("2", 5);  // it had been told to stop already
    CHECK(job.phase() == Phase::stopping);

    job.rejoin("1", 5, 0, 2, 1);
    job.worker_fails("1", 5);
    job.stopped("1", 5);
    job.begin();

    CHECK(job.round("1") == 6);
    CHECK(job.round("2") == 6);
    CHECK(job.last<BeginRound>("2")->plan.reason == RoundReason::worker_failure);
    CHECK(job.last<BeginRound>("2")->plan.restart_count == RestartCount{2});
}

TEST_CASE("a failure waits for the nodes that are still to come back") {
    TestJob job({2, 2, 1});
    job.rejoin("1", 0, 0, 2);

    job.worker_fails("1", 0);
    job.stopped("1", 0);
    CHECK(job.phase() == Phase::stopping);
    job.rejoin("2", 0, 1, 2);

    CHECK(job.last<StopRound>("2")->round == Round{0});
    job.stopped("2", 0);
    job.begin();
    CHECK(job.round("2") == 1);
}

TEST_CASE("a node that doesn't come back in time is lost") {
    TestJob job({1, 2});
    job.rejoin("1", 5, 0, 2);

    job.after(limits::kRebuildTimeout.count());

    CHECK(job.last<StopRound>("1")->kind == StopKind::node_lost);
    job.stopped("1", 5);
    job.begin();
    CHECK(job.round("1") == 6);
    CHECK(job.last<BeginRound>("1")->plan.nodes == NodeCount{1});
}

TEST_CASE("a newcomer waits until the round is whole again, then joins where there is room") {
    TestJob job({1, 3});
    job.rejoin("1", 5, 0, 2);
    job.join("3");
    CHECK(!job.last<StopRound>("1"));

    job.rejoin("2", 5, 1, 2);

    CHECK(job.last<StopRound>("1")->kind == StopKind::node_joined);
    CHECK(job.last<StopRound>("2")->kind == StopKind::node_joined);
}

TEST_CASE("a newcomer that is first doesn't begin another job beside the running one") {
    TestJob job({1, 2});
    job.join("3");

    job.rejoin("1", 5, 0, 2);
    job.after(job.spec.last_call_timeout.count());
    job.rejoin("2", 5, 1, 2);

    CHECK(job.phase() == Phase::running);
    CHECK(!job.last<StopRound>("1"));
    CHECK(job.last<Waiting>("3")->spare);
}

TEST_CASE("the newest round that any node has is the job's, an older one's workers stop") {
    TestJob job({1, 3});
    job.rejoin("1", 4, 0, 2);

    job.rejoin("2", 5, 0, 1);

    CHECK(job.core().state().plan.round == Round{5});
    CHECK(job.last<StopRound>("1")->round == Round{4});
    CHECK(!job.last<StopRound>("2"));
}

TEST_CASE("round numbers that an agent has seen are not used again") {
    TestJob job({2, 2, 1});
    job.rejoin("1", 5, 0, 2);
    job.rejoin("2", 9, 1, 2);
    job.lose("1");
    job.after(limits::kRebuildTimeout.count());
    job.stopped("2", 9);
    job.new_life("1");
    job.join("1");
    job.begin();

    CHECK(job.round("2") == 10);
}

TEST_CASE("a stop of the job that only the former rendezvous knew ends it everywhere") {
    TestJob job({2, 2});
    job.rejoin("1", 5, 0, 2);
    job.stop_job("1", SIGTERM);
    job.stopped("1", 5);
    job.rejoin("2", 5, 1, 2);
    job.stopped("2", 5);

    CHECK(job.last<EndJob>("1")->exit_status == 128 + SIGTERM);
    CHECK(job.last<EndJob>("2")->exit_status == 128 + SIGTERM);
}

TEST_CASE("a job that has begun doesn't seal a round of its spares while its nodes are away") {
    TestJob job({1, 1});
    Join spare;
    spare.job = JobId{"job"};
    spare.node = NodeId{"9"};
    spare.incarnation = job.incarnation("9");
    spare.info.host = std::string("9");
    spare.spec = job.spec;
    spare.job_began = true;
    job.event("9", spare);
    CHECK(job.phase() == Phase::gathering);

    job.rejoin("1", 5, 0, 1);

    CHECK(job.phase() == Phase::running);
    CHECK(!job.last<StopRound>("1"));
}

// ---- a node that leaves alone

TEST_CASE("a node that leaves takes part in no further round, the others go on for free") {
    TestJob job({1, 3});
    job.join("1");
    job.join("2");
    job.after(job.spec.last_call_timeout.count());
    job.begin();
    job.join("3");
    job.stopped("1", 0);
    job.stopped("2", 0);
    job.begin();
    REQUIRE(job.round("2") == 1);

    job.leave("2");
    CHECK(job.last<StopRound>("1")->kind == StopKind::node_left);
    job.stopped("1", 1);
    job.stopped("3", 1);
    job.stopped("2", 1);
    job.begin();

    CHECK(job.round("1") == 2);
    CHECK(job.rank("3") == 1);
    CHECK(job.round("2") == 1);
    CHECK(job.last<BeginRound>("1")->plan.restart_count == RestartCount{0});
    job.bye("2");
    CHECK(job.phase() == Phase::running);
}

TEST_CASE("a refused node is told to those that wait, with the reason") {
    TestJob job({3, 3});
    job.join("1", 0);
    job.join("2", 0);

    job.after(limits::kWaitingDelay.count());

    CHECK(job.refused("2")->text == "node_rank 0 is taken by 1");
    REQUIRE(job.last<Waiting>("1")->refused.size() == 1);
    CHECK(job.last<Waiting>("1")->refused[0] == "2: node_rank 0 is taken by 1");
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
