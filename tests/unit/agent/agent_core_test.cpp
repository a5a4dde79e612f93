// An agent's life: messages, sequence numbers, reconnects, signals in every phase, the end.
#include "agent/agent_core.h"

#include "tests/unit/agent/agent_actions.h"

#include <doctest/doctest.h>

#include <signal.h>

using namespace ddprun;
using test::all_of;
using test::sent;

namespace {

constexpr TimePoint kStart{std::chrono::seconds(1'000)};

TimePoint after(int milliseconds) {
    return kStart + std::chrono::milliseconds(milliseconds);
}

/// An agent of two workers, with the steps that most cases begin with.
struct Fixture {
    Fixture() : core(settings()) {}

    static AgentCoreSettings settings() {
        AgentCoreSettings result;
        result.join.node = NodeId{"n"};
        result.join.info.local_world_size = LocalWorldSize{2};
        result.group = {.host = "host", .program = "prog", .grace = std::chrono::milliseconds(500)};
        return result;
    }

    AgentActions step(const AgentEvent& event) { return core.step(event, now); }

    AgentActions receive(ServerMessage message) {
        return step(agent_event::FromServer{std::move(message)});
    }

    void join() {
        static_cast<void>(step(agent_event::LinkUp{"10.0.0.1"}));
        static_cast<void>(receive(Welcome{std::chrono::milliseconds(1'000)}));
    }

    static BeginRound begin_message(std::int64_t round) {
        BeginRound message;
        message.plan.round = Round{round};
        message.place.local_world_size = LocalWorldSize{2};
        return message;
    }

    AgentActions begin(std::int64_t round) {
        AgentActions actions = receive(begin_message(round));
        group_event::Started started;
        for (const auto& spawn : all_of<agent_action::Spawn>(actions)) {
            ids.push_back(spawn.id);
            started.pids.emplace_back(spawn.id, 100);
        }
        static_cast<void>(step(agent_event::WorkersStarted{started}));
        return actions;
    }

    AgentActions end(std::size_t worker, ExitStatus status) {
        WorkerEnd worker_end;
        worker_end.id = ids.at(worker);
        worker_end.status = status;
        return step(agent_event::WorkerEnded{worker_end});
    }

    void end_all_by(int signal) {
        for (std::size_t i = 0; i < ids.size(); ++i) {
            static_cast<void>(end(i, ExitStatus::signaled(signal, false)));
        }
    }

    TimePoint now = kStart;
    AgentCore core;
    std::vector<WorkerId> ids;
};

}  // namespace

TEST_SUITE("agent/agent_core") {
    TEST_CASE("it joins with the address by which it reaches the rendezvous") {
        Fixture f;

        const auto joins = sent<Join>(f.step(agent_event::LinkUp{"10.0.0.1"}));

        REQUIRE(joins.size() == 1);
        CHECK(joins[0].info.address == "10.0.0.1");
        CHECK(!joins[0].current_round);
    }

    TEST_CASE("group rank 0 binds the store at the published address and says its port") {
        Fixture f;
        f.join();

        const auto bind = all_of<agent_action::BindStore>(f.receive(PrepareRound{Round{0}}));
        const auto again = f.receive(PrepareRound{Round{0}});
        const auto ready = sent<StoreReady>(f.step(agent_event::StoreBound{Round{0}, Port{4'000}}));

        REQUIRE(bind.size() == 1);
        CHECK(bind[0].address == "10.0.0.1");
        CHECK(all_of<agent_action::BindStore>(again).empty());
        REQUIRE(ready.size() == 1);
        CHECK(ready[0].port == Port{4'000});
        CHECK(ready[0].sequence == SequenceNumber{1});
    }

    TEST_CASE("a store that can't be bound is a failure of the node and ends the round here") {
        Fixture f;
        f.join();

        const AgentActions actions = f.step(agent_event::StoreFailed{
            Round{0}, Error{Errc::io_error, "bind: no address"}, 7});

        REQUIRE(sent<WorkerFailed>(actions).size() == 1);
        CHECK(sent<WorkerFailed>(actions)[0].failure.kind == FailureKind::agent);
        CHECK(sent<RoundStopped>(actions).size() == 1);
        CHECK(all_of<agent_action::Spawn>(f.receive(Fixture::begin_message(0))).empty());
    }

    TEST_CASE("a round drops older stores, spawns, then assigns with a whole environment") {
        Fixture f;
        f.join();

        const AgentActions actions = f.begin(4);

        CHECK(all_of<agent_action::DropStoresBefore>(actions).at(0).round == Round{4});
        CHECK(all_of<agent_action::Spawn>(actions).size() == 2);
        const auto assigned = all_of<agent_action::Assign>(actions);
        REQUIRE(assigned.size() == 2);
        CHECK(find_variable(assigned[1].environment, "RANK") == "1");
    }

    TEST_CASE("a round that was seen before is not begun again") {
        Fixture f;
        f.join();
        static_cast<void>(f.begin(4));

        CHECK(all_of<agent_action::Spawn>(f.receive(Fixture::begin_message(4))).empty());
        CHECK(all_of<agent_action::Spawn>(f.receive(Fixture::begin_message(3))).empty());
    }

    TEST_CASE("a failure is reported at once, the stop when no worker is alive") {
        Fixture f;
        f.join();
        static_cast<void>(f.begin(0));

        const AgentActions failed = f.end(0, ExitStatus::exited(3));
        const AgentActions last = f.end(1, ExitStatus::signaled(SIGTERM, false));
        const AgentActions swept = f.step(agent_event::Swept{});

        CHECK(sent<WorkerFailed>(failed).at(0).failure.code == 3);
        CHECK(sent<RoundStopped>(last).empty());
        CHECK(all_of<agent_action::Sweep>(last).size() == 1);
        CHECK(sent<RoundStopped>(swept).at(0).round == Round{0});
    }

    TEST_CASE("reports without an acknowledgement are sent again after a reconnect, in order") {
        Fixture f;
        f.join();
        static_cast<void>(f.begin(0));
        static_cast<void>(f.end(0, ExitStatus::exited(3)));
        static_cast<void>(f.receive(Ack{SequenceNumber{1}}));
        static_cast<void>(f.step(agent_event::LinkDown{Error{Errc::connection_lost, "cut"}}));
        f.end_all_by(SIGTERM);
        static_cast<void>(f.step(agent_event::Swept{}));

        const auto joins = sent<Join>(f.step(agent_event::LinkUp{"10.0.0.1"}));
        const AgentActions welcomed = f.receive(Welcome{});

        REQUIRE(joins.size() == 1);
        CHECK(!joins[0].current_round);
        CHECK(sent<WorkerFailed>(welcomed).empty());
        REQUIRE(sent<RoundStopped>(welcomed).size() == 1);
        CHECK(sent<RoundStopped>(welcomed)[0].sequence == SequenceNumber{2});
    }

    TEST_CASE("an agent whose workers run resumes with its round") {
        Fixture f;
        f.join();
        static_cast<void>(f.begin(2));
        static_cast<void>(f.step(agent_event::LinkDown{Error{Errc::connection_lost, "cut"}}));

        const auto joins = sent<Join>(f.step(agent_event::LinkUp{"10.0.0.1"}));

        CHECK(joins.at(0).current_round == Round{2});
    }

    TEST_CASE("StopRound stops with its signal; of a round that never began here it is answered") {
        Fixture f;
        f.join();
        static_cast<void>(f.begin(0));

        StopRound stop;
        stop.round = Round{0};
        const auto signals = all_of<agent_action::SignalWorker>(f.receive(stop));
        stop.round = Round{1};
        const auto stopped = sent<RoundStopped>(f.receive(stop));

        REQUIRE(signals.size() == 2);
        CHECK(signals[0].signal == SIGTERM);
        REQUIRE(stopped.size() == 1);
        CHECK(stopped[0].round == Round{1});
    }

    TEST_CASE("heartbeats go out in the job's interval") {
        Fixture f;
        f.join();
        CHECK(f.core.deadline() == after(1'000));

        f.now = after(1'000);
        const auto beats = sent<Heartbeat>(f.step(agent_event::Tick{}));

        CHECK(beats.size() == 1);
        CHECK(f.core.deadline() == after(2'000));
    }

    TEST_CASE("success ends with Bye and status 0") {
        Fixture f;
        f.join();
        static_cast<void>(f.begin(0));
        static_cast<void>(f.end(0, ExitStatus::exited(0)));
        const auto succeeded = sent<WorkersSucceeded>(f.end(1, ExitStatus::exited(0)));
        static_cast<void>(f.receive(EndJob{}));

        const AgentActions actions = f.step(agent_event::Swept{});

        CHECK(succeeded.size() == 1);
        CHECK(sent<Bye>(actions).size() == 1);
        CHECK(sent<RoundStopped>(actions).empty());
        CHECK(all_of<agent_action::Finish>(actions).at(0).exit_status == 0);
        CHECK(f.core.finished());
        CHECK(!f.core.deadline());
    }

    TEST_CASE("a failed job prints its report before the end") {
        Fixture f;
        f.join();
        EndJob end;
        end.exit_status = 3;
        end.failures.resize(1);

        const AgentActions actions = f.receive(end);

        CHECK(all_of<agent_action::PrintReport>(actions).size() == 1);
        CHECK(all_of<agent_action::Finish>(actions).at(0).exit_status == 3);
    }

    TEST_CASE("a stop signal before the rendezvous answers ends at once") {
        Fixture f;
        static_cast<void>(f.step(agent_event::LinkUp{"10.0.0.1"}));

        const AgentActions actions = f.step(agent_event::Signal{SIGTERM});

        CHECK(all_of<agent_action::Finish>(actions).at(0).exit_status == 143);
    }

    TEST_CASE("a stop signal while waiting tells the job and ends with what it answers") {
        Fixture f;
        f.join();

        const auto stops = sent<StopJob>(f.step(agent_event::Signal{SIGINT}));
        EndJob end;
        end.exit_status = 130;
        const AgentActions actions = f.receive(end);

        CHECK(stops.at(0).signal == SIGINT);
        CHECK(all_of<agent_action::Finish>(actions).at(0).exit_status == 130);
    }

    TEST_CASE("a stop signal while running reaches the workers without the network") {
        Fixture f;
        f.join();
        static_cast<void>(f.begin(0));

        const AgentActions actions = f.step(agent_event::Signal{SIGHUP});

        const auto signals = all_of<agent_action::SignalWorker>(actions);
        REQUIRE(signals.size() == 2);
        CHECK(signals[0].signal == SIGHUP);
        CHECK(sent<StopJob>(actions).size() == 1);
        CHECK(all_of<agent_action::SignalWorker>(f.step(agent_event::Signal{SIGTERM})).empty());
        CHECK(all_of<agent_action::KillGroup>(f.step(agent_event::Signal{SIGTERM})).empty());
    }

    TEST_CASE("a second INT kills, and soon ends without the rendezvous") {
        Fixture f;
        f.join();
        static_cast<void>(f.begin(0));
        static_cast<void>(f.step(agent_event::Signal{SIGINT}));

        const AgentActions killed = f.step(agent_event::Signal{SIGINT});
        f.end_all_by(SIGKILL);
        static_cast<void>(f.step(agent_event::Swept{}));
        f.now = after(1'000);
        const AgentActions actions = f.step(agent_event::Tick{});

        CHECK(all_of<agent_action::KillGroup>(killed).size() == 2);
        CHECK(all_of<agent_action::Finish>(actions).at(0).exit_status == 130);
    }

    TEST_CASE("no round begins after a stop signal") {
        Fixture f;
        f.join();
        static_cast<void>(f.step(agent_event::Signal{SIGTERM}));

        CHECK(all_of<agent_action::Spawn>(f.receive(Fixture::begin_message(0))).empty());
    }

    TEST_CASE("a lost rendezvous stops the workers and gives a status of its own") {
        Fixture f;
        f.join();
        static_cast<void>(f.begin(0));

        const AgentActions lost =
            f.step(agent_event::LinkLost{Error{Errc::timed_out, "rendezvous gone"}});
        f.end_all_by(SIGTERM);
        const AgentActions actions = f.step(agent_event::Swept{});

        CHECK(all_of<agent_action::SignalWorker>(lost).size() == 2);
        CHECK(all_of<agent_action::Finish>(actions).at(0).exit_status == 74);
    }

    TEST_CASE("a rendezvous that never answered is unavailable, one that declines refuses") {
        Fixture unreached;
        Fixture declined;
        declined.join();

        const AgentActions lost =
            unreached.step(agent_event::LinkLost{Error{Errc::timed_out, "nobody there"}});
        const AgentActions refused =
            declined.receive(Refused{RefusalReason::rank_taken, "rank 1 is taken by node b"});

        CHECK(all_of<agent_action::Finish>(lost).at(0).exit_status == 69);
        CHECK(all_of<agent_action::Finish>(refused).at(0).exit_status == 77);
    }

    TEST_CASE("a new round that comes while old workers live waits for their end") {
        Fixture f;
        f.join();
        static_cast<void>(f.begin(0));

        const AgentActions early = f.receive(Fixture::begin_message(1));
        CHECK(all_of<agent_action::Spawn>(early).empty());
        CHECK(all_of<agent_action::SignalWorker>(early).size() == 2);
        f.end_all_by(SIGTERM);
        const AgentActions actions = f.step(agent_event::Swept{});

        const auto spawned = all_of<agent_action::Spawn>(actions);
        REQUIRE(spawned.size() == 2);
        CHECK(spawned[0].id > f.ids.back());
    }

    TEST_CASE("a round that is stopped while it waits for old workers never begins") {
        Fixture f;
        f.join();
        static_cast<void>(f.begin(0));
        static_cast<void>(f.receive(Fixture::begin_message(1)));

        StopRound stop;
        stop.round = Round{1};
        CHECK(sent<RoundStopped>(f.receive(stop)).empty());
        f.end_all_by(SIGTERM);
        const AgentActions actions = f.step(agent_event::Swept{});

        CHECK(all_of<agent_action::Spawn>(actions).empty());
        const auto stopped = sent<RoundStopped>(actions);
        REQUIRE(stopped.size() == 2);
        CHECK(stopped[0].round == Round{0});
        CHECK(stopped[1].round == Round{1});
    }

    TEST_CASE("an agent that comes back names the round that waits for old workers") {
        Fixture f;
        f.join();
        static_cast<void>(f.begin(0));
        static_cast<void>(f.receive(Fixture::begin_message(1)));
        static_cast<void>(f.step(agent_event::LinkDown{Error{Errc::connection_lost, "cut"}}));

        const auto joins = sent<Join>(f.step(agent_event::LinkUp{"10.0.0.1"}));

        CHECK(joins.at(0).current_round == Round{1});
    }

    TEST_CASE("other signals are passed on") {
        Fixture f;
        f.join();
        static_cast<void>(f.begin(0));

        const auto signals =
            all_of<agent_action::SignalWorker>(f.step(agent_event::Signal{SIGUSR2}));

        REQUIRE(signals.size() == 2);
        CHECK(signals[1].signal == SIGUSR2);
    }
}
