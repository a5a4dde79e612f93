// One round's workers: every decision of WorkerGroup, without a process.
#include "agent/worker_group.h"

#include "proto/limits.h"

#include <doctest/doctest.h>

#include <signal.h>

#include <algorithm>
#include <cerrno>

using namespace ddprun;
using State = WorkerGroup::State;

namespace {

constexpr TimePoint kStart{std::chrono::seconds(1'000)};

TimePoint after(int milliseconds) {
    return kStart + std::chrono::milliseconds(milliseconds);
}

RoundPlan plan_of(std::int32_t workers) {
    RoundPlan plan;
    plan.round = Round{3};
    plan.nodes = NodeCount{2};
    plan.world_size = WorldSize{1 + workers};
    return plan;
}

NodePlace place_of(std::int32_t workers) {
    NodePlace place;
    place.group_rank = GroupRank{1};
    place.local_world_size = LocalWorldSize{workers};
    place.first_rank = Rank{1};
    place.first_role_rank = Rank{1};
    place.role_world_size = WorldSize{1 + workers};
    return place;
}

WorkerGroup group_of(std::int32_t workers) {
    return WorkerGroup(
        plan_of(workers),
        place_of(workers),
        GroupSettings{.host = "host", .program = "prog", .grace = std::chrono::milliseconds(500)},
        WorkerId{10}
    );
}

group_event::Started started(std::uint64_t workers) {
    group_event::Started event;
    for (std::uint64_t i = 0; i < workers; ++i) {
        event.pids.emplace_back(WorkerId{10 + i}, 100 + static_cast<std::int32_t>(i));
    }
    return event;
}

WorkerGroup running_group(std::int32_t workers) {
    WorkerGroup group = group_of(workers);
    static_cast<void>(group.begin(kStart));
    static_cast<void>(group.step(started(static_cast<std::uint64_t>(workers)), kStart));
    return group;
}

group_event::Ended ended(std::uint64_t id, ExitStatus status) {
    WorkerEnd end;
    end.id = WorkerId{id};
    end.status = status;
    end.wall_time_ms = 5'000;
    return {end};
}

template <class Action>
std::vector<Action> all_of(const GroupActions& actions) {
    std::vector<Action> result;
    for (const GroupAction& action : actions) {
        if (const auto* found = std::get_if<Action>(&action)) {
            result.push_back(*found);
        }
    }
    return result;
}

}  // namespace

TEST_SUITE("agent/worker_group") {
    TEST_CASE("every worker is spawned before any is assigned, with ids and ranks of its own") {
        WorkerGroup group = group_of(2);

        const GroupActions actions = group.begin(kStart);

        REQUIRE(actions.size() == 4);
        CHECK(actions[0] == GroupAction{group_action::Spawn{WorkerId{10}, LocalRank{0}}});
        CHECK(actions[1] == GroupAction{group_action::Spawn{WorkerId{11}, LocalRank{1}}});
        const auto assigned = all_of<group_action::Assign>(actions);
        REQUIRE(assigned.size() == 2);
        CHECK(assigned[1].ranks.rank == Rank{2});
        CHECK(assigned[1].round == Round{3});
        CHECK(group.state() == State::spawning);
    }

    TEST_CASE("the group runs once all have executed, and succeeds when the last exits with 0") {
        WorkerGroup group = running_group(2);
        CHECK(group.state() == State::running);

        const GroupActions first = group.step(ended(10, ExitStatus::exited(0)), after(1));
        const GroupActions second = group.step(ended(11, ExitStatus::exited(0)), after(2));

        CHECK(first.empty());
        CHECK(all_of<group_action::Succeeded>(second).size() == 1);
        CHECK(group.state() == State::running);
    }

    TEST_CASE("the first failure is reported before TERM goes to the others, all at once") {
        WorkerGroup group = running_group(3);

        const GroupActions actions = group.step(ended(11, ExitStatus::exited(3)), after(250));

        REQUIRE(actions.size() == 3);
        const auto& failure = std::get<group_action::Failed>(actions[0]).failure;
        CHECK(failure.kind == FailureKind::exited);
        CHECK(failure.code == 3);
        CHECK(failure.rank == Rank{2});
        CHECK(failure.pid == 101);
        CHECK(failure.uptime_ms == 250);
        CHECK(failure.wall_time_ms == 5'000);
        CHECK(actions[1] == GroupAction{group_action::SignalWorker{WorkerId{10}, SIGTERM}});
        CHECK(actions[2] == GroupAction{group_action::SignalWorker{WorkerId{12}, SIGTERM}});
        CHECK(group.state() == State::stopping);
        CHECK(group.deadline() == after(750));
    }

    TEST_CASE("those that end by our signal are not failures, those that crash meanwhile are") {
        WorkerGroup group = running_group(5);
        static_cast<void>(group.step(ended(10, ExitStatus::exited(1)), after(1)));
        for (const auto& event :
             {ended(11, ExitStatus::signaled(SIGTERM, false)),
              ended(12, ExitStatus::exited(143)),
              ended(13, ExitStatus::signaled(SIGSEGV, true))}) {
            CHECK(group.step(event, after(2)).empty());
        }
        const GroupActions last = group.step(ended(14, ExitStatus::exited(0)), after(3));
        CHECK(all_of<group_action::Sweep>(last).size() == 1);

        const GroupActions swept = group.step(group_event::Swept{}, after(4));

        const auto stopped = all_of<group_action::Stopped>(swept);
        REQUIRE(stopped.size() == 1);
        REQUIRE(stopped[0].later_failures.size() == 1);
        CHECK(stopped[0].later_failures[0].code == SIGSEGV);
        CHECK(stopped[0].later_failures[0].core_dumped);
        CHECK(group.state() == State::stopped);
    }

    TEST_CASE("when the job is stopped by a signal whoever exits has stopped, a crash is a failure"
    ) {
        WorkerGroup group = running_group(3);
        static_cast<void>(
            group.step(group_event::Stop{SIGINT, group_event::Stop::Origin::user}, after(0))
        );
        static_cast<void>(group.step(ended(10, ExitStatus::exited(7)), after(1)));
        static_cast<void>(group.step(ended(11, ExitStatus::exited(0)), after(1)));
        static_cast<void>(group.step(ended(12, ExitStatus::signaled(SIGSEGV, false)), after(1)));

        const auto stopped =
            all_of<group_action::Stopped>(group.step(group_event::Swept{}, after(2)));

        REQUIRE(stopped.size() == 1);
        REQUIRE(stopped[0].later_failures.size() == 1);
        CHECK(stopped[0].later_failures[0].code == SIGSEGV);
        CHECK(stopped[0].stopped.size() == 2);
    }

    TEST_CASE("what lives when the grace time is over is killed with its group, once") {
        WorkerGroup group = running_group(2);
        static_cast<void>(group.step(group_event::Stop{SIGINT}, after(0)));

        CHECK(group.step(group_event::Tick{}, after(499)).empty());
        const GroupActions killed = group.step(group_event::Tick{}, after(500));
        const GroupActions again = group.step(group_event::Tick{}, after(600));

        CHECK(all_of<group_action::KillGroup>(killed).size() == 2);
        CHECK(again.empty());
        CHECK(group.deadline() == after(500) + limits::kKillTimeMax);
    }

    TEST_CASE("what lives on after SIGKILL is given up, so that the group ends all the same") {
        WorkerGroup group = running_group(2);
        static_cast<void>(group.step(group_event::Stop{SIGTERM}, after(0)));
        static_cast<void>(group.step(group_event::Tick{}, after(500)));
        static_cast<void>(group.step(ended(10, ExitStatus::signaled(SIGKILL, false)), after(501)));

        const TimePoint late = after(500) + limits::kKillTimeMax;
        CHECK(group.step(group_event::Tick{}, late - std::chrono::milliseconds(1)).empty());
        const GroupActions given_up = group.step(group_event::Tick{}, late);
        REQUIRE(given_up.size() == 1);
        CHECK(given_up[0] == GroupAction{group_action::GiveUp{WorkerId{11}}});
        const GroupActions last =
            group.step(group_event::Hangs{WorkerId{11}, "process 101, state D", 6'000}, late);
        const GroupActions swept = group.step(group_event::Swept{}, late);

        CHECK(all_of<group_action::Sweep>(last).size() == 1);
        const auto stopped = all_of<group_action::Stopped>(swept);
        REQUIRE(stopped.size() == 1);
        REQUIRE(stopped[0].later_failures.size() == 1);
        CHECK(stopped[0].later_failures[0].kind == FailureKind::agent);
        CHECK(stopped[0].later_failures[0].rank == Rank{2});
        CHECK(
            stopped[0].later_failures[0].message ==
            "it lives on after SIGKILL: process 101, state D"
        );
        CHECK(
            stopped[0].stopped ==
            std::vector{StoppedWorker{Rank{1}, true}, StoppedWorker{Rank{2}, true}}
        );
    }

    TEST_CASE("an end that comes after all makes an answer about it harmless") {
        WorkerGroup group = running_group(1);
        static_cast<void>(group.step(group_event::Kill{}, after(0)));
        static_cast<void>(group.step(group_event::Tick{}, after(0) + limits::kKillTimeMax));
        static_cast<void>(group.step(ended(10, ExitStatus::signaled(SIGKILL, false)), after(1)));

        CHECK(group.step(group_event::Hangs{WorkerId{10}, "", 0}, after(2)).empty());
    }

    TEST_CASE("those that were stopped are listed, and who had to be killed") {
        WorkerGroup group = running_group(4);
        static_cast<void>(group.step(ended(10, ExitStatus::exited(0)), after(1)));
        static_cast<void>(group.step(group_event::Stop{SIGTERM}, after(2)));
        static_cast<void>(group.step(ended(11, ExitStatus::exited(0)), after(3)));
        static_cast<void>(group.step(ended(12, ExitStatus::exited(9)), after(4)));
        static_cast<void>(group.step(group_event::Tick{}, after(600)));
        static_cast<void>(group.step(ended(13, ExitStatus::signaled(SIGKILL, false)), after(601)));

        const auto stopped =
            all_of<group_action::Stopped>(group.step(group_event::Swept{}, after(602)));

        REQUIRE(stopped.size() == 1);
        // Rank 1 had ended before, rank 3 has failed.
        CHECK(stopped[0].stopped == std::vector<StoppedWorker>{{Rank{2}, false}, {Rank{4}, true}});
    }

    TEST_CASE("a second stop neither repeats the signal nor prolongs the grace time") {
        WorkerGroup group = running_group(1);
        static_cast<void>(group.step(group_event::Stop{SIGTERM}, after(0)));

        CHECK(group.step(group_event::Stop{SIGTERM}, after(100)).empty());
        const GroupActions other = group.step(group_event::Stop{SIGINT}, after(200));

        CHECK(all_of<group_action::SignalWorker>(other).size() == 1);
        CHECK(group.deadline() == after(500));
    }

    TEST_CASE("a stop of another origin makes no failure of what follows") {
        WorkerGroup group = running_group(1);
        static_cast<void>(group.step(group_event::Stop{SIGTERM}, after(0)));

        const GroupActions actions = group.step(ended(10, ExitStatus::exited(9)), after(1));

        CHECK(all_of<group_action::Failed>(actions).empty());
        CHECK(all_of<group_action::Sweep>(actions).size() == 1);
    }

    TEST_CASE("an end that overtakes the exec results is held back") {
        WorkerGroup group = group_of(2);
        static_cast<void>(group.begin(kStart));

        CHECK(group.step(ended(10, ExitStatus::exited(4)), after(1)).empty());
        const GroupActions actions = group.step(started(2), after(2));

        CHECK(all_of<group_action::Failed>(actions).at(0).failure.code == 4);
        CHECK(group.state() == State::stopping);
    }

    TEST_CASE("a program that can't be executed is 127 or 126, and its child's end is no failure") {
        for (const auto& [error_number, code] :
             {std::pair{ENOENT, 127}, {EACCES, 126}, {ENOEXEC, 126}}) {
            WorkerGroup group = group_of(1);
            static_cast<void>(group.begin(kStart));
            CHECK(group.step(ended(10, ExitStatus::exited(127)), kStart).empty());
            auto event = started(1);
            event.failures = {{WorkerId{10}, std::string(kExecuteStep), error_number, {}}};

            const GroupActions actions = group.step(event, after(1));

            const auto failed = all_of<group_action::Failed>(actions);
            REQUIRE(failed.size() == 1);
            CHECK(failed[0].failure.kind == FailureKind::exec);
            CHECK(failed[0].failure.code == code);
            CHECK(failed[0].failure.message.find("execute prog: ") == 0);
            CHECK(all_of<group_action::Sweep>(actions).size() == 1);
        }
    }

    TEST_CASE("a fork that failed stops those that started, and is the node's failure") {
        WorkerGroup group = group_of(2);
        static_cast<void>(group.begin(kStart));
        auto event = started(1);
        event.failures = {{WorkerId{11}, "fork", 0, "fork prog: no more processes"}};

        const GroupActions actions = group.step(event, after(1));

        const auto failed = all_of<group_action::Failed>(actions);
        REQUIRE(failed.size() == 1);
        CHECK(failed[0].failure.kind == FailureKind::agent);
        CHECK(failed[0].failure.message == "fork prog: no more processes");
        CHECK(all_of<group_action::SignalWorker>(actions).size() == 1);
        CHECK(group.alive() == 1);
    }

    TEST_CASE("forwarded signals wait until the workers have executed") {
        WorkerGroup group = group_of(2);
        static_cast<void>(group.begin(kStart));

        CHECK(group.step(group_event::Forward{SIGUSR1}, kStart).empty());
        const GroupActions actions = group.step(started(2), after(1));

        CHECK(all_of<group_action::SignalWorker>(actions).size() == 2);
        CHECK(group.state() == State::running);
    }

    TEST_CASE("a stop while spawning takes effect at once and is remembered") {
        WorkerGroup group = group_of(1);
        static_cast<void>(group.begin(kStart));

        const GroupActions stop = group.step(group_event::Stop{SIGTERM}, kStart);
        static_cast<void>(group.step(started(1), after(1)));

        CHECK(all_of<group_action::SignalWorker>(stop).size() == 1);
        CHECK(group.state() == State::stopping);
    }

    TEST_CASE("a group that succeeded is swept when it is stopped") {
        WorkerGroup group = running_group(1);
        static_cast<void>(group.step(ended(10, ExitStatus::exited(0)), after(1)));

        const GroupActions actions = group.step(group_event::Stop{SIGTERM}, after(2));

        CHECK(actions == GroupActions{group_action::Sweep{}});
    }

    TEST_CASE("kill asks nobody first") {
        WorkerGroup group = running_group(2);

        const GroupActions actions = group.step(group_event::Kill{}, after(1));

        CHECK(all_of<group_action::KillGroup>(actions).size() == 2);
        CHECK(group.step(ended(10, ExitStatus::signaled(SIGKILL, false)), after(2)).empty());
    }

    TEST_CASE("a worker killed for lack of memory is told from one that was killed") {
        WorkerGroup group = running_group(1);
        auto event = ended(10, ExitStatus::signaled(SIGKILL, false));
        event.end.out_of_memory = true;

        const GroupActions actions = group.step(event, after(1));

        CHECK(
            all_of<group_action::Failed>(actions).at(0).failure.kind == FailureKind::out_of_memory
        );
    }
}
