#include "rendezvous/tcp_link.h"

#include "proto/agent_codec.h"
#include "proto/limits.h"
#include "tests/unit/rendezvous/link_agent.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/socket.h>

#include <array>

namespace ddprun {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using test::join_of;
using test::LinkAgent;

/// A rendezvous of which the test plays every part: one connection at a time.
class FakeServer {
public:
    explicit FakeServer(asio::io_context& io)
        : acceptor_(io, {asio::ip::address_v4::loopback(), 0}),
          socket_(io),
          former_(io) {
        accept();
    }

    [[nodiscard]] Port port() const { return Port{acceptor_.local_endpoint().port()}; }

    void send(const ServerMessage& message) {
        std::string bytes;
        encode(message, bytes);
        asio::write(socket_, asio::buffer(bytes));
    }

    void send_bytes(const std::string& bytes) { asio::write(socket_, asio::buffer(bytes)); }

    void hang_up() { socket_.close(); }

    void stop_listening() { acceptor_.close(); }

    template <class Message>
    [[nodiscard]] std::size_t count() const {
        return static_cast<std::size_t>(std::count_if(
            messages.begin(),
            messages.end(),
            [](const AgentMessage& message) { return std::holds_alternative<Message>(message); }
        ));
    }

    /// Whether the connection before the present one was closed by the other side.
    [[nodiscard]] bool former_has_ended() {
        std::array<char, 256> bytes{};
        ssize_t size = 0;
        do {
            size = ::recv(former_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        } while (size > 0);
        return size == 0;
    }

    std::vector<AgentMessage> messages;
    int connections = 0;
    bool saw_end = false;
    bool answers = false;  ///< heartbeats

private:
    void accept() {
        acceptor_.async_accept([this](const boost::system::error_code& error, tcp::socket socket) {
            if (error) {
                return;
            }
            former_ = std::exchange(socket_, std::move(socket));
            ++connections;
            reader_ = FrameReader(FrameReader::Start::opening, limits::kAgentFrameBytesMax);
            read();
            accept();
        });
    }

    void read() {
        socket_.async_read_some(
            asio::buffer(input_),
            [this,
             connection = connections](const boost::system::error_code& error, std::size_t size) {
                if (connection != connections) {
                    return;  // of a connection that is looked at no more
                }
                if (error) {
                    saw_end = error == asio::error::eof;
                    return;
                }
                reader_.push(std::string_view{input_.data(), size});
                for (auto frame = reader_.next(); frame && *frame; frame = reader_.next()) {
                    messages.push_back(*decode_agent_message(**frame));
                    if (answers && std::holds_alternative<Heartbeat>(messages.back())) {
                        send(Ack{});
                    }
                }
                read();
            }
        );
    }

    tcp::acceptor acceptor_;
    tcp::socket socket_;
    tcp::socket former_;
    FrameReader reader_{FrameReader::Start::opening, limits::kAgentFrameBytesMax};
    std::array<char, 4096> input_{};
};

struct Fixture {
    std::unique_ptr<LinkAgent> agent(TcpLinkOptions options = {}) {
        options.host = options.host.empty() ? "127.0.0.1" : options.host;
        options.port = server.port();
        return std::make_unique<LinkAgent>(make_tcp_link(io, options, log), join_of("node1", 1));
    }

    bool run_until(const std::function<bool()>& condition) {
        return test::run_until(io, condition);
    }

    asio::io_context io{1};
    NullLog log;
    FakeServer server{io};
};

const Welcome kWelcome{std::chrono::milliseconds(10)};

TEST_SUITE_BEGIN("rendezvous/tcp_link");

TEST_CASE("a link reports its local address and carries the join") {
    Fixture f;
    const auto agent = f.agent();
    CHECK(agent->connections == 0);  // nothing is called from inside start

    REQUIRE(f.run_until([&] { return f.server.count<Join>() == 1; }));

    CHECK(agent->local_address == "127.0.0.1");
    CHECK(std::get<Join>(f.server.messages[0]) == join_of("node1", 1));
}

TEST_CASE("a host name is resolved") {
    Fixture f;
    TcpLinkOptions options;
    options.host = "localhost";
    const auto agent = f.agent(options);

    CHECK(f.run_until([&] { return f.server.count<Join>() == 1; }));
}

TEST_CASE("heartbeats begin with the welcome, at its rhythm") {
    Fixture f;
    const auto agent = f.agent();
    REQUIRE(f.run_until([&] { return f.server.count<Join>() == 1; }));
    CHECK(f.server.count<Heartbeat>() == 0);

    f.server.send(kWelcome);

    CHECK(f.run_until([&] { return f.server.count<Heartbeat>() >= 3; }));
}

TEST_CASE("a rendezvous that answers no heartbeat is connected to anew before it misses this node"
) {
    Fixture f;
    const auto agent = f.agent();
    REQUIRE(f.run_until([&] { return f.server.count<Join>() == 1; }));
    f.server.send(kWelcome);

    REQUIRE(f.run_until([&] { return f.server.count<Join>() == 2; }));

    CHECK(agent->disconnected->context.find("no answer to heartbeats") == 0);
    CHECK_FALSE(agent->lost.has_value());
}

TEST_CASE("a connection that fell silent stays open until the new one is welcome") {
    Fixture f;
    const auto agent = f.agent();
    REQUIRE(f.run_until([&] { return f.server.count<Join>() == 1; }));
    f.server.send(kWelcome);
    REQUIRE(f.run_until([&] { return f.server.count<Join>() == 2; }));
    CHECK_FALSE(f.server.former_has_ended());

    f.server.answers = true;
    f.server.send(kWelcome);

    CHECK(f.run_until([&] { return f.server.former_has_ended(); }));
}

TEST_CASE("answered heartbeats keep a connection, and nobody else hears of them") {
    Fixture f;
    const auto agent = f.agent();
    f.server.answers = true;
    REQUIRE(f.run_until([&] { return f.server.count<Join>() == 1; }));
    f.server.send(kWelcome);

    // A lot longer than an unanswered connection lives.
    REQUIRE(f.run_until([&] { return f.server.count<Heartbeat>() >= 200; }));

    CHECK(f.server.connections == 1);
    CHECK(agent->messages.size() == 1);
}

TEST_CASE("messages of the rendezvous arrive in order") {
    Fixture f;
    const auto agent = f.agent();
    REQUIRE(f.run_until([&] { return f.server.count<Join>() == 1; }));

    f.server.send(kWelcome);
    for (std::uint64_t i = 1; i <= 100; ++i) {
        f.server.send(Ack{SequenceNumber{i}});
    }
    REQUIRE(f.run_until([&] { return agent->messages.size() == 101; }));

    for (std::uint64_t i = 1; i <= 100; ++i) {
        CHECK(std::get<Ack>(agent->messages[i]).sequence == SequenceNumber{i});
    }
}

TEST_CASE("a lost connection is restored and reported both times") {
    Fixture f;
    const auto agent = f.agent();
    REQUIRE(f.run_until([&] { return f.server.count<Join>() == 1; }));
    f.server.send(kWelcome);
    REQUIRE(f.run_until([&] { return agent->last<Welcome>().has_value(); }));

    f.server.hang_up();

    REQUIRE(f.run_until([&] { return f.server.count<Join>() == 2; }));
    CHECK(agent->disconnected.has_value());
    CHECK(agent->connections == 2);
    CHECK_FALSE(agent->lost.has_value());
}

TEST_CASE("nobody listening within the time loses the link with target and attempts") {
    Fixture f;
    TcpLinkOptions options;
    options.connect_timeout = std::chrono::milliseconds(60);
    const auto port = f.server.port();
    f.server.stop_listening();
    options.host = "127.0.0.1";
    options.port = port;
    LinkAgent agent(make_tcp_link(f.io, options, f.log), join_of("node1", 1));

    REQUIRE(f.run_until([&] { return agent.lost.has_value(); }));

    CHECK(agent.lost->code == Errc::timed_out);
    const std::string target =
        "connect to the rendezvous at 127.0.0.1:" + std::to_string(port.value()) +
        ": Connection refused (";
    CHECK(agent.lost->context.find(target) == 0);
    CHECK(agent.connections == 0);
}

TEST_CASE("a name that is never resolved is named") {
    Fixture f;
    TcpLinkOptions options;
    options.host = "no-such-host.invalid";
    options.connect_timeout = std::chrono::milliseconds(30);
    const auto agent = f.agent(options);

    REQUIRE(f.run_until([&] { return agent->lost.has_value(); }));

    CHECK(agent->lost->context.find("no-such-host.invalid") != std::string::npos);
}

TEST_CASE("a rendezvous that stays away for the lost time-out loses the link") {
    Fixture f;
    TcpLinkOptions options;
    options.lost_timeout = std::chrono::milliseconds(60);
    const auto agent = f.agent(options);
    REQUIRE(f.run_until([&] { return f.server.count<Join>() == 1; }));
    f.server.send(kWelcome);
    f.server.send(BeginRound{});
    REQUIRE(f.run_until([&] { return agent->last<BeginRound>().has_value(); }));

    f.server.stop_listening();
    f.server.hang_up();
    REQUIRE(f.run_until([&] { return agent->lost.has_value(); }));

    CHECK(agent->lost->context.find("connect again to the rendezvous at") == 0);
}

TEST_CASE("before the first round a lost rendezvous is waited for until the join time-out at most"
) {
    Fixture f;
    TcpLinkOptions options;
    options.connect_timeout = std::chrono::milliseconds(300);
    const auto agent = f.agent(options);
    REQUIRE(f.run_until([&] { return f.server.count<Join>() == 1; }));
    f.server.send(kWelcome);
    REQUIRE(f.run_until([&] { return agent->last<Welcome>().has_value(); }));

    f.server.stop_listening();
    f.server.hang_up();

    CHECK(f.run_until([&] { return agent->lost.has_value(); }));
}

TEST_CASE("a stranger at the endpoint is no rendezvous, and is tried again only until the deadline"
) {
    Fixture f;
    TcpLinkOptions options;
    options.connect_timeout = std::chrono::milliseconds(100);
    const auto agent = f.agent(options);
    int greeted = 0;

    REQUIRE(f.run_until([&] {
        if (f.server.connections > greeted) {
            greeted = f.server.connections;
            f.server.send_bytes("SSH-2.0-stranger\r\n");
        }
        return agent->lost.has_value();
    }));

    CHECK(agent->lost->context.find("no rendezvous of this version") != std::string::npos);
}

TEST_CASE("a refused link isn't restored") {
    Fixture f;
    const auto agent = f.agent();
    REQUIRE(f.run_until([&] { return f.server.count<Join>() == 1; }));

    f.server.send(Refused{RefusalReason::foreign_job, "why"});
    f.server.hang_up();
    REQUIRE(f.run_until([&] { return agent->disconnected.has_value(); }));

    CHECK(agent->last<Refused>()->text == "why");
    f.server.stop_listening();
    f.io.restart();
    f.io.run_for(std::chrono::seconds(10));
    CHECK(f.io.stopped());  // nothing is left to do: no attempt, no timer
    CHECK(agent->connections == 1);
}

TEST_CASE("close sends what is queued first, then is done, and nothing is called afterwards") {
    Fixture f;
    const auto agent = f.agent();
    REQUIRE(f.run_until([&] { return f.server.count<Join>() == 1; }));
    f.server.send(kWelcome);
    REQUIRE(f.run_until([&] { return agent->last<Welcome>().has_value(); }));
    bool done = false;

    agent->leave([&] { done = true; });
    CHECK_FALSE(done);
    REQUIRE(f.run_until([&] { return f.server.saw_end; }));
    f.server.hang_up();
    REQUIRE(f.run_until([&] { return done; }));

    CHECK(f.server.count<Bye>() == 1);
    CHECK_FALSE(agent->disconnected.has_value());
}

TEST_CASE("close before the link is up is done at once") {
    Fixture f;
    const auto agent = f.agent();
    bool done = false;

    agent->link().close([&] { done = true; });

    CHECK(f.run_until([&] { return done; }));
    CHECK(agent->connections == 0);
}

TEST_CASE("what is sent while the link is down is dropped") {
    Fixture f;
    const auto agent = f.agent();

    agent->link().send(Bye{SequenceNumber{1}});
    REQUIRE(f.run_until([&] { return f.server.count<Join>() == 1; }));

    CHECK(f.server.count<Bye>() == 0);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
