#include "rendezvous/store_server.h"

#include "proto/agent_messages.h"
#include "tests/support/filled.h"
#include "tests/support/store_fixture.h"
#include "tests/support/store_samples.h"

#include <boost/asio/ip/tcp.hpp>
#include <doctest/doctest.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace ddprun {
namespace {

std::string bytes_of(const StoreRequest& request) {
    std::string bytes;
    encode_request(request, bytes);
    return bytes;
}

/// A conversation that touches every kind of request, and what the server must answer to all of it.
std::string golden_requests() {
    std::string all;
    const std::vector<StoreRequest> requests{
        ValidateRequest{kStoreMagic},
        PingRequest{42},
        SetRequest{"/k", "ab"},
        ListKeysRequest{},  // one: more are in any order
        GetRequest{"/k"},
        CompareSetRequest{"/k", "ab", "cd"},
        AddRequest{"/n", -7},
        CheckRequest{{"/k", "/q"}},
        WaitRequest{{"/k"}},
        NumKeysRequest{},
        DeleteKeyRequest{"/n"},
        AppendRequest{"/k", "ef"},
        MultiSetRequest{{{"/m", "1"}}},
        MultiGetRequest{{"/k", "/m"}},
        QueuePushRequest{"/q", "x"},
        QueueLengthRequest{"/q"},
        QueuePopRequest{"/q"},
        BarrierRequest{"/b", 1},
        WaitRequest{{"/missing"}},
        CancelWaitRequest{},
    };
    for (const StoreRequest& request : requests) {
        encode_request(request, all);
    }
    return all;
}

const std::string& golden_replies() {
    static const std::string bytes = from_hex(
        "2a000000"
        "0100000000000000 0200000000000000 2f6b"
        "0200000000000000 6162"
        "0200000000000000 6364"
        "f9ffffffffffffff"
        "01"
        "00"
        "0200000000000000"
        "0100000000000000"
        "0400000000000000 63646566 0100000000000000 31"
        "0100000000000000"
        "0100000000000000 0100000000000000 78"
        "00"
        "01"
    );
    return bytes;
}

TEST_SUITE_BEGIN("rendezvous/store_server");

TEST_CASE("a whole conversation in one piece is answered in order") {
    StoreFixture fixture;
    RawClient client{fixture};

    CHECK(client.ask(golden_requests(), golden_replies().size()) == golden_replies());
    CHECK(client.has_silence());
}

TEST_CASE("a conversation that is cut at any byte is answered all the same") {
    StoreFixture fixture;
    const std::string requests = golden_requests();
    for (std::size_t cut = 1; cut < requests.size(); ++cut) {
        StoreServerOptions options;
        options.addresses = {"127.0.0.1"};
        auto server = StoreServer::listen(fixture.io_context, options, fixture.log);
        REQUIRE(server);
        fixture.server = std::move(*server);
        RawClient client{fixture};

        client.send(std::string_view{requests}.substr(0, cut));
        fixture.run_ready();
        const std::string replies =
            client.ask(std::string_view{requests}.substr(cut), golden_replies().size());

        CHECK(replies == golden_replies());
    }
}

TEST_CASE("a conversation byte by byte is answered all the same") {
    StoreFixture fixture;
    RawClient client{fixture};
    for (const char byte : golden_requests()) {
        client.send({&byte, 1});
        fixture.run_ready();
    }

    CHECK(client.receive(golden_replies().size()) == golden_replies());
    CHECK(fixture.counters().partial_bytes == 0);
}

TEST_CASE("one client's set releases another's wait") {
    StoreFixture fixture;
    RawClient waiting{fixture};
    RawClient setting{fixture};
    waiting.greet();
    setting.greet();
    waiting.send(bytes_of(WaitRequest{{"/k"}}));
    CHECK(waiting.has_silence());

    setting.send(bytes_of(SetRequest{"/k", "v"}));

    CHECK(waiting.receive(1) == from_hex("00"));
    CHECK(waiting.ask(bytes_of(GetRequest{"/k"}), 9).substr(8) == "v");
}

TEST_CASE("a client that vanishes while it waits is forgotten") {
    StoreFixture fixture;
    auto waiting = std::make_unique<RawClient>(fixture);
    waiting->greet();
    waiting->send(bytes_of(WaitRequest{{"/k", "/l"}}));
    REQUIRE(fixture.run_until([&] { return fixture.server->kv_counters().registrations == 2; }));

    waiting.reset();

    CHECK(fixture.run_until([&] { return fixture.counters().connections == 0; }));
    CHECK(fixture.server->kv_counters().registrations == 0);
}

TEST_CASE("a client that half closes gets all its replies") {
    StoreFixture fixture;
    RawClient client{fixture};
    client.greet();
    const std::string value = test::filled(6 * limits::kMiB, 'v');
    client.send(bytes_of(SetRequest{"/k", value}));
    client.send(bytes_of(GetRequest{"/k"}));
    client.close_sending();

    CHECK(client.receive(8 + value.size()).substr(8) == value);
    CHECK(client.is_closed_by_server());
}

TEST_CASE("replies beyond the bound wait until the client reads and none is lost") {
    StoreServerOptions options;
    options.unsent_bytes_max = 100'000;
    StoreFixture fixture{options};
    RawClient client{fixture};
    client.greet();
    const std::string value =
        test::filled(limits::kValueBytesMax, 'v');  // more than the kernel's buffers hold
    client.send(bytes_of(SetRequest{"/k", value}));
    std::string requests;
    constexpr std::size_t kGets = 6;
    for (std::size_t i = 0; i < kGets; ++i) {
        requests += bytes_of(GetRequest{"/k"});
    }
    client.send(requests);
    REQUIRE(fixture.run_until([&] { return fixture.counters().unsent_bytes > 0; }));
    fixture.run_ready();
    const std::size_t unsent = fixture.counters().unsent_bytes;

    const std::string replies = client.receive(kGets * (8 + value.size()));

    CHECK(unsent > 0);
    CHECK(unsent < options.unsent_bytes_max + value.size() + 8);
    CHECK(replies.size() == kGets * (8 + value.size()));
    CHECK(replies.ends_with(value));
    CHECK(fixture.counters().unsent_bytes == 0);
    CHECK(client.ask(bytes_of(PingRequest{7}), 4) == from_hex("07000000"));
}

TEST_CASE("a store with a bound below one reply serves pipelined requests to a client that reads") {
    StoreServerOptions options;
    options.unsent_bytes_max = 0;
    StoreFixture fixture{options};
    RawClient client{fixture};
    client.greet();
    std::string requests;
    for (int i = 0; i < 100; ++i) {
        requests += bytes_of(PingRequest{1});
    }

    CHECK(client.ask(requests, 400).size() == 400);
}

TEST_CASE("pings of many clients are answered") {
    StoreFixture fixture;
    std::vector<RawClient> clients;
    for (int i = 0; i < 200; ++i) {
        clients.emplace_back(fixture);
        clients.back().greet();
    }

    for (RawClient& client : clients) {
        CHECK(client.ask(bytes_of(PingRequest{7}), 4) == from_hex("07000000"));
    }
    CHECK(fixture.counters().connections == 200);
    CHECK(fixture.counters().unvalidated == 0);
}

TEST_SUITE_END();

TEST_SUITE_BEGIN("rendezvous/store_server dialects");

TEST_CASE("an agent's connection is handed over with its first bytes") {
    StoreServerOptions options;
    std::string first;
    bool is_open = false;
    options.on_agent = [&](boost::asio::ip::tcp::socket socket, std::string bytes) {
        first = std::move(bytes);
        is_open = socket.is_open();
    };
    StoreFixture fixture{options};
    RawClient client{fixture};
    const std::string greeting = std::string{kAgentMagic, sizeof kAgentMagic} + "rest";

    client.send(greeting);

    CHECK(fixture.run_until([&] { return first == greeting; }));
    CHECK(is_open);
    CHECK(fixture.counters().connections == 0);
    CHECK(fixture.counters().handed_over == 1);
}

TEST_CASE("an agent is turned away where nobody wants agents") {
    StoreFixture fixture;
    RawClient client{fixture};

    client.send({kAgentMagic, sizeof kAgentMagic});

    CHECK(client.is_closed_by_server());
}

TEST_CASE("a handler may destroy the server that hands over to it") {
    StoreServerOptions options;
    StoreFixture* target = nullptr;
    options.on_agent = [&](boost::asio::ip::tcp::socket, const std::string&) {
        target->server.reset();
    };
    StoreFixture fixture{options};
    target = &fixture;
    RawClient client{fixture};

    client.send({kAgentMagic, sizeof kAgentMagic});

    CHECK(fixture.run_until([&] { return fixture.server == nullptr; }));
}

TEST_CASE("an endpoint for agents only turns the store's clients away") {
    StoreServerOptions options;
    options.serve_store = false;
    options.on_agent = [](boost::asio::ip::tcp::socket, const std::string&) {};
    StoreFixture fixture{options};
    RawClient client{fixture};

    client.greet();

    CHECK(client.is_closed_by_server());
}

TEST_CASE("an HTTP request gets a short answer that says what this is") {
    for (const char* method : {"GET", "HEAD", "POST", "OPTIONS"}) {
        StoreFixture fixture;
        RawClient client{fixture};

        const std::string answer =
            client.ask(std::string{method} + " / HTTP/1.1\r\nHost: x\r\n\r\n", 1'000);

        CHECK(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"));
        CHECK(answer.find("TCPStore") != std::string::npos);
    }
}

TEST_CASE("an HTTP request is handed over where somebody wants it however it is cut") {
    StoreServerOptions options;
    std::string first;
    options.on_http = [&](boost::asio::ip::tcp::socket, std::string bytes) {
        first = std::move(bytes);
    };
    StoreFixture fixture{options};
    RawClient client{fixture};

    client.send("G");
    fixture.run_ready();
    CHECK(first.empty());
    client.send("ET /metrics");

    CHECK(fixture.run_until([&] { return first == "GET /metrics"; }));
}

TEST_CASE("greetings of other protocols are closed at once with a logged reason") {
    for (const std::string& greeting :
         {from_hex("16 03 01 02 00 01"),
          std::string{"SSH-2.0-OpenSSH_9.2\r\n"},
          std::string{"\n"},
          std::string{"GOT"}}) {
        StoreFixture fixture;
        RawClient client{fixture};

        client.send(greeting);

        CHECK(client.is_closed_by_server());
        CHECK(fixture.log.has("neither a store's client nor an agent"));
        CHECK(fixture.counters().closed_handshake == 1);
        CHECK(fixture.counters().unvalidated == 0);
    }
}

TEST_SUITE_END();

TEST_SUITE_BEGIN("rendezvous/store_server life");

TEST_CASE("a port that is in use is an error that names it") {
    StoreFixture fixture;
    StoreServerOptions options;
    options.addresses = {"127.0.0.1"};
    options.port = fixture.server->port();

    const auto second = StoreServer::listen(fixture.io_context, options, fixture.log);

    REQUIRE_FALSE(second);
    CHECK(second.error().code == Errc::refused);
    CHECK(
        second.error().context.find(fmt::format("127.0.0.1:{}", options.port)) != std::string::npos
    );
    CHECK(second.error().context.find("Address already in use") != std::string::npos);
}

TEST_CASE("an address that is no number is an error") {
    boost::asio::io_context io_context;
    NullLog log;
    StoreServerOptions options;
    options.addresses = {"localhost"};

    const auto server = StoreServer::listen(io_context, options, log);

    REQUIRE_FALSE(server);
    CHECK(server.error().code == Errc::invalid_argument);
}

TEST_CASE("a server that is destroyed closes its clients and frees its port") {
    StoreFixture fixture;
    RawClient client{fixture};
    client.greet();
    client.send(bytes_of(WaitRequest{{"/k"}}));
    fixture.run_ready();
    StoreServerOptions options;
    options.addresses = {"127.0.0.1"};
    options.port = fixture.server->port();

    fixture.server.reset();

    CHECK(client.is_closed_by_server());
    CHECK(StoreServer::listen(fixture.io_context, options, fixture.log));
}

TEST_CASE("servers in one process don't share keys") {
    StoreFixture first;
    StoreFixture second;
    RawClient to_first{first};
    RawClient to_second{second};
    to_first.greet();
    to_second.greet();

    to_first.ask(bytes_of(AddRequest{"/n", 5}), 8);

    CHECK(to_second.ask(bytes_of(NumKeysRequest{}), 8) == from_hex("0000000000000000"));
}

TEST_CASE("without addresses both families are served") {
    StoreServerOptions options;
    options.addresses = {"::"};  // replaced below: the fixture would take loopback
    boost::asio::io_context io_context;
    NullLog log;
    options.addresses.clear();
    auto server = StoreServer::listen(io_context, options, log);
    REQUIRE(server);
    boost::asio::ip::tcp::socket socket{io_context};
    boost::system::error_code error;

    socket.connect({boost::asio::ip::address_v4::loopback(), (*server)->port().value()}, error);

    CHECK_FALSE(error);
    CHECK(((*server)->address() == "[::]" || (*server)->address() == "0.0.0.0"));
}

TEST_CASE("what a torchrun left goes when its last connection has been over for a while") {
    StoreServerOptions options;
    options.kv_limits.foreign_run_timeout = std::chrono::milliseconds{30};
    StoreFixture fixture{options};
    RawClient staying{fixture};
    staying.greet();
    {
        RawClient agent{fixture};
        agent.greet();
        agent.ask(bytes_of(CompareSetRequest{"/torch.rendezvous.job", "", "s"}), 9);
        agent.send(bytes_of(SetRequest{"/kept", ""}));
    }

    CHECK(fixture.run_until([&] { return fixture.server->kv_counters().expired_keys == 1; }));
    CHECK(staying.ask(bytes_of(NumKeysRequest{}), 8) == from_hex("0100000000000000"));
}

TEST_CASE("stop closes those who wait and writes the replies that are due") {
    StoreFixture fixture;
    RawClient reading{fixture, 4'096};
    RawClient waiting{fixture};
    reading.greet();
    waiting.greet();
    const std::string value = test::filled(limits::kValueBytesMax, 'v');
    reading.send(bytes_of(SetRequest{"/k", value}));
    reading.send(bytes_of(GetRequest{"/k"}));
    waiting.send(bytes_of(WaitRequest{{"/missing"}}));
    REQUIRE(fixture.run_until([&] {
        return fixture.counters().unsent_bytes > 0 &&
               fixture.server->kv_counters().waiting_clients == 1;
    }));
    bool is_done = false;

    fixture.server->stop([&] { is_done = true; });

    CHECK_FALSE(is_done);
    CHECK(waiting.is_closed_by_server());
    CHECK(reading.receive(8 + value.size()).substr(8) == value);
    CHECK(fixture.run_until([&] { return is_done; }));
    CHECK(fixture.counters().connections == 0);
}

TEST_CASE("stop isn't held up for ever by a client that doesn't read") {
    StoreServerOptions options;
    options.deadlines.stop = std::chrono::milliseconds{20};
    StoreFixture fixture{options};
    RawClient client{fixture, 4'096};
    client.greet();
    client.send(bytes_of(SetRequest{"/k", test::filled(8 * limits::kMiB, 'v')}));
    client.send(bytes_of(GetRequest{"/k"}));
    REQUIRE(fixture.run_until([&] { return fixture.counters().unsent_bytes > 0; }));
    bool is_done = false;

    fixture.server->stop([&] { is_done = true; });

    CHECK(fixture.run_until([&] { return is_done; }));
}

TEST_CASE("stop of an idle server is over at once and the loop has nothing left to do") {
    StoreFixture fixture;
    bool is_done = false;

    fixture.server->stop([&] { is_done = true; });
    fixture.io_context.run();

    CHECK(is_done);
}

TEST_CASE("every descriptor of a server and its connections is closed in programs it starts") {
    StoreFixture fixture;
    std::vector<RawClient> clients;
    for (int i = 0; i < 3; ++i) {
        clients.emplace_back(fixture);
        clients.back().greet();
    }
    REQUIRE(fixture.run_until([&] { return fixture.counters().connections == 3; }));

    DIR* folder = ::opendir("/proc/self/fd");
    REQUIRE(folder != nullptr);
    int checked = 0;
    while (const dirent* entry = ::readdir(folder)) {
        const int fd = std::atoi(entry->d_name);
        if (fd > 2 && fd != ::dirfd(folder)) {
            int type = 0;
            socklen_t size = sizeof type;
            if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0) {
                CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
                ++checked;
            }
        }
    }
    ::closedir(folder);
    CHECK(checked >= 7);  // a listener, three accepted, our three
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
