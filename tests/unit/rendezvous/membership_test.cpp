#include "rendezvous/membership.h"

#include "proto/exit_codes.h"
#include "proto/limits.h"
#include "tests/unit/rendezvous/membership_job.h"

#include <doctest/doctest.h>

namespace ddprun {
namespace {

using test::TestJob;

TEST_SUITE_BEGIN("rendezvous/membership");

// ---- the first round

TEST_CASE("a lone node is welcomed and prepares its round at once") {
    TestJob job({1, 1});

    job.join("1");

    CHECK(job.last<Welcome>("1")->heartbeat_interval == job.spec.heartbeat_interval);
    CHECK(job.last<PrepareRound>("1")->round == Round{0});
    CHECK_FALSE(job.last<BeginRound>("1"));
}

TEST_CASE("a round begins on all nodes when the store of group rank 0 is ready") {
    TestJob job({2, 2, 3});
    job.join("1");
    job.join("2");
    CHECK(job.sent<PrepareRound>("1").size() == 1);
    CHECK(job.sent<PrepareRound>("2").empty());

    job.store_ready("1", 0);

    const auto begun = job.last<BeginRound>("2");
    REQUIRE(begun);
    CHECK(begun->place.group_rank == GroupRank{1});
    CHECK(begun->plan.master_address == "10.0.0.1");
    CHECK(begun->plan.master_port == Port{29501});
    CHECK(begun->plan.nodes == NodeCount{2});
    CHECK(begun->plan.max_restarts == RestartCount{3});
    CHECK(begun->plan.reason == RoundReason::first_start);
    CHECK(job.rank("1") == 0);
}

TEST_CASE("a store that another node than group rank 0 reports doesn't begin the round") {
    TestJob job({2, 2});
    job.join("1");
    job.join("2");

    job.store_ready("2", 0);

    CHECK(job.phase() == Phase::preparing);
}

TEST_CASE("fewer nodes than MIN wait and are told who is there") {
    TestJob job({3, 3});
    job.join("1");
    job.join("2");
    CHECK_FALSE(job.last<Waiting>("1"));

    job.after(limits::kWaitingDelay.count());

    const auto waiting = job.last<Waiting>("1");
    REQUIRE(waiting);
    CHECK(waiting->joined == std::vector<std::string>{"1", "2"});
    CHECK(waiting->missing == NodeCount{1});
    CHECK(waiting->present == NodeCount{2});
    CHECK(job.last<Waiting>("2") == waiting);
}

TEST_CASE("waiting nodes are told again in intervals") {
    TestJob job({2, 2});
    job.join("1");
    job.after(limits::kWaitingDelay.count());

    job.after(limits::kWaitingInterval.count());

    CHECK(job.sent<Waiting>("1").size() == 2);
}

TEST_CASE("a join time-out ends the job with 75 and says who was there") {
    TestJob job({2, 2});
    job.join("1");

    job.after(job.spec.join_timeout.count());

    const auto end = job.last<EndJob>("1");
    REQUIRE(end);
    CHECK(end->exit_status == exit_code::kJoinTimeout);
    CHECK(end->reason == "join time-out after 600 s: 1 joined, 1 missing of --nnodes=2; here: 1");
    CHECK(job.exit_status == exit_code::kJoinTimeout);
}

TEST_CASE("a join time-out names the nodes that were refused") {
    TestJob job({2, 2});
    job.join("1", 1);
    job.join("2", 1);

    job.after(job.spec.join_timeout.count());

    CHECK(
        job.last<EndJob>("1")->reason.find("refused: 2: node_rank 1 is taken by 1") !=
        std::string::npos
    );
}

TEST_CASE("an elastic job waits the last call for more nodes, from the moment when MIN are there") {
    TestJob job({1, 3});
    job.join("1");
    job.after(job.spec.last_call_timeout.count() - 1);
    job.join("2");
    CHECK(job.phase() == Phase::gathering);

    job.after(1);

    CHECK(job.phase() == Phase::preparing);
    CHECK(job.core().state().seats.size() == 2);
}

TEST_CASE("an elastic job doesn't wait any longer when MAX nodes are there") {
    TestJob job({1, 2});
    job.join("1");

    job.join("2");

    CHECK(job.phase() == Phase::preparing);
}

TEST_CASE("group rank 0 that never opens the store ends the job with an internal error") {
    TestJob job({1, 1});
    job.join("1");

    job.after(limits::kStoreReadyTimeout.count());

    CHECK(job.last<EndJob>("1")->exit_status == exit_code::kInternal);
}

TEST_CASE("a node lost while the store is being opened gives a newer round of the others") {
    TestJob job({1, 2});
    job.join("1");
    job.join("2");

    job.lose("1");

    CHECK(job.last<PrepareRound>("2")->round == Round{1});
    job.store_ready("2", 1);
    CHECK(job.rank("2") == 0);
    CHECK(job.last<BeginRound>("2")->plan.reason == RoundReason::first_start);
}

// ---- success

TEST_CASE("the job ends with 0 when the workers of all nodes have succeeded") {
    TestJob job({2, 2});
    job.run_round_of({"1", "2"});
    job.succeeds("1", 0);
    CHECK_FALSE(job.last<EndJob>("1"));

    job.succeeds("2", 0);

    CHECK(job.last<EndJob>("1")->exit_status == 0);
    CHECK(job.last<EndJob>("1")->reason.empty());
    CHECK(job.last<EndJob>("2") == job.last<EndJob>("1"));
    CHECK(job.exit_status == 0);
}

TEST_CASE("the job is over when every node has said goodbye or is gone") {
    TestJob job({2, 2});
    job.run_round_of({"1", "2"});
    job.succeeds("1", 0);
    job.succeeds("2", 0);

    job.bye("1");
    CHECK_FALSE(job.core().over());
    job.lose("2");

    CHECK(job.core().over());
}

TEST_CASE("a node that is lost after its success doesn't disturb the others") {
    TestJob job({2, 2});
    job.run_round_of({"1", "2"});
    job.succeeds("2", 0);

    job.lose("2");
    CHECK(job.phase() == Phase::running);
    job.succeeds("1", 0);

    CHECK(job.exit_status == 0);
}

// ---- worker failures

TEST_CASE("a failed worker stops all other nodes at once and not its own") {
    TestJob job({3, 3, 1});
    job.run_round_of({"1", "2", "3"});

    job.worker_fails("2", 0, 3);

    const auto stop = job.last<StopRound>("1");
    REQUIRE(stop);
    CHECK(stop->round == Round{0});
    CHECK(stop->reason == "rank 1 on 2 (pid 4711) exited with code 3");
    CHECK(stop->failure == TestJob::failure("2", 3, FailureKind::exited));
    CHECK_FALSE(stop->last);
    CHECK(job.last<StopRound>("3") == stop);
    CHECK_FALSE(job.last<StopRound>("2"));
}

TEST_CASE("the next round begins when no worker of the old one is left, with the same ranks") {
    TestJob job({2, 2, 1});
    job.run_round_of({"1", "2"});
    job.worker_fails("2", 0, 3);
    job.stopped("1", 0);
    CHECK(job.sent<PrepareRound>("1").size() == 1);

    job.stopped("2", 0);
    CHECK(job.last<PrepareRound>("1")->round == Round{1});
    job.store_ready("1", 1);

    const RoundPlan plan = job.last<BeginRound>("2")->plan;
    CHECK(plan.round == Round{1});
    CHECK(plan.reason == RoundReason::worker_failure);
    CHECK(plan.reason_text == "rank 1 on 2 (pid 4711) exited with code 3");
    CHECK(plan.restart_count == RestartCount{1});
    CHECK(job.rank("2") == 1);
}

TEST_CASE("when the budget is used up the job ends with the first failing worker's code") {
    TestJob job({2, 2, 0});
    job.run_round_of({"1", "2"});

    job.worker_fails("2", 0, 3);
    CHECK(job.last<StopRound>("1")->last);
    job.worker_fails("1", 0, 4);
    job.stopped("1", 0);
    job.stopped("2", 0);

    const auto end = job.last<EndJob>("1");
    REQUIRE(end);
    CHECK(end->exit_status == 3);
    REQUIRE(end->failures.size() == 2);
    CHECK(end->failures[0].code == 3);
    CHECK(end->failures[1].code == 4);
    CHECK(job.last<EndJob>("2") == end);
}

TEST_CASE("the budget is the job's and not each node's") {
    TestJob job({2, 2, 1});
    job.run_round_of({"1", "2"});
    job.worker_fails("1", 0, 3);
    job.stopped("1", 0);
    job.stopped("2", 0);
    job.begin();

    job.worker_fails("2", 1, 5);
    job.stopped("1", 1);
    job.stopped("2", 1);

    CHECK(job.exit_status == 5);
    CHECK(job.last<EndJob>("1")->restart_count == RestartCount{1});
    CHECK(job.last<EndJob>("1")->failures.size() == 1);
}

TEST_CASE("a program that can't be executed is never restarted") {
    TestJob job({1, 1, 5});
    job.run_round_of({"1"});

    job.worker_fails("1", 0, 127, FailureKind::exec);
    job.stopped("1", 0);

    CHECK(job.exit_status == 127);
}

TEST_CASE("a worker's signal becomes 128 + signal") {
    TestJob job({1, 1, 0});
    job.run_round_of({"1"});

    job.worker_fails("1", 0, 9, FailureKind::signaled);
    job.stopped("1", 0);

    CHECK(job.exit_status == 137);
    CHECK(
        job.last<EndJob>("1")->reason == "rank 1 on 1 (pid 4711) was killed by signal 9 (SIGKILL)"
    );
}

TEST_CASE("a node that had succeeded runs again in the round after a failure") {
    TestJob job({2, 2, 1});
    job.run_round_of({"1", "2"});
    job.succeeds("1", 0);

    job.worker_fails("2", 0, 3);
    CHECK(job.last<StopRound>("1"));
    job.stopped("2", 0);
    job.begin();

    CHECK(job.round("1") == 1);
}

TEST_CASE("the node of group rank 0 that can't bind the store uses the budget up") {
    TestJob job({1, 1, 1});
    job.join("1");
    job.worker_fails("1", 0, 0, FailureKind::agent);
    CHECK(job.last<PrepareRound>("1")->round == Round{1});

    job.worker_fails("1", 1, 0, FailureKind::agent);

    CHECK(job.exit_status == exit_code::kInternal);
}

TEST_CASE("reports of an old round change nothing") {
    TestJob job({2, 2, 1});
    job.run_round_of({"1", "2"});
    job.worker_fails("2", 0, 3);
    job.stopped("1", 0);
    job.stopped("2", 0);
    job.begin();

    job.worker_fails("1", 0, 9);
    job.succeeds("1", 0);
    job.stopped("1", 0);

    CHECK(job.phase() == Phase::running);
}

// ---- resends

TEST_CASE("every report is acknowledged and a resent one has no effect") {
    TestJob job({1, 1, 1});
    job.run_round_of({"1"});
    const WorkerFailed report{
        SequenceNumber{7}, Round{0}, TestJob::failure("1", 3, FailureKind::exited)};
    job.event("1", report);
    job.event("1", RoundStopped{SequenceNumber{8}, Round{0}, {}});
    job.forget_messages();

    job.event("1", report);

    CHECK(job.last<Ack>("1")->sequence == SequenceNumber{7});
    CHECK(job.messages.size() == 1);
    CHECK(job.core().state().restarts.restarts == RestartCount{1});
}

TEST_CASE("a node that comes back in its round is welcomed and told its round again") {
    TestJob job({2, 2});
    job.run_round_of({"1", "2"});
    const auto begun = job.last<BeginRound>("2");
    job.forget_messages();

    job.join("2", std::nullopt, 0);

    CHECK(job.last<Welcome>("2"));
    CHECK(job.last<BeginRound>("2") == begun);
    CHECK(job.phase() == Phase::running);
}

TEST_CASE("group rank 0 that comes back while its store is awaited is asked again") {
    TestJob job({1, 1});
    job.join("1");

    job.join("1");

    CHECK(job.sent<PrepareRound>("1").size() == 2);
}

TEST_CASE("a node that comes back while its round stops is told to stop again") {
    TestJob job({2, 2});
    job.run_round_of({"1", "2"});
    job.worker_fails("1", 0, 3);

    job.join("2", std::nullopt, 0);

    CHECK(job.sent<StopRound>("2").size() == 2);
}

TEST_CASE("a node that comes back after the end is told the end again") {
    TestJob job({1, 1});
    job.run_round_of({"1"});
    job.succeeds("1", 0);

    job.join("1");

    CHECK(job.sent<EndJob>("1").size() == 2);
}

TEST_CASE("a former life of a node is not listened to") {
    TestJob job({1, 2});
    job.run_round_of({"1", "2"});
    const Incarnation former = job.incarnation("2");
    job.new_life("2");

    const Actions actions =
        Membership(job.core().state())
            .step({NodeId{"2"}, job.incarnation("2"), StopJob{SequenceNumber{1}, 15}}, job.now);

    CHECK(actions.empty());
    CHECK(former != job.incarnation("2"));
}

TEST_CASE(
    "no deadline stays in the past: a join time-out that comes while a round is prepared waits"
) {
    TestJob job({2, 2});
    job.join("1");
    job.after(job.spec.join_timeout.count() - 1);
    job.join("2");
    REQUIRE(job.phase() == Phase::preparing);

    job.after(2);

    CHECK(job.phase() == Phase::preparing);
    CHECK(*job.core().deadline() > job.now);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
