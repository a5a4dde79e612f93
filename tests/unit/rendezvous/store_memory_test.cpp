// What bad input may cost a server in memory, and that it comes back, while four healthy clients
// are served: measured on the heap of this program, in which the server runs.
#include "proto/limits.h"
#include "tests/support/heap_counter.h"
#include "tests/support/store_fixture.h"
#include "tests/support/store_samples.h"

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace ddprun {
namespace {

constexpr std::size_t kMany = 500;             // connections of an attack by number
constexpr std::size_t kKeptBytes = 16 * 1024;  // log lines and small tables

std::string bytes_of(const StoreRequest& request) {
    std::string bytes;
    encode_request(request, bytes);
    return bytes;
}

struct Attack {
    const char* name;
    std::string bytes;  ///< what each connection sends and then leaves it at that
    std::size_t connections = 1;
    bool in_pieces = false;  ///< byte by byte
    std::size_t growth_max = 8 * limits::kMiB;
    /// Holds when the server has taken in what it will.
    std::function<bool(StoreFixture&)> reached = [](StoreFixture&) { return true; };
};

Attack wait_on_many_keys(const std::string& hello) {
    constexpr int kKeys = 100'000;
    std::vector<std::string> names;
    WaitRequest request;
    for (int i = 0; i < kKeys; ++i) {
        names.push_back(fmt::format("/key/{}", i));
    }
    request.keys.assign(names.begin(), names.end());
    Attack attack{"a wait on 100000 keys", hello + bytes_of(request)};
    attack.growth_max = 24 * limits::kMiB;
    attack.reached = [](StoreFixture& fixture) {
        return fixture.server->kv_counters().registrations == kKeys;
    };
    return attack;
}

Attack never_reads(const std::string& hello) {
    std::string requests = hello;
    for (int i = 0; i < 100'000; ++i) {
        requests += bytes_of(GetRequest{"/value"});
    }
    return Attack{"a client that never reads", std::move(requests)};
}

Attack vanish_while_waiting(const std::string& hello) {
    Attack attack{
        "clients that vanish while they wait", hello + bytes_of(WaitRequest{{"/never"}}), kMany};
    attack.reached = [](StoreFixture& fixture) {
        return fixture.server->kv_counters().waiting_clients == kMany;
    };
    return attack;
}

Attack many_connections() {
    Attack attack{"a flood of silent connections", "", kMany};
    attack.reached = [](StoreFixture& fixture) { return fixture.counters().unvalidated == kMany; };
    return attack;
}

Attack flood_of_requests(const std::string& hello) {
    std::string requests = hello;
    for (int i = 0; i < 20'000; ++i) {
        requests += bytes_of(SetRequest{"/flood", "value"});
    }
    for (int i = 0; i < 200'000; ++i) {
        requests += bytes_of(WaitRequest{});  // nine bytes in, one out
    }
    return Attack{"a flood of requests", std::move(requests)};
}

std::vector<Attack> attacks() {
    const std::string hello = bytes_of(ValidateRequest{kStoreMagic});
    const std::string key = bytes_of(GetRequest{"/k"}).substr(1);
    const std::string cut = bytes_of(SetRequest{"/k", std::string(limits::kMiB, 'v')});
    std::vector<Attack> all{
        {"one byte and silence", std::string(1, '\0')},
        {"a set cut in the middle", hello + cut.substr(0, cut.size() / 2)},
        {"a value one byte at a time",
         hello + bytes_of(SetRequest{"/k", std::string(6'000, 'v')}),
         1,
         true},
        {"an HTTP request", "GET / HTTP/1.1\r\nHost: store\r\n\r\n"},
        {"a TLS greeting", from_hex("16 03 01 02 00 01 00 01 fc 03 03")},
        {"an SSH greeting", "SSH-2.0-OpenSSH_9.2\r\n"},
        {"a wrong magic", bytes_of(ValidateRequest{1})},
        {"a wrong magic in pieces", bytes_of(ValidateRequest{1}), 1, true},
        {"64 zero bytes", std::string(64, '\0')},
        {"131073 keys", hello + from_hex("06 0100020000000000")},
        {"a length of 2^31", hello + "\x01" + key + from_hex("0000008000000000")},
        {"a length of 2^40", hello + "\x01" + key + from_hex("0000000000010000")},
        {"a length of 2^63", hello + "\x01" + key + from_hex("0000000000000080")},
    };
    all.push_back(wait_on_many_keys(hello));
    all.push_back(never_reads(hello));
    all.push_back(vanish_while_waiting(hello));
    all.push_back(many_connections());
    all.push_back(flood_of_requests(hello));
    return all;
}

/// Sends until the server takes no more, for as long as it moves.
void press(StoreFixture& fixture, RawClient& client, std::string_view bytes, bool in_pieces) {
    constexpr int kIdleTurnsMax = 50;
    for (int idle = 0; !bytes.empty() && idle < kIdleTurnsMax; ++idle) {
        const std::size_t count = client.send_some(in_pieces ? bytes.substr(0, 1) : bytes);
        bytes.remove_prefix(count);
        fixture.run_ready();
        idle = count > 0 ? 0 : idle;
    }
}

bool is_served(RawClient& client) {
    return client.ask(bytes_of(PingRequest{9}), 4) == from_hex("09000000");
}

std::vector<RawClient> healthy_clients(StoreFixture& fixture) {
    constexpr int kHealthy = 4;
    std::vector<RawClient> clients;
    for (int i = 0; i < kHealthy; ++i) {
        clients.emplace_back(fixture).greet();
    }
    clients.front().send(bytes_of(SetRequest{"/value", std::string(100, 'v')}));
    clients.front().send(bytes_of(SetRequest{"/flood", "value"}));
    clients.front().send(bytes_of(SetRequest{"/k", std::string(6'000, 'v')}));
    return clients;
}

void suffer(const Attack& attack) {
    const std::string name = attack.name;
    CAPTURE(name);
    StoreFixture fixture;
    std::vector<RawClient> healthy = healthy_clients(fixture);
    REQUIRE(is_served(healthy.front()));
    const std::size_t before = heap_bytes();
    reset_heap_peak();
    {
        std::vector<RawClient> offenders;
        offenders.reserve(attack.connections);
        for (std::size_t i = 0; i < attack.connections; ++i) {
            offenders.emplace_back(fixture, 4'096);
            press(fixture, offenders.back(), attack.bytes, attack.in_pieces);
        }
        CHECK(fixture.run_until([&] { return attack.reached(fixture); }));
        for (RawClient& client : healthy) {
            CHECK(is_served(client));
        }
    }
    CHECK(heap_peak_bytes() - before < attack.growth_max);

    CHECK(fixture.run_until([&] { return fixture.counters().connections == healthy.size(); }));
    fixture.run_ready();
    CHECK(heap_bytes() < before + kKeptBytes);
    CHECK(fixture.counters().turn_requests_most <= limits::kRequestsPerTurnMax);
    CHECK(fixture.counters().turn_bytes_longest <= limits::kReadChunkBytes);
}

TEST_SUITE_BEGIN("rendezvous/store_server memory");

TEST_CASE("bad input costs bounded memory that comes back and healthy clients are served") {
    for (const Attack& attack : attacks()) {
        suffer(attack);
    }
}

TEST_CASE("an idle connection costs less than 768 bytes and gives it back") {
    StoreFixture fixture;
    std::vector<RawClient> clients;
    clients.reserve(kMany);
    for (std::size_t i = 0; i < kMany; ++i) {  // tables grow once
        clients.emplace_back(fixture).greet();
    }
    const std::size_t full = heap_bytes();

    clients.clear();
    REQUIRE(fixture.run_until([&] { return fixture.counters().connections == 0; }));
    fixture.run_ready();

    CHECK((full - heap_bytes()) / kMany < 768);
    CHECK((full - heap_bytes()) / kMany > 100);
}

TEST_CASE("a client that stays keeps nothing of its long requests and replies") {
    constexpr int kKeys = 100'000;
    constexpr int kValues = 4;
    std::vector<std::string> names;
    for (int i = 0; i < kKeys; ++i) {
        names.push_back(fmt::format("/key/{}", i));
    }
    const std::vector<std::string_view> all{names.begin(), names.end()};
    std::string values;
    MultiSetRequest set;
    const std::string long_value(limits::kMiB, 'v');
    for (int i = 0; i < kValues; ++i) {
        set.pairs.emplace_back(names[static_cast<std::size_t>(i)], long_value);
    }
    encode_request(set, values);
    std::string remove;
    for (int i = 0; i < kValues; ++i) {
        remove += bytes_of(DeleteKeyRequest{names[static_cast<std::size_t>(i)]});
    }

    constexpr std::size_t kShared = 3'000;  // values that are long enough to be shared
    const std::string shared_value(4 * limits::kKiB, 's');
    const std::vector<std::string_view> shared(kShared, "/shared");
    const std::string set_shared = bytes_of(SetRequest{"/shared", shared_value});

    struct Long {
        const char* name;
        std::string bytes;
        std::size_t reply_bytes;
    };

    const std::vector<Long> requests{
        {"a request of 4 MiB", values + remove, 8 * kValues},
        {"4 MiB and the begin of another request",
         values + remove + values.substr(0, 100),
         8 * kValues},
        {"a check of many keys", bytes_of(CheckRequest{all}), 1},
        {"a reply with many values", bytes_of(MultiGetRequest{all}), 8 * kKeys},
        {"a reply with a value many times",
         set_shared + bytes_of(MultiGetRequest{shared}) + bytes_of(DeleteKeyRequest{"/shared"}),
         kShared * (8 + shared_value.size()) + 8},
        {"a wait for many keys, taken back",
         bytes_of(WaitRequest{all}) + bytes_of(CancelWaitRequest{}),
         1},
    };
    for (const Long& request : requests) {
        CAPTURE(request.name);
        StoreFixture fixture;
        RawClient client{fixture};
        client.greet();
        const std::size_t before = heap_bytes();

        {
            const std::string reply = client.ask(request.bytes, request.reply_bytes);
            CHECK(reply.size() == request.reply_bytes);
        }
        fixture.run_ready();

        CHECK(heap_bytes() < before + kKeptBytes);
    }
}

TEST_CASE("keys and values cost less than twice their bytes") {
    StoreFixture fixture;
    RawClient client{fixture};
    client.greet();
    std::string requests;
    for (int i = 0; i < 10'000; ++i) {
        requests +=
            bytes_of(SetRequest{fmt::format("/job/group/key/{}", i), std::string(128, 'v')});
    }
    const std::size_t before = heap_bytes();

    client.send(requests);
    REQUIRE(is_served(client));

    CHECK(heap_bytes() - before < 2 * fixture.server->kv_counters().bytes);
}

TEST_CASE("a small key costs less than 56 bytes besides its own and its value's") {
    constexpr int kKeys = 100'000;
    StoreFixture fixture;
    RawClient client{fixture};
    client.greet();
    std::string requests;
    for (int i = 0; i < kKeys; ++i) {
        requests += bytes_of(SetRequest{fmt::format("/key/{}", i), fmt::format("{}", i)});
    }
    const std::size_t before = heap_bytes();

    client.send(requests);
    REQUIRE(is_served(client));

    CHECK(heap_bytes() - before < fixture.server->kv_counters().bytes + 56 * kKeys);
}

TEST_CASE("a list of keys costs its bytes once for all who ask and goes with them") {
    constexpr std::size_t kClients = 8;
    constexpr std::size_t kKeys = 4'000;  // a list that no socket takes whole
    StoreFixture fixture;
    RawClient client{fixture};
    client.greet();
    for (std::size_t i = 0; i < kKeys; ++i) {
        const std::string key =
            fmt::format("/{}/{}", i, std::string(limits::kKeyBytesMax / 2, 'k'));
        client.send(bytes_of(SetRequest{key, ""}));
    }
    REQUIRE(is_served(client));
    const std::size_t listed = kKeys * limits::kKeyBytesMax / 2;
    const std::size_t before = heap_bytes();
    reset_heap_peak();
    {
        std::vector<RawClient> readers;
        readers.reserve(kClients);
        for (std::size_t i = 0; i < kClients; ++i) {
            readers.emplace_back(fixture, 4'096).greet();
            readers.back().send(bytes_of(ListKeysRequest{}));
        }
        REQUIRE(is_served(client));
        CHECK(heap_bytes() - before > listed);
    }
    CHECK(heap_peak_bytes() - before < 3 * listed);  // once more while it is put together

    CHECK(fixture.run_until([&] { return fixture.counters().connections == 1; }));
    fixture.run_ready();
    CHECK(heap_bytes() < before + kKeptBytes);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
