// What a hostile or broken peer may do to a server: each offender is closed, alone, with a logged
// reason, and what it took comes back. Deadlines are shortened.
#include "proto/limits.h"
#include "tests/support/filled.h"
#include "tests/support/store_fixture.h"
#include "tests/support/store_samples.h"

#include <doctest/doctest.h>

#include <sys/resource.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace ddprun {
namespace {

using std::chrono::milliseconds;

std::string bytes_of(const StoreRequest& request) {
    std::string bytes;
    encode_request(request, bytes);
    return bytes;
}

/// Deadlines of `milliseconds` for what is named, long ones for the rest.
StoreServerOptions with_handshake(milliseconds length) {
    StoreServerOptions options;
    options.deadlines.handshake = length;
    return options;
}

StoreServerOptions with_progress(milliseconds length) {
    StoreServerOptions options;
    options.deadlines.progress = length;
    return options;
}

/// A healthy client that is served whatever the others do.
bool is_served(RawClient& client) {
    return client.ask(bytes_of(PingRequest{9}), 4) == from_hex("09000000");
}

struct Offence {
    const char* name;
    std::string bytes;
    const char* reason;
};

std::vector<Offence> offences() {
    const std::string hello = bytes_of(ValidateRequest{kStoreMagic});
    const std::string key = bytes_of(GetRequest{"/k"}).substr(1);
    return {
        {"wrong magic", bytes_of(ValidateRequest{0xDEADBEEF}), "wrong magic"},
        {"64 zero bytes", std::string(64, '\0'), "wrong magic"},
        {"unknown opcode", hello + "\x63", "unknown opcode"},
        {"key of 2^31", hello + from_hex("03 0000008000000000"), "key is longer"},
        {"key of 2^40", hello + from_hex("03 0000000000010000"), "key is longer"},
        {"key of 2^63", hello + from_hex("03 0000000000000080"), "key is longer"},
        {"value of 2^31", hello + "\x01" + key + from_hex("0000008000000000"), "value is longer"},
        {"value of 2^40", hello + "\x01" + key + from_hex("0000000000010000"), "value is longer"},
        {"value of 2^63", hello + "\x01" + key + from_hex("0000000000000080"), "value is longer"},
        {"131073 keys", hello + from_hex("06 0100020000000000"), "more keys"},
        {"add to text",
         hello + bytes_of(SetRequest{"/k", "text"}) + bytes_of(AddRequest{"/k", 1}),
         "no number"},
        {"a second wait",
         hello + bytes_of(WaitRequest{{"/a"}}) + bytes_of(WaitRequest{{"/b"}}),
         "another wait"},
    };
}

TEST_SUITE_BEGIN("rendezvous/store_server bad input");

TEST_CASE("an offence closes its connection with a logged reason and harms nobody else") {
    for (const Offence& offence : offences()) {
        CAPTURE(offence.name);
        StoreFixture fixture;
        RawClient healthy{fixture};
        healthy.greet();
        RawClient offender{fixture};

        offender.send(offence.bytes);

        CHECK(offender.is_closed_by_server());
        CHECK(fixture.log.has(offence.reason));
        CHECK(is_served(healthy));
        CHECK(fixture.counters().connections == 1);
        CHECK(fixture.counters().closed_handshake + fixture.counters().closed_offence == 1);
        CHECK(fixture.server->kv_counters().waiting_clients == 0);
    }
}

TEST_CASE("a flood of offences costs few log lines, and the rest is counted though none follows") {
    StoreFixture fixture;
    const std::size_t rest = 15;
    for (std::size_t i = 0; i < limits::kClosedLinesMax + rest; ++i) {
        RawClient offender{fixture};
        offender.send("\n");
        REQUIRE(offender.is_closed_by_server());
    }

    CHECK(fixture.run_until([&] { return fixture.log.has("15 more were closed, without a line"); })
    );
}

TEST_CASE("a store that ends tells the rest of a flood of offences at once") {
    StoreFixture fixture;
    for (std::size_t i = 0; i < limits::kClosedLinesMax + 3; ++i) {
        RawClient offender{fixture};
        offender.send("\n");
        REQUIRE(offender.is_closed_by_server());
    }

    fixture.server.reset();

    CHECK(fixture.log.has("3 more were closed, without a line"));
}

TEST_CASE("an offence in pieces of one byte closes its connection all the same") {
    for (const Offence& offence : offences()) {
        CAPTURE(offence.name);
        StoreFixture fixture;
        RawClient offender{fixture};

        for (const char byte : offence.bytes) {
            offender.send_some({&byte, 1});
            fixture.run_ready();
        }

        CHECK(offender.is_closed_by_server());
        CHECK(fixture.counters().partial_bytes == 0);
    }
}

TEST_CASE("a wrong magic ends its connection with its first wrong byte, wherever that is") {
    const std::string hello = bytes_of(ValidateRequest{kStoreMagic});
    for (std::size_t right = 1; right < hello.size(); ++right) {
        for (const bool in_pieces : {false, true}) {
            CAPTURE(right);
            CAPTURE(in_pieces);
            StoreFixture fixture;
            RawClient offender{fixture};
            if (in_pieces) {
                offender.send(hello.substr(0, right));
                CHECK(offender.has_silence());
            }

            const char wrong = static_cast<char>(hello[right] ^ 1);
            offender.send((in_pieces ? "" : hello.substr(0, right)) + wrong);

            CHECK(offender.is_closed_by_server());
            CHECK(fixture.log.has("wrong magic"));
            CHECK(fixture.counters().closed_handshake == 1);
            CHECK(fixture.counters().unvalidated == 0);
        }
    }
}

TEST_CASE("what comes before VALIDATE isn't applied") {
    StoreFixture fixture;
    RawClient offender{fixture};

    offender.send(bytes_of(SetRequest{"/k", "v"}));

    CHECK(offender.is_closed_by_server());
    CHECK(fixture.server->kv_counters().keys == 0);
}

TEST_CASE("a peer that says nothing is closed after the handshake's deadline") {
    StoreFixture fixture{with_handshake(milliseconds{20})};
    RawClient offender{fixture};

    CHECK(offender.is_closed_by_server());
    CHECK(fixture.log.has("didn't say what it is in time"));
    CHECK(fixture.counters().closed_handshake == 1);
}

TEST_CASE("a peer that says one byte and then nothing is closed after the handshake's deadline") {
    for (const char byte : {'\0', 'G'}) {
        StoreFixture fixture{with_handshake(milliseconds{20})};
        RawClient offender{fixture};

        offender.send({&byte, 1});

        CHECK(offender.is_closed_by_server());
        CHECK(fixture.counters().closed_handshake == 1);
    }
}

TEST_CASE("a peer that trickles its greeting can't stretch the handshake's deadline") {
    StoreFixture fixture{with_handshake(milliseconds{50})};
    RawClient offender{fixture};
    const std::string hello = bytes_of(ValidateRequest{kStoreMagic});
    for (std::size_t i = 0; i + 1 < hello.size(); ++i) {
        offender.send(hello.substr(i, 1));
        fixture.run_ready();
    }

    CHECK(offender.is_closed_by_server());
}

TEST_CASE("a client that is idle after its greeting isn't closed") {
    StoreServerOptions options;
    options.deadlines = {milliseconds{20}, milliseconds{20}, milliseconds{20}, milliseconds{20}};
    StoreFixture fixture{options};
    RawClient client{fixture};
    client.greet();
    RawClient waiting{fixture};
    waiting.greet();
    waiting.send(bytes_of(WaitRequest{{"/k"}}));
    fixture.run_ready();
    RawClient silent{fixture};  // its end shows that more than the deadlines has passed

    CHECK(silent.is_closed_by_server());
    CHECK(is_served(client));
    client.send(bytes_of(SetRequest{"/k", ""}));
    CHECK(waiting.receive(1) == from_hex("00"));
}

TEST_CASE("a set that is cut in the middle is closed after the progress deadline and not applied") {
    StoreFixture fixture{with_progress(milliseconds{20})};
    RawClient offender{fixture};
    offender.greet();
    const std::string request = bytes_of(SetRequest{"/k", std::string(100'000, 'v')});

    offender.send(std::string_view{request}.substr(0, 50'000));

    CHECK(offender.is_closed_by_server());
    CHECK(fixture.log.has("no progress"));
    CHECK(fixture.counters().closed_stalled == 1);
    CHECK(fixture.counters().partial_bytes == 0);
    CHECK(fixture.server->kv_counters().keys == 0);
}

TEST_CASE("a slow client whose bytes keep coming is served though it takes longer than the deadline"
) {
    StoreFixture fixture{with_progress(milliseconds{500})};
    RawClient client{fixture};
    client.greet();
    const std::string request = bytes_of(SetRequest{"/k", "0123456789"}) + bytes_of(PingRequest{3});
    const auto begin = std::chrono::steady_clock::now();
    for (const char byte : request) {
        client.send({&byte, 1});
        const auto next = std::chrono::steady_clock::now() + milliseconds{25};
        fixture.run_until([&] { return std::chrono::steady_clock::now() >= next; });
    }

    CHECK(client.receive(4) == from_hex("03000000"));
    CHECK(std::chrono::steady_clock::now() - begin > milliseconds{500});
    CHECK(fixture.counters().closed_stalled == 0);
}

TEST_CASE(
    "a request that takes longer as a whole than its deadline is closed though bytes keep coming"
) {
    StoreServerOptions options;
    options.deadlines.request = milliseconds{60};
    StoreFixture fixture{options};
    RawClient client{fixture};
    client.greet();
    const std::string request = bytes_of(SetRequest{"/k", std::string(10'000, 'v')});
    std::size_t sent = 0;

    const bool is_closed = fixture.run_until([&] {
        sent += client.send_some(std::string_view{request}.substr(sent, 1));
        return fixture.counters().connections == 0;
    });

    CHECK(is_closed);
    CHECK(sent < request.size());
    CHECK(fixture.log.has("too long as a whole"));
}

TEST_CASE("a client that never reads is bounded and closed after the progress deadline") {
    StoreServerOptions options = with_progress(milliseconds{50});
    options.unsent_bytes_max = limits::kMiB;
    StoreFixture fixture{options};
    RawClient offender{fixture, 4'096};
    offender.greet();
    const std::string value = test::filled(limits::kValueBytesMax, 'v');
    offender.send(bytes_of(SetRequest{"/k", value}));
    std::string requests;
    for (int i = 0; i < 10'000; ++i) {
        requests += bytes_of(GetRequest{"/k"});
    }
    std::size_t unsent_most = 0;
    std::size_t sent = 0;

    const bool is_closed = fixture.run_until([&] {
        sent += offender.send_some(std::string_view{requests}.substr(sent));
        unsent_most = std::max(unsent_most, fixture.counters().unsent_bytes);
        return fixture.counters().connections == 0;
    });

    CHECK(is_closed);
    CHECK(fixture.counters().closed_stalled == 1);
    CHECK(unsent_most > 0);
    CHECK(unsent_most < options.unsent_bytes_max + value.size() + 8);
    CHECK(fixture.counters().unsent_bytes == 0);
    CHECK(fixture.counters().partial_bytes == 0);
}

TEST_CASE("a client that reads a long reply slowly is served though it takes many deadlines") {
    constexpr std::size_t kPieceBytes = 2'048;
    constexpr milliseconds kPause{20};
    const milliseconds deadline{400};
    StoreFixture fixture{with_progress(deadline)};
    RawClient client{fixture, 4'096};
    client.greet();
    const std::size_t due = 8 + limits::kValueBytesMax;
    client.send(bytes_of(SetRequest{"/k", test::filled(limits::kValueBytesMax, 'v')}));
    client.send(bytes_of(GetRequest{"/k"}));
    REQUIRE(fixture.run_until([&] { return fixture.counters().unsent_bytes > 0; }));

    std::size_t taken = 0;
    const auto end = std::chrono::steady_clock::now() + 3 * deadline;
    while (std::chrono::steady_clock::now() < end) {
        taken += client.receive(kPieceBytes).size();
        const auto next = std::chrono::steady_clock::now() + kPause;
        fixture.run_until([&] { return std::chrono::steady_clock::now() >= next; });
    }

    CHECK(fixture.counters().closed_stalled == 0);
    CHECK(client.receive(due - taken).size() == due - taken);
    CHECK(is_served(client));
}

TEST_CASE("a client that stops in the middle of a reply is closed after the progress deadline") {
    StoreFixture fixture{with_progress(milliseconds{100})};
    RawClient client{fixture, 4'096};
    client.greet();
    client.send(bytes_of(SetRequest{"/k", test::filled(limits::kValueBytesMax, 'v')}));
    client.send(bytes_of(GetRequest{"/k"}));
    CHECK(client.receive(limits::kMiB).size() == limits::kMiB);

    CHECK(fixture.run_until([&] { return fixture.counters().closed_stalled == 1; }));

    CHECK(fixture.counters().unsent_bytes == 0);
    CHECK(fixture.log.has("no progress"));
}

TEST_CASE("one client's flood is handled in turns of a bounded number of bytes") {
    StoreFixture fixture;
    RawClient flooding{fixture};
    flooding.greet();
    std::string requests;
    for (int i = 0; i < 100'000; ++i) {
        requests += bytes_of(SetRequest{"/k", "value"});
    }

    CHECK(flooding.send(requests));

    CHECK(fixture.counters().turn_bytes_longest <= limits::kReadChunkBytes);
    CHECK(flooding.ask(bytes_of(PingRequest{1}), 4) == from_hex("01000000"));
}

TEST_CASE("long replies to one client are made in turns of a bounded number of bytes") {
    constexpr int kKeys = 5'000;
    constexpr int kRequests = 100;
    StoreFixture fixture;
    RawClient asking{fixture};
    asking.greet();
    std::string sets;
    for (int i = 0; i < kKeys; ++i) {
        sets += bytes_of(SetRequest{fmt::format("/key/{:06}", i), "v"});
    }
    REQUIRE(asking.send(sets));
    const std::size_t list_bytes = 8 + kKeys * (8 + std::string_view{"/key/000000"}.size());
    std::string requests;
    for (int i = 0; i < kRequests; ++i) {
        requests += bytes_of(ListKeysRequest{});
    }

    CHECK(asking.ask(requests, kRequests * list_bytes).size() == kRequests * list_bytes);

    CHECK(fixture.counters().turn_replies_longest < limits::kReplyBytesPerTurnMax + list_bytes);
    CHECK(asking.ask(bytes_of(PingRequest{1}), 4) == from_hex("01000000"));
}

TEST_CASE("a half-close behind requests with long replies loses none, however they are cut") {
    const std::string value(600 * limits::kKiB, 'v');
    for (int key_bytes = 1; key_bytes <= 40; ++key_bytes) {
        CAPTURE(key_bytes);
        StoreFixture fixture;
        RawClient client{fixture};
        client.greet();
        const std::string key(static_cast<std::size_t>(key_bytes), 'k');
        REQUIRE(client.send(bytes_of(SetRequest{key, value})));
        const std::string get = bytes_of(GetRequest{key});
        const std::size_t count = 320 / get.size();
        std::string requests;
        for (std::size_t i = 0; i < count; ++i) {
            requests += get;
        }

        client.send_some(requests);
        client.close_sending();

        const std::size_t due = count * (8 + value.size());
        CHECK(client.receive(due).size() == due);
    }
}

TEST_CASE("a wait on 100000 keys is served and what it takes comes back") {
    StoreFixture fixture;
    std::vector<std::string> names;
    WaitRequest request;
    for (int i = 0; i < 100'000; ++i) {
        names.push_back(fmt::format("/key/{}", i));
    }
    request.keys.assign(names.begin(), names.end());
    {
        RawClient waiting{fixture};
        waiting.greet();
        waiting.send(bytes_of(request));
        CHECK(fixture.run_until([&] {
            return fixture.server->kv_counters().registrations == names.size();
        }));
        RawClient healthy{fixture};
        healthy.greet();
        CHECK(is_served(healthy));
    }

    CHECK(fixture.run_until([&] { return fixture.server->kv_counters().registrations == 0; }));
    CHECK(fixture.counters().partial_bytes == 0);
}

TEST_CASE("connections beyond the bound are turned away and room comes back") {
    StoreServerOptions options;
    options.connections_max = 2;
    StoreFixture fixture{options};
    RawClient first{fixture};
    first.greet();
    std::optional<RawClient> second{fixture};
    second->greet();
    REQUIRE(fixture.run_until([&] { return fixture.counters().connections == 2; }));
    RawClient third{fixture};
    CHECK(third.is_closed_by_server());
    CHECK(fixture.counters().refused_full == 1);

    second.reset();
    REQUIRE(fixture.run_until([&] { return fixture.counters().connections == 1; }));
    RawClient fourth{fixture};
    fourth.greet();

    CHECK(is_served(fourth));
    CHECK(is_served(first));
}

TEST_CASE("silent connections beyond their bound are turned away and clients stay") {
    StoreServerOptions options;
    options.unvalidated_max = 2;
    StoreFixture fixture{options};
    RawClient healthy{fixture};
    healthy.greet();
    REQUIRE(is_served(healthy));
    std::vector<RawClient> silent;
    for (int i = 0; i < 5; ++i) {
        silent.emplace_back(fixture);
    }

    CHECK(fixture.run_until([&] { return fixture.counters().refused_full == 3; }));
    CHECK(fixture.counters().unvalidated == 2);
    CHECK(is_served(healthy));
}

TEST_CASE("a flood that takes the last descriptor is turned away and those who are there are served"
) {
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    StoreFixture fixture;
    RawClient healthy{fixture};
    healthy.greet();
    REQUIRE(is_served(healthy));
    std::vector<RawClient> flood;
    for (int i = 0; i < 20; ++i) {
        flood.emplace_back(fixture);
    }
    rlimit tight = before;
    tight.rlim_cur = 3;  // every new descriptor is beyond it
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &tight) == 0);

    const bool is_turned_away =
        fixture.run_until([&] { return fixture.counters().refused_full >= 1; });
    const bool is_still_served = is_served(healthy);
    ::setrlimit(RLIMIT_NOFILE, &before);

    CHECK(is_turned_away);
    CHECK(is_still_served);
    CHECK(fixture.log.has("no descriptor is left"));
}

TEST_CASE("clients that come and go leave nothing behind") {
    StoreFixture fixture;
    for (int round = 0; round < 20; ++round) {
        std::vector<RawClient> clients;
        for (int i = 0; i < 50; ++i) {
            clients.emplace_back(fixture);
            clients.back().greet();
            clients.back().send(bytes_of(WaitRequest{{"/k"}}));
        }
    }

    CHECK(fixture.run_until([&] {
        return fixture.counters().accepted == 1'000 && fixture.counters().connections == 0;
    }));
    CHECK(fixture.counters().unvalidated == 0);
    CHECK(fixture.counters().partial_bytes == 0);
    CHECK(fixture.server->kv_counters().registrations == 0);
}

TEST_CASE("good requests before an offence in the same piece get their replies") {
    for (const Offence& offence : offences()) {
        const std::string hello = bytes_of(ValidateRequest{kStoreMagic});
        if (!offence.bytes.starts_with(hello)) {
            continue;  // the offence is the greeting
        }
        CAPTURE(offence.name);
        StoreFixture fixture;
        RawClient offender{fixture};

        offender.send(hello + bytes_of(PingRequest{7}) + offence.bytes.substr(hello.size()));

        CHECK(offender.receive(4) == from_hex("07000000"));
        CHECK(offender.is_closed_by_server());
    }
}

TEST_CASE("the requests that aren't whole have a bound over all clients") {
    StoreServerOptions options;
    options.partial_bytes_max = 256 * limits::kKiB;
    StoreFixture fixture{options};
    const std::string half = bytes_of(SetRequest{"/k", std::string(200 * limits::kKiB, 'v')})
                                 .substr(0, 150 * limits::kKiB);
    RawClient modest{fixture};
    modest.greet();
    modest.send(half.substr(0, 20 * limits::kKiB));
    RawClient first{fixture};
    first.greet();
    first.send(half);
    REQUIRE(fixture.run_until([&] { return fixture.counters().partial_bytes > half.size(); }));
    RawClient second{fixture};
    second.greet();

    second.send(half);

    CHECK(second.is_closed_by_server());
    CHECK(fixture.log.has("too much memory"));
    CHECK(fixture.counters().closed_offence == 1);
    CHECK(fixture.counters().connections == 2);
    CHECK(fixture.counters().partial_bytes <= options.partial_bytes_max);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
