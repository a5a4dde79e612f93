// An agent and the nodes around it: a rendezvous that was restarted, a node that leaves or joins,
// a store on another node.
#include "agent/agent_core.h"
#include "proto/exit_codes.h"
#include "tests/unit/agent/agent_actions.h"

#include <doctest/doctest.h>

#include <signal.h>

using namespace ddprun;
using test::all_of;
using test::sent;

namespace {

constexpr TimePoint kStart{std::chrono::seconds(1'000)};

/// An agent of one worker in a job of two nodes, with group rank 1.
struct Fixture {
    explicit Fixture(bool leaves = false, int membership_signal = 0)
        : core(settings(leaves, membership_signal)) {
        static_cast<void>(step(agent_event::LinkUp{"10.0.0.2"}));
        static_cast<void>(receive(Welcome{}));
    }

    static AgentCoreSettings settings(bool leaves, int membership_signal) {
        AgentCoreSettings result;
        result.join.node = NodeId{"n"};
        result.group = {
            .host = "host",
            .program = "prog",
            .grace = std::chrono::milliseconds(500),
            .membership_signal = membership_signal,
            .membership_grace = std::chrono::milliseconds(5'000)};
        result.leaves_on_term = leaves;
        return result;
    }

    AgentActions step(const AgentEvent& event) { return core.step(event, now); }

    AgentActions receive(ServerMessage message) {
        return step(agent_event::FromServer{std::move(message)});
    }

    AgentActions begin_message(std::int64_t round) {
        BeginRound message;
        message.plan.round = Round{round};
        message.plan.nodes = NodeCount{2};
        message.plan.master_address = "10.0.0.1";
        message.plan.master_port = Port{4'000};
        message.plan.restart_count = RestartCount{1};
        message.place.group_rank = GroupRank{1};
        return receive(message);
    }

    void run(std::int64_t round) {
        static_cast<void>(begin_message(round));
        group_event::Started started;
        const auto actions = step(agent_event::StoreReached{Round{round}});
        for (const auto& spawn : all_of<agent_action::Spawn>(actions)) {
            worker = spawn.id;
            started.pids.emplace_back(spawn.id, 100);
        }
        static_cast<void>(step(agent_event::WorkersStarted{started}));
    }

    AgentActions end(ExitStatus status) {
        WorkerEnd worker_end;
        worker_end.id = worker;
        worker_end.status = status;
        return step(agent_event::WorkerEnded{worker_end});
    }

    Join reconnect() {
        static_cast<void>(step(agent_event::LinkDown{Error{Errc::closed, "gone"}}));
        return sent<Join>(step(agent_event::LinkUp{"10.0.0.2"})).at(0);
    }

    AgentActions stop(std::int64_t round, StopKind kind) {
        StopRound message;
        message.round = Round{round};
        message.kind = kind;
        return receive(message);
    }

    TimePoint now = kStart;
    AgentCore core;
    WorkerId worker{};
};

}  // namespace

TEST_SUITE("agent/agent_membership") {
    TEST_CASE("loopback is never published by a node that reaches the rendezvous over a network") {
        const auto address_told = [](const std::string& asked, const std::string& local) {
            AgentCoreSettings settings = Fixture::settings(false, 0);
            settings.join.info.address = asked;
            AgentCore core{std::move(settings)};
            return sent<Join>(core.step(agent_event::LinkUp{local}, kStart)).at(0).info.address;
        };

        CHECK(address_told("127.0.0.1", "10.0.0.2") == "10.0.0.2");
        CHECK(address_told("::1", "fd00::2") == "fd00::2");
        CHECK(address_told("127.0.0.1", "127.0.0.5") == "127.0.0.1");
        CHECK(address_told("10.0.0.9", "10.0.0.2") == "10.0.0.9");
        CHECK(address_told("10.0.0.9", "127.0.0.1") == "10.0.0.9");
        CHECK(address_told("", "10.0.0.2") == "10.0.0.2");
    }

    TEST_CASE("another node's store is reached before a worker is started") {
        Fixture f;

        const auto begun = f.begin_message(0);
        const auto reached = f.step(agent_event::StoreReached{Round{0}});

        const auto reach = all_of<agent_action::ReachStore>(begun);
        REQUIRE(reach.size() == 1);
        CHECK(reach[0].address == "10.0.0.1");
        CHECK(reach[0].port == Port{4'000});
        CHECK(all_of<agent_action::Spawn>(begun).empty());
        CHECK(all_of<agent_action::Spawn>(reached).size() == 1);
    }

    TEST_CASE("a store that can't be reached is a failure of this node, no worker starts") {
        Fixture f;
        static_cast<void>(f.begin_message(0));

        const auto actions = f.step(agent_event::StoreUnreachable{
            Round{0}, Error{Errc::timed_out, "connect: no answer"}, 5});

        REQUIRE(sent<WorkerFailed>(actions).size() == 1);
        CHECK(sent<WorkerFailed>(actions)[0].failure.kind == FailureKind::agent);
        CHECK(sent<WorkerFailed>(actions)[0].failure.message == "connect: no answer");
        CHECK(sent<RoundStopped>(actions).size() == 1);
        CHECK(all_of<agent_action::Spawn>(actions).empty());
    }

    TEST_CASE("a round that is stopped before its store was reached never begins") {
        Fixture f;
        static_cast<void>(f.begin_message(0));

        const auto stopped = f.stop(0, StopKind::node_lost);
        const auto reached = f.step(agent_event::StoreReached{Round{0}});

        CHECK(sent<RoundStopped>(stopped).size() == 1);
        CHECK(all_of<agent_action::Spawn>(reached).empty());
    }

    TEST_CASE("an agent that comes back claims its place in its round") {
        Fixture f;
        f.run(3);

        const Join join = f.reconnect();

        CHECK(join.job_began);
        CHECK(join.newest_round == Round{3});
        CHECK(join.current_round == Round{3});
        REQUIRE(join.claim);
        CHECK(
            *join.claim ==
            RoundClaim{
                Round{3}, GroupRank{1}, NodeCount{2}, RestartCount{1}, "10.0.0.1", Port{4'000}}
        );
    }

    TEST_CASE("a rendezvous that knows nothing gets all reports of the round again") {
        Fixture f;
        f.run(3);
        const auto success = sent<WorkersSucceeded>(f.end(ExitStatus::exited(0)));
        REQUIRE(success.size() == 1);
        static_cast<void>(f.receive(Ack{success[0].sequence}));

        static_cast<void>(f.reconnect());
        const auto to_former = f.receive(Welcome{});
        static_cast<void>(f.reconnect());
        Welcome welcome;
        welcome.send_again = true;
        const auto to_new = f.receive(welcome);

        CHECK(sent<WorkersSucceeded>(to_former).empty());
        CHECK(sent<WorkersSucceeded>(to_new) == success);
    }

    TEST_CASE("reports of older rounds are not sent again") {
        Fixture f;
        f.run(3);
        const auto failed = sent<WorkerFailed>(f.end(ExitStatus::exited(1)));
        const auto stopped = sent<RoundStopped>(f.step(agent_event::Swept{}));
        REQUIRE(stopped.size() == 1);
        static_cast<void>(f.receive(Ack{stopped[0].sequence}));
        f.run(4);

        static_cast<void>(f.reconnect());
        Welcome welcome;
        welcome.send_again = true;
        const auto again = f.receive(welcome);

        CHECK(failed.size() == 1);
        CHECK(sent<WorkerFailed>(again).empty());
        CHECK(sent<RoundStopped>(again).empty());
    }

    TEST_CASE("a rendezvous that doesn't know that a round was stopped is told again") {
        Fixture f;
        f.run(3);
        static_cast<void>(f.stop(3, StopKind::node_lost));
        static_cast<void>(f.end(ExitStatus::signaled(SIGTERM, false)));
        static_cast<void>(f.step(agent_event::Swept{}));

        CHECK(sent<RoundStopped>(f.stop(3, StopKind::node_lost)).size() == 1);
    }

    TEST_CASE("workers run on while the rendezvous is away, a failure waits for it") {
        Fixture f;
        f.run(3);

        const auto down = f.step(agent_event::LinkDown{Error{Errc::closed, "gone"}});
        const auto failed = f.end(ExitStatus::exited(7));
        static_cast<void>(f.step(agent_event::Swept{}));
        static_cast<void>(f.step(agent_event::LinkUp{"10.0.0.2"}));
        Welcome welcome;
        welcome.send_again = true;
        const auto again = f.receive(welcome);

        CHECK(all_of<agent_action::SignalWorker>(down).empty());
        CHECK(sent<WorkerFailed>(failed).empty());
        REQUIRE(sent<WorkerFailed>(again).size() == 1);
        CHECK(sent<WorkerFailed>(again)[0].failure.code == 7);
        CHECK(sent<RoundStopped>(again).size() == 1);
    }

    TEST_CASE("an agent whose workers have succeeded ends 0 where the rendezvous stays away") {
        Fixture f;
        f.run(3);
        static_cast<void>(f.end(ExitStatus::exited(0)));
        static_cast<void>(f.step(agent_event::LinkDown{Error{Errc::closed, "gone"}}));

        const auto lost = f.step(agent_event::LinkLost{Error{Errc::timed_out, "no answer"}});
        const auto swept = f.step(agent_event::Swept{});

        REQUIRE(all_of<agent_action::Tell>(lost).size() == 1);
        CHECK(all_of<agent_action::Tell>(lost)[0].level == LogLevel::warning);
        REQUIRE(all_of<agent_action::Finish>(swept).size() == 1);
        CHECK(all_of<agent_action::Finish>(swept)[0].exit_status == 0);
    }

    TEST_CASE("TERM to an agent that leaves alone stops its workers and ends with 143") {
        Fixture f(true);
        f.run(3);

        const auto told = f.step(agent_event::Signal{SIGTERM});
        static_cast<void>(f.end(ExitStatus::signaled(SIGTERM, false)));
        const auto gone = f.step(agent_event::Swept{});

        CHECK(sent<Leave>(told).size() == 1);
        CHECK(sent<StopJob>(told).empty());
        REQUIRE(all_of<agent_action::SignalWorker>(told).size() == 1);
        CHECK(sent<RoundStopped>(gone).size() == 1);
        CHECK(sent<Bye>(gone).size() == 1);
        REQUIRE(all_of<agent_action::Finish>(gone).size() == 1);
        CHECK(all_of<agent_action::Finish>(gone)[0].exit_status == 143);
    }

    TEST_CASE("INT stops the whole job, also where TERM would only leave") {
        Fixture f(true);
        f.run(3);

        CHECK(sent<StopJob>(f.step(agent_event::Signal{SIGINT})).size() == 1);
    }

    TEST_CASE("workers are given the membership signal and time to save before a node joins") {
        Fixture f(false, SIGUSR1);
        f.run(3);

        const auto notice = f.stop(3, StopKind::node_joined);
        f.now = kStart + std::chrono::milliseconds(5'000);
        const auto late = f.step(agent_event::Tick{});

        REQUIRE(all_of<agent_action::SignalWorker>(notice).size() == 1);
        CHECK(all_of<agent_action::SignalWorker>(notice)[0].signal == SIGUSR1);
        REQUIRE(all_of<agent_action::SignalWorker>(late).size() == 1);
        CHECK(all_of<agent_action::SignalWorker>(late)[0].signal == SIGTERM);
    }

    TEST_CASE("whatever a worker ends with after the membership signal is no failure") {
        Fixture f(false, SIGUSR1);
        f.run(3);
        static_cast<void>(f.stop(3, StopKind::node_joined));

        const auto ended = f.end(ExitStatus::exited(9));
        const auto swept = f.step(agent_event::Swept{});

        CHECK(sent<WorkerFailed>(ended).empty());
        REQUIRE(sent<RoundStopped>(swept).size() == 1);
        CHECK(sent<RoundStopped>(swept)[0].later_failures.empty());
    }

    TEST_CASE("a stop for a failure gives no time to save") {
        Fixture f(false, SIGUSR1);
        f.run(3);

        const auto stopped = f.stop(3, StopKind::worker_failure);

        REQUIRE(all_of<agent_action::SignalWorker>(stopped).size() == 1);
        CHECK(all_of<agent_action::SignalWorker>(stopped)[0].signal == SIGTERM);
    }

    EndJob failed_job() {
        EndJob end;
        end.exit_status = 6;
        end.reason = "rank 1 exited with status 6";
        end.failures.emplace_back();
        return end;
    }

    Waiting as_spare() {
        Waiting waiting;
        waiting.spare = true;
        return waiting;
    }

    TEST_CASE("a spare ends with 0 when the job fails, says how it ended and prints no report") {
        Fixture f;
        static_cast<void>(f.receive(as_spare()));

        const auto over = f.receive(failed_job());

        REQUIRE(all_of<agent_action::Finish>(over).size() == 1);
        CHECK(all_of<agent_action::Finish>(over)[0].exit_status == 0);
        CHECK(all_of<agent_action::Finish>(over)[0].outcome.exit_status == 6);
        CHECK(all_of<agent_action::PrintReport>(over).empty());
        REQUIRE(all_of<agent_action::Tell>(over).size() == 1);
        CHECK(all_of<agent_action::Tell>(over)[0].text.find("status 6") != std::string::npos);
    }

    TEST_CASE("a spare that took over a place ends with the job's status") {
        Fixture f;
        static_cast<void>(f.receive(as_spare()));
        f.run(3);
        static_cast<void>(f.stop(3, StopKind::worker_failure));
        static_cast<void>(f.end(ExitStatus::exited(0)));
        static_cast<void>(f.step(agent_event::Swept{}));

        const auto over = f.receive(failed_job());

        REQUIRE(all_of<agent_action::Finish>(over).size() == 1);
        CHECK(all_of<agent_action::Finish>(over)[0].exit_status == 6);
    }

    TEST_CASE("an agent that was told to stop doesn't wait long for a rendezvous that has gone") {
        Fixture f;
        f.run(3);
        static_cast<void>(f.step(agent_event::Signal{SIGTERM}));
        static_cast<void>(f.end(ExitStatus::signaled(SIGTERM, false)));
        static_cast<void>(f.step(agent_event::Swept{}));
        static_cast<void>(f.step(agent_event::LinkDown{Error{Errc::timed_out, "no answer"}}));
        CHECK(f.core.deadline() == f.now + limits::kGiveUpAfterStop);
        f.now += limits::kGiveUpAfterStop;
        const auto over = f.step(agent_event::Tick{});

        REQUIRE(all_of<agent_action::Finish>(over).size() == 1);
        CHECK(all_of<agent_action::Finish>(over)[0].exit_status == 128 + SIGTERM);
    }

    TEST_CASE(
        "after workers that took longer to stop than the rendezvous is waited for it can answer"
    ) {
        Fixture f;
        f.run(3);
        static_cast<void>(f.step(agent_event::Signal{SIGTERM}));
        f.now += f.settings(false, 0).group.grace + limits::kGiveUpAfterStop;
        CHECK(all_of<agent_action::Finish>(f.step(agent_event::Tick{})).empty());
        static_cast<void>(f.end(ExitStatus::signaled(SIGKILL, false)));
        static_cast<void>(f.step(agent_event::Swept{}));

        CHECK(all_of<agent_action::Finish>(f.step(agent_event::Tick{})).empty());
        EndJob end;
        end.exit_status = 128 + SIGTERM;
        end.reason = "stopped by a signal";
        const auto over = f.receive(end);

        REQUIRE(all_of<agent_action::Finish>(over).size() == 1);
        CHECK(all_of<agent_action::Finish>(over)[0].outcome.reason == "stopped by a signal");
    }

    TEST_CASE("workers that take longer to stop than the rendezvous is waited for keep no loop busy"
    ) {
        Fixture f;
        f.run(3);
        static_cast<void>(f.step(agent_event::Signal{SIGTERM}));
        static_cast<void>(f.step(agent_event::LinkDown{Error{Errc::timed_out, "no answer"}}));

        f.now += limits::kGiveUpAfterStop;
        static_cast<void>(f.step(agent_event::Tick{}));

        const auto next = f.core.deadline();
        CHECK((!next || *next > f.now));
    }

    TEST_CASE("the loss of a rendezvous and its return are told once each") {
        Fixture f;
        const Error reason{Errc::connection_lost, "reset"};

        CHECK(all_of<agent_action::Tell>(f.step(agent_event::LinkDown{reason})).size() == 1);
        for (int attempt = 0; attempt < 3; ++attempt) {
            CHECK(all_of<agent_action::Tell>(f.step(agent_event::LinkUp{"10.0.0.2"})).empty());
            CHECK(all_of<agent_action::Tell>(f.step(agent_event::LinkDown{reason})).empty());
        }
        static_cast<void>(f.step(agent_event::LinkUp{"10.0.0.2"}));
        CHECK(all_of<agent_action::Tell>(f.receive(Welcome{})).size() == 1);
        CHECK(all_of<agent_action::Tell>(f.receive(Welcome{})).empty());
    }
}
