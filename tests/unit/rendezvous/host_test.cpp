#include "rendezvous/host.h"

#include "proto/agent_codec.h"
#include "rendezvous/tcp_link.h"
#include "tests/unit/rendezvous/link_agent.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <doctest/doctest.h>

namespace ddprun {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using test::join_of;
using test::LinkAgent;
using test::run_until;

/// A host behind a listening socket on loopback.
struct Fixture {
    explicit Fixture(RendezvousHostOptions options = {JobId{"job"}})
        : host(std::make_unique<RendezvousHost>(io, std::move(options), log)),
          acceptor(io, tcp::endpoint{asio::ip::address_v4::loopback(), 0}) {
        accept_next();
    }

    void accept_next() {
        acceptor.async_accept([this](const boost::system::error_code& error, tcp::socket socket) {
            if (!error) {
                host->accept(std::move(socket), "");
                accept_next();
            }
        });
    }

    [[nodiscard]] Port port() const { return Port{acceptor.local_endpoint().port()}; }

    std::unique_ptr<RendezvousLink> tcp_link() {
        TcpLinkOptions options;
        options.host = "127.0.0.1";
        options.port = port();
        return make_tcp_link(io, options, log);
    }

    tcp::socket raw_connection() {
        tcp::socket socket(io);
        socket.connect(acceptor.local_endpoint());
        return socket;
    }

    /// A node of two that joins, says `more`, and then nothing.
    tcp::socket joined(const std::string& node, const std::vector<AgentMessage>& more) {
        tcp::socket socket = raw_connection();
        std::string bytes = agent_opening();
        encode(AgentMessage{join_of(node, 2)}, bytes);
        for (const AgentMessage& message : more) {
            encode(message, bytes);
        }
        asio::write(socket, asio::buffer(bytes));
        return socket;
    }

    bool run_until_true(const std::function<bool()>& condition) { return run_until(io, condition); }

    asio::io_context io{1};
    NullLog log;
    std::unique_ptr<RendezvousHost> host;
    tcp::acceptor acceptor;
};

/// The next frame that the host sends on a plain socket, while the host runs.
Result<ServerMessage> receive(Fixture& fixture, tcp::socket& socket) {
    FrameReader reader(FrameReader::Start::frames, limits::kServerFrameBytesMax);
    std::array<char, 4096> buffer{};
    std::optional<Frame> frame;
    bool closed = false;
    bool reading = false;
    const bool done = fixture.run_until_true([&] {
        auto next = reader.next();
        if (next && *next) {
            frame = **next;
        }
        if (!frame && !reading && !closed) {
            reading = true;
            socket.async_read_some(
                asio::buffer(buffer),
                [&](const boost::system::error_code& error, std::size_t size) {
                    reading = false;
                    closed = static_cast<bool>(error);
                    reader.push(std::string_view{buffer.data(), size});
                }
            );
        }
        return frame.has_value() || closed;
    });
    if (!done || !frame) {
        return fail(Errc::connection_lost, "no frame");
    }
    return decode_server_message(*frame);
}

TEST_SUITE_BEGIN("rendezvous/host");

TEST_CASE("a local agent alone gets its round and its end in a few turns of the loop") {
    Fixture f;
    LinkAgent agent(f.host->local_link(), join_of("node1", 1));

    std::size_t turns = 0;
    while (!agent.runs(0) && f.io.run_one_for(std::chrono::seconds(5)) > 0) {
        ++turns;
    }
    REQUIRE(agent.runs(0));
    CHECK(turns <= 8);
    CHECK(agent.last<BeginRound>()->plan.master_port == Port{29501});
    agent.succeed();
    REQUIRE(f.run_until_true([&] { return agent.ended(); }));

    CHECK(agent.last<EndJob>()->exit_status == 0);
}

TEST_CASE("a local agent and one over TCP run together and end together") {
    Fixture f;
    LinkAgent first(f.host->local_link(), join_of("node1", 2));
    LinkAgent second(f.tcp_link(), join_of("node2", 2));

    REQUIRE(f.run_until_true([&] { return first.runs(0) && second.runs(0); }));
    CHECK(first.last<BeginRound>()->place.group_rank == GroupRank{0});
    CHECK(second.last<BeginRound>()->place.group_rank == GroupRank{1});
    CHECK(second.last<BeginRound>()->plan == first.last<BeginRound>()->plan);
    first.succeed();
    second.succeed();
    REQUIRE(f.run_until_true([&] { return first.ended() && second.ended(); }));

    CHECK(second.last<EndJob>() == first.last<EndJob>());
}

TEST_CASE("a failing worker stops the other node and the job ends with its code on both") {
    Fixture f;
    LinkAgent first(f.host->local_link(), join_of("node1", 2));
    LinkAgent second(f.tcp_link(), join_of("node2", 2));
    REQUIRE(f.run_until_true([&] { return first.runs(0) && second.runs(0); }));

    second.fail_worker(3);
    REQUIRE(f.run_until_true([&] { return first.ended() && second.ended(); }));

    CHECK(first.last<StopRound>().has_value());
    CHECK(first.last<EndJob>()->exit_status == 3);
    CHECK(second.last<EndJob>()->exit_status == 3);
}

TEST_CASE("a node whose connection closes is replaced by a new one in the next round") {
    Fixture f;
    LinkAgent first(f.host->local_link(), join_of("node1", 2));
    auto second = std::make_unique<LinkAgent>(f.tcp_link(), join_of("node2", 2));
    REQUIRE(f.run_until_true([&] { return first.runs(0) && second->runs(0); }));

    second->drop_link();
    LinkAgent third(f.tcp_link(), join_of("node3", 2));
    REQUIRE(f.run_until_true([&] { return first.runs(1) && third.runs(1); }));

    CHECK(third.last<BeginRound>()->place.group_rank == GroupRank{1});
    CHECK(third.last<BeginRound>()->plan.reason == RoundReason::node_lost);
    CHECK(third.last<BeginRound>()->plan.restart_count == RestartCount{0});
}

TEST_CASE("a foreign job is refused with both ids and the job goes on") {
    Fixture f;
    LinkAgent first(f.host->local_link(), join_of("node1", 2));
    Join join = join_of("node2", 2);
    join.job = JobId{"other"};
    LinkAgent foreign(f.tcp_link(), join);
    LinkAgent second(f.tcp_link(), join_of("node2", 2));

    REQUIRE(f.run_until_true([&] { return foreign.last<Refused>() && second.runs(0); }));

    CHECK(foreign.last<Refused>()->reason == RefusalReason::foreign_job);
    CHECK(
        foreign.last<Refused>()->text ==
        "this endpoint serves job 'job', this node asked for job 'other'"
    );
}

TEST_CASE("nodes that wait are told of a node that asked for another job") {
    Fixture f;
    LinkAgent first(f.host->local_link(), join_of("node1", 2));
    Join join = join_of("node2", 2);
    join.job = JobId{"other"};
    LinkAgent foreign(f.tcp_link(), join);

    REQUIRE(f.run_until_true([&] {
        const auto waiting = first.last<Waiting>();
        return waiting && !waiting->refused.empty();
    }));

    CHECK(first.last<Waiting>()->refused[0].find("asked for job 'other'") != std::string::npos);
}

TEST_CASE("a host without a job of its own serves several by their ids and forgets them") {
    Fixture f{RendezvousHostOptions{}};
    Join join = join_of("node1", 1);
    join.job = JobId{"a"};
    LinkAgent first(f.tcp_link(), join);
    join.job = JobId{"b"};
    LinkAgent second(f.tcp_link(), join);
    bool all_over = false;
    f.host->on_all_jobs_over([&] { all_over = true; });

    REQUIRE(f.run_until_true([&] { return first.runs(0) && second.runs(0); }));
    CHECK(f.host->job(JobId{"a"}) != nullptr);
    first.succeed();
    second.succeed();
    REQUIRE(f.run_until_true([&] { return first.ended() && second.ended(); }));
    first.leave();
    second.leave();
    REQUIRE(f.run_until_true([&] { return all_over; }));

    CHECK(f.host->job(JobId{"a"}) == nullptr);
}

TEST_CASE("stop waits until every node has left") {
    Fixture f;
    LinkAgent first(f.host->local_link(), join_of("node1", 2));
    LinkAgent second(f.tcp_link(), join_of("node2", 2));
    REQUIRE(f.run_until_true([&] { return first.runs(0) && second.runs(0); }));
    bool stopped = false;
    f.host->stop([&] { stopped = true; });

    first.succeed();
    second.succeed();
    REQUIRE(f.run_until_true([&] { return first.ended() && second.ended(); }));
    bool closed = false;
    first.leave([&] { closed = true; });
    REQUIRE(f.run_until_true([&] { return closed; }));
    CHECK_FALSE(stopped);
    second.leave();

    CHECK(f.run_until_true([&] { return stopped; }));
}

TEST_CASE("stop of a host that nobody joined is over at once") {
    Fixture f;
    bool stopped = false;

    f.host->stop([&] { stopped = true; });

    CHECK(f.run_until_true([&] { return stopped; }));
}

TEST_CASE("a peer of another version is told both versions") {
    Fixture f;
    tcp::socket socket = f.raw_connection();
    asio::write(
        socket,
        asio::buffer(std::string(
            "\xDD"
            "PR1\x09\x00",
            6
        ))
    );

    const Result<ServerMessage> message = receive(f, socket);

    REQUIRE(message);
    const auto& refused = std::get<Refused>(*message);
    CHECK(refused.reason == RefusalReason::version);
    CHECK(refused.text.find("version 9") != std::string::npos);
    CHECK(refused.text.find("version 1") != std::string::npos);
}

TEST_CASE("garbage closes its own connection and no other") {
    Fixture f;
    tcp::socket socket = f.raw_connection();
    asio::write(socket, asio::buffer(agent_opening() + std::string("\xff\xff\xff\xff garbage")));
    const Result<ServerMessage> message = receive(f, socket);
    REQUIRE(message);
    CHECK(std::get<Refused>(*message).reason == RefusalReason::malformed);

    LinkAgent agent(f.tcp_link(), join_of("node1", 1));

    CHECK(f.run_until_true([&] { return agent.runs(0); }));
}

TEST_CASE("a connection that never joins is closed when its time is over") {
    RendezvousHostOptions options{JobId{"job"}};
    options.join_message_timeout = std::chrono::milliseconds(20);
    Fixture f{options};
    tcp::socket socket = f.raw_connection();
    asio::write(socket, asio::buffer(agent_opening()));

    const Result<ServerMessage> message = receive(f, socket);

    CHECK_FALSE(message);
}

TEST_CASE("a report before the join is refused") {
    Fixture f;
    tcp::socket socket = f.raw_connection();
    std::string bytes = agent_opening();
    encode(AgentMessage{StoreReady{SequenceNumber{1}, Round{0}, Port{1}}}, bytes);
    asio::write(socket, asio::buffer(bytes));

    const Result<ServerMessage> message = receive(f, socket);

    REQUIRE(message);
    CHECK(std::get<Refused>(*message).reason == RefusalReason::malformed);
}

TEST_CASE("a silent node is lost after the missed heartbeats") {
    Fixture f;
    LinkAgent first(f.host->local_link(), join_of("node1", 2));
    const tcp::socket socket = f.joined("node2", {});
    REQUIRE(f.run_until_true([&] { return first.runs(0); }));

    REQUIRE(f.run_until_true([&] { return first.last<StopRound>().has_value(); }));

    CHECK(first.last<StopRound>()->reason == "node2 was lost: it is silent");
}

TEST_CASE("a heartbeat is answered") {
    Fixture f;
    tcp::socket socket = f.joined("node1", {Heartbeat{}});
    std::string answer;
    encode(ServerMessage{Ack{}}, answer);

    std::string received;
    asio::async_read_until(
        socket,
        asio::dynamic_buffer(received),
        answer,
        [](const boost::system::error_code& /*error*/, std::size_t /*size*/) {}
    );

    CHECK(f.run_until_true([&] { return received.find(answer) != std::string::npos; }));
}

TEST_CASE("a second agent for a place whose agent lives is refused, and the first goes on") {
    Fixture f;
    LinkAgent first(f.host->local_link(), join_of("node1", 2));
    Join join = join_of("node2", 2);
    join.requested_rank = GroupRank{1};
    LinkAgent second(f.tcp_link(), join);
    REQUIRE(f.run_until_true([&] { return first.runs(0) && second.runs(0); }));
    join.incarnation = Incarnation{99};

    LinkAgent third(f.tcp_link(), join);
    REQUIRE(f.run_until_true([&] { return third.last<Refused>().has_value(); }));

    CHECK(third.last<Refused>()->reason == RefusalReason::rank_taken);
    CHECK(third.last<Refused>()->text == "node_rank 1 is taken by node2");
    CHECK_FALSE(first.last<StopRound>().has_value());
    CHECK_FALSE(second.last<Refused>().has_value());
    CHECK_FALSE(second.disconnected.has_value());
}

TEST_CASE("a second agent for the place of the agent in this process is refused at once") {
    Fixture f;
    LinkAgent first(f.host->local_link(), join_of("node1", 2));
    REQUIRE(f.run_until_true([&] { return first.last<Welcome>().has_value(); }));
    Join join = join_of("node1", 2);
    join.incarnation = Incarnation{99};

    LinkAgent second(f.tcp_link(), join);
    REQUIRE(f.run_until_true([&] { return second.last<Refused>().has_value(); }));

    CHECK(second.last<Refused>()->text.find("another agent of a host node1") == 0);
    CHECK(f.host->job(JobId{"job"})->nodes.size() == 1);
    CHECK(f.run_until_true([&] {
        const auto waiting = first.last<Waiting>();
        return waiting && !waiting->refused.empty();
    }));
}

TEST_CASE("a machine that comes back while its old connection is silent gets its place") {
    Fixture f;
    LinkAgent first(f.host->local_link(), join_of("node1", 2));
    const tcp::socket socket = f.joined("node2", {});
    REQUIRE(f.run_until_true([&] { return first.runs(0); }));
    Join join = join_of("node2", 2);
    join.incarnation = Incarnation{99};

    LinkAgent back(f.tcp_link(), join);
    REQUIRE(f.run_until_true([&] { return first.last<StopRound>().has_value(); }));
    REQUIRE(f.run_until_true([&] { return back.runs(1) && first.runs(1); }));

    CHECK_FALSE(back.last<Refused>().has_value());
}

TEST_CASE("a newer connection of the same life takes over without a new round") {
    Fixture f;
    LinkAgent first(f.host->local_link(), join_of("node1", 2));
    auto second = std::make_unique<LinkAgent>(f.tcp_link(), join_of("node2", 2));
    REQUIRE(f.run_until_true([&] { return first.runs(0) && second->runs(0); }));
    Join again = join_of("node2", 2);
    again.current_round = Round{0};

    LinkAgent back(f.tcp_link(), again);
    REQUIRE(f.run_until_true([&] { return back.runs(0); }));
    back.succeed();
    first.succeed();
    REQUIRE(f.run_until_true([&] { return first.ended() && back.ended(); }));

    CHECK(first.last<EndJob>()->exit_status == 0);
    CHECK_FALSE(first.last<StopRound>().has_value());
}

TEST_CASE("a local link outlives its host as one that is down") {
    Fixture f;
    LinkAgent agent(f.host->local_link(), join_of("node1", 1));
    REQUIRE(f.run_until_true([&] { return agent.runs(0); }));

    f.host.reset();
    REQUIRE(f.run_until_true([&] { return agent.disconnected.has_value(); }));
    bool closed = false;
    agent.leave([&] { closed = true; });

    CHECK(f.run_until_true([&] { return closed; }));
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
