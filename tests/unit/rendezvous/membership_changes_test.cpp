#include "proto/exit_codes.h"
#include "proto/limits.h"
#include "rendezvous/membership.h"
#include "tests/unit/rendezvous/membership_job.h"

#include <doctest/doctest.h>

namespace ddprun {
namespace {

using test::TestJob;

TEST_SUITE_BEGIN("rendezvous/membership_changes");

// ---- loss and replacement

TEST_CASE("a lost node's survivors stop and wait for a replacement where MIN forbids a round") {
    TestJob job({2, 2});
    job.run_round_of({"1", "2"});

    job.lose("2");
    CHECK(job.last<StopRound>("1")->reason == "2 was lost: its connection closed");
    job.stopped("1", 0);
    CHECK(job.phase() == Phase::gathering);
    job.join("3");
    job.begin();

    CHECK(job.rank("1") == 0);
    CHECK(job.rank("3") == 1);
    CHECK(job.last<BeginRound>("3")->plan.reason == RoundReason::node_lost);
    CHECK(job.last<BeginRound>("3")->plan.restart_count == RestartCount{0});
}

TEST_CASE("a replacement takes the lost node's group rank") {
    TestJob job({3, 3});
    job.run_round_of({"1", "2", "3"});
    job.lose("2");
    job.stopped("1", 0);
    job.stopped("3", 0);

    job.join("9");
    job.begin();

    CHECK(job.rank("1") == 0);
    CHECK(job.rank("9") == 1);
    CHECK(job.rank("3") == 2);
}

TEST_CASE("survivors go on in a smaller round at once where MIN allows it") {
    TestJob job({2, 3});
    job.run_round_of({"1", "2", "3"});

    job.lose("2");
    job.stopped("1", 0);
    job.stopped("3", 0);
    job.begin();

    CHECK(job.rank("1") == 0);
    CHECK(job.rank("3") == 1);
}

TEST_CASE("no replacement within the join time-out ends the job everywhere") {
    TestJob job({2, 2});
    job.run_round_of({"1", "2"});
    job.after(1'000'000);
    job.lose("2");
    job.stopped("1", 0);

    job.after(job.spec.join_timeout.count());

    CHECK(job.last<EndJob>("1")->exit_status == exit_code::kJoinTimeout);
}

TEST_CASE("a failure that a lost node caused is not charged though its report came first") {
    TestJob job({1, 2, 0});
    job.run_round_of({"1", "2"});
    const Stamp closed = job.now;
    job.now = Stamp{closed.value() + 3};
    job.worker_fails("1", 0, 1);
    job.stopped("1", 0);
    CHECK(job.phase() == Phase::stopping);

    job.now = Stamp{closed.value() + 20};
    job.lose_since("2", closed);
    job.begin();

    CHECK(job.last<BeginRound>("1")->plan.reason == RoundReason::node_lost);
    CHECK(job.last<BeginRound>("1")->plan.restart_count == RestartCount{0});
}

TEST_CASE("a node lost long after a failure doesn't excuse the failure") {
    TestJob job({1, 2, 0});
    job.run_round_of({"1", "2"});
    job.worker_fails("1", 0, 7);
    job.stopped("1", 0);
    job.now = Stamp{job.now.value() + 5'000};

    job.lose("2");

    CHECK(job.exit_status == 7);
}

TEST_CASE("a new life of a node replaces its old self and takes its rank") {
    TestJob job({2, 2});
    job.run_round_of({"1", "2"});
    job.new_life("2");

    job.join("2");
    CHECK(job.refused("2")->reason == RefusalReason::replaced);
    CHECK(job.last<StopRound>("1"));
    job.stopped("1", 0);
    job.begin();

    CHECK(job.rank("2") == 1);
    CHECK(job.round("2") == 1);
}

TEST_CASE("an old self that comes back after it was replaced is refused") {
    TestJob job({1, 2});
    job.join("1");
    Join old;
    old.job = JobId{"job"};
    old.node = NodeId{"1"};
    old.incarnation = job.incarnation("1");
    old.info.host = std::string{"1"};
    old.spec = job.spec;
    job.new_life("1");
    job.join("1");
    Membership core(job.core().state());

    const Actions actions = core.step({NodeId{"1"}, old.incarnation, old}, job.now);

    const auto* refuse = std::get_if<Refuse>(&actions.back());
    REQUIRE(refuse != nullptr);
    CHECK(refuse->refused.reason == RefusalReason::replaced);
}

TEST_CASE("a lost node that returns with old workers takes part when it has stopped them") {
    TestJob job({1, 2});
    job.run_round_of({"1", "2"});
    job.lose("2", NodeLost::Cause::silent);
    job.stopped("1", 0);
    job.begin();

    job.join("2", std::nullopt, 0);
    CHECK(job.last<StopRound>("2")->round == Round{0});
    CHECK(job.phase() == Phase::running);
    job.stopped("2", 0);
    CHECK(job.last<StopRound>("1")->reason == "2 joined");
    job.stopped("1", 1);
    job.begin();

    CHECK(job.round("2") == 2);
}

TEST_CASE("a node that says goodbye before the end is missed like a lost one") {
    TestJob job({1, 2});
    job.run_round_of({"1", "2"});

    job.bye("2");

    CHECK(job.last<StopRound>("1")->reason == "2 left");
}

TEST_CASE("too many short rounds in a row for changed nodes end the job") {
    TestJob job({1, 2});
    job.spec.membership_rounds_max = 1;
    job.run_round_of({"1", "2"});
    job.lose("2");
    job.stopped("1", 0);
    job.begin();
    job.join("3");

    job.stopped("1", 1);

    CHECK(job.last<EndJob>("1")->exit_status == exit_code::kJoinTimeout);
    CHECK(job.last<EndJob>("1")->reason.find("membership_rounds_max") != std::string::npos);
}

TEST_CASE("a round that lived a minute begins the count of short rounds anew") {
    TestJob job({1, 2});
    job.spec.membership_rounds_max = 1;
    job.run_round_of({"1", "2"});
    job.lose("2");
    job.stopped("1", 0);
    job.begin();
    job.now = Stamp{job.now.value() + limits::kShortRound.count()};
    job.join("3");

    job.stopped("1", 1);

    CHECK(job.phase() == Phase::preparing);
}

// ---- late nodes and spares

TEST_CASE("a late node joins a running elastic job in a new round, free of charge") {
    TestJob job({1, 2, 0});
    job.join("1");
    job.after(job.spec.last_call_timeout.count());
    job.begin();

    job.join("2");
    CHECK(job.last<StopRound>("1")->reason == "2 joined");
    job.stopped("1", 0);
    job.begin();

    CHECK(job.rank("1") == 0);
    CHECK(job.rank("2") == 1);
    CHECK(job.last<BeginRound>("2")->plan.restart_count == RestartCount{0});
}

TEST_CASE("workers that fail while their round stops for a new node are not charged") {
    TestJob job({1, 2, 0});
    job.join("1");
    job.after(job.spec.last_call_timeout.count());
    job.begin();
    job.join("2");

    job.worker_fails("1", 0, 1);
    job.stopped("1", 0);

    CHECK(job.phase() == Phase::preparing);
}

TEST_CASE("a surplus node waits as a spare, takes a lost node's place and ends with the job") {
    TestJob job({2, 2});
    job.run_round_of({"1", "2"});
    job.join("3");
    CHECK(job.last<Waiting>("3")->spare);
    CHECK_FALSE(job.last<StopRound>("1"));

    job.lose("1");
    job.stopped("2", 0);
    CHECK(job.last<PrepareRound>("3")->round == Round{1});
    job.begin();

    CHECK(job.rank("3") == 0);
    CHECK(job.rank("2") == 1);
}

TEST_CASE("a spare ends with 0 when the job does") {
    TestJob job({1, 1});
    job.run_round_of({"1"});
    job.join("2");

    job.succeeds("1", 0);

    CHECK(job.last<EndJob>("2")->exit_status == 0);
}

TEST_CASE("a job that is about to succeed isn't disturbed by a late node") {
    TestJob job({2, 3});
    job.join("1");
    job.join("2");
    job.after(job.spec.last_call_timeout.count());
    job.begin();
    job.succeeds("1", 0);

    job.join("3");

    CHECK(job.phase() == Phase::running);
    CHECK(job.last<Waiting>("3")->spare);
}

// ---- stop

TEST_CASE("a signal to one agent stops all nodes with it and ends the job with 128 + signal") {
    TestJob job({2, 2, 5});
    job.run_round_of({"1", "2"});

    job.stop_job("2", 15);
    CHECK(job.last<StopRound>("1")->signal == 15);
    CHECK(job.last<StopRound>("1")->last);
    CHECK(job.last<StopRound>("2")->signal == 15);
    job.stopped("1", 0);
    job.stopped("2", 0);

    CHECK(job.last<EndJob>("1")->exit_status == 143);
    CHECK(job.last<EndJob>("1")->reason == "stopped by signal 15 (SIGTERM) to 2");
}

TEST_CASE("a signal while nodes are awaited ends the job at once") {
    TestJob job({2, 2});
    job.join("1");

    job.stop_job("1", 2);

    CHECK(job.exit_status == 130);
}

TEST_CASE("a signal while the round stops for a restart ends the job") {
    TestJob job({1, 1, 5});
    job.run_round_of({"1"});
    job.worker_fails("1", 0, 3);

    job.stop_job("1", 2);
    job.stopped("1", 0);

    CHECK(job.exit_status == 130);
}

TEST_CASE("a signal after the failure that ends the job doesn't hide the failure") {
    TestJob job({1, 1, 0});
    job.run_round_of({"1"});
    job.worker_fails("1", 0, 3);

    job.stop_job("1", 2);
    job.stopped("1", 0);

    CHECK(job.exit_status == 3);
}

TEST_CASE("a signal after a failure that a lost node turns out to have caused ends the job") {
    TestJob job({1, 2, 0});
    job.run_round_of({"1", "2"});
    const Stamp closed = job.now;
    job.worker_fails("1", 0, 3);
    job.stop_job("1", 15);
    job.stopped("1", 0);

    job.lose_since("2", closed);

    CHECK(job.exit_status == 143);
}

// ---- refusals

TEST_CASE("a node that asks for another job shape is refused, both shapes named") {
    TestJob job({2, 2});
    job.join("1");
    job.spec.max_nodes = NodeCount{3};

    job.join("2");

    CHECK(job.refused("2")->reason == RefusalReason::spec_differs);
    CHECK(
        job.refused("2")->text ==
        "this node asked for nnodes=2:3 max_restarts=0, the job 'job' has nnodes=2 max_restarts=0"
    );
}

TEST_CASE("a node rank that a living node has is refused and free again when that one is gone") {
    TestJob job({2, 2});
    job.join("1", 1);
    job.join("2", 1);
    CHECK(job.refused("2")->reason == RefusalReason::rank_taken);
    CHECK(job.refused("2")->text == "node_rank 1 is taken by 1");
    CHECK_FALSE(job.refused("1"));

    job.lose("1");
    job.join("2", 1);

    CHECK(job.last<Welcome>("2"));
}

TEST_CASE("a node rank beyond the job is refused") {
    TestJob job({2, 2});

    job.join("1", 2);

    CHECK(job.refused("1")->text == "node_rank 2 is not below nnodes 2");
}

TEST_CASE("a node that comes after the end is refused") {
    TestJob job({1, 1});
    job.run_round_of({"1"});
    job.succeeds("1", 0);

    job.join("2");

    CHECK(job.refused("2")->reason == RefusalReason::job_over);
}

TEST_CASE("a join with values that make no sense is refused and leaves no trace") {
    TestJob job({2, 1});

    job.join("1");

    CHECK(job.refused("1")->reason == RefusalReason::malformed);
    CHECK_FALSE(job.core().state().spec);
    CHECK_FALSE(job.core().deadline());
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
