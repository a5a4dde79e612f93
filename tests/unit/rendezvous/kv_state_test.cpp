#include "rendezvous/kv_state.h"

#include "proto/limits.h"
#include "tests/support/filled.h"
#include "tests/support/kv_harness.h"
#include "tests/support/store_samples.h"

#include <doctest/doctest.h>

#include <limits>
#include <string>

namespace ddprun {
namespace {

const std::string kReleased = from_hex("00");
const std::string kCanceled = from_hex("01");

TEST_SUITE_BEGIN("rendezvous/kv_state");

TEST_CASE("the replies are those of PyTorch's own server byte for byte") {
    KvHarness store;

    CHECK(store.ask(1, ValidateRequest{kStoreMagic}).empty());
    CHECK(store.ask(1, PingRequest{42}) == from_hex("2a000000"));
    CHECK(store.ask(1, SetRequest{"/k", "ab"}).empty());
    CHECK(store.ask(1, GetRequest{"/k"}) == from_hex("0200000000000000 6162"));
    CHECK(store.ask(1, CompareSetRequest{"/k", "ab", "cd"}) == from_hex("0200000000000000 6364"));
    CHECK(store.ask(1, CompareSetRequest{"/k", "zz", "ee"}) == from_hex("0200000000000000 6364"));
    CHECK(store.ask(1, CompareSetRequest{"/q", "zz", "ee"}) == from_hex("0200000000000000 7a7a"));
    CHECK(store.ask(1, AddRequest{"/n", -7}) == from_hex("f9ffffffffffffff"));
    CHECK(store.ask(1, CheckRequest{{"/k", "/n"}}) == from_hex("00"));
    CHECK(store.ask(1, CheckRequest{{"/k", "/q"}}) == from_hex("01"));
    CHECK(store.ask(1, WaitRequest{{"/k"}}) == from_hex("00"));
    CHECK(store.ask(1, WaitRequest{}) == from_hex("00"));
    CHECK(store.ask(1, NumKeysRequest{}) == from_hex("0200000000000000"));
    CHECK(store.ask(1, DeleteKeyRequest{"/n"}) == from_hex("0100000000000000"));
    CHECK(store.ask(1, DeleteKeyRequest{"/n"}) == from_hex("0000000000000000"));
    CHECK(store.ask(1, MultiGetRequest{}).empty());
    CHECK(store.ask(1, CancelWaitRequest{}) == from_hex("01"));
    CHECK(store.ask(1, ListKeysRequest{}) == from_hex("0100000000000000 0200000000000000 2f6b"));
    CHECK(store.ask(1, BarrierRequest{"/b", 1}) == from_hex("00"));
    CHECK(store.ask(1, BarrierRequest{"/b", 1}) == from_hex("00"));
}

TEST_CASE("a wrong magic number is refused") {
    KvHarness store;

    CHECK_FALSE(store.send(1, ValidateRequest{0x12345678}).empty());
}

TEST_CASE("get of an absent key is an empty value") {
    KvHarness store;

    CHECK(store.ask(1, GetRequest{"/k"}) == from_hex("0000000000000000"));
    CHECK(
        store.ask(1, MultiGetRequest{{"/k", "/l"}}) == from_hex("0000000000000000 0000000000000000")
    );
}

TEST_CASE("multi get gives the values in the order asked for") {
    KvHarness store;
    store.send(1, MultiSetRequest{{{"/a", "1"}, {"/b", "22"}}});

    CHECK(
        store.ask(1, MultiGetRequest{{"/b", "/a", "/b"}}) ==
        from_hex("0200000000000000 3232 0100000000000000 31 0200000000000000 3232")
    );
}

TEST_CASE("a value above the sharing size comes whole") {
    KvHarness store;
    const std::string large = test::filled(100'000, 'x');
    store.send(1, SetRequest{"/k", large});

    CHECK(store.ask(1, GetRequest{"/k"}).substr(8) == large);
}

TEST_CASE("compare set stores where the key is absent and nothing is expected") {
    KvHarness store;

    CHECK(store.ask(1, CompareSetRequest{"/k", "", "v"}) == from_hex("0100000000000000 76"));
    CHECK(store.ask(1, GetRequest{"/k"}) == from_hex("0100000000000000 76"));
}

TEST_CASE("compare set of an absent key with another expectation stores nothing and wakes nobody") {
    KvHarness store;
    store.send(2, WaitRequest{{"/k"}});

    store.send(1, CompareSetRequest{"/k", "x", "y"});

    CHECK(store.read(2).empty());
    CHECK(store.counters().keys == 0);
}

TEST_CASE("compare set wakes those who wait when it stores") {
    KvHarness store;
    store.send(2, WaitRequest{{"/k"}});

    store.send(1, CompareSetRequest{"/k", "", "y"});

    CHECK(store.read(2) == kReleased);
}

TEST_CASE("add of zero creates the counter and wakes those who wait") {
    KvHarness store;
    store.send(2, WaitRequest{{"/n"}});

    CHECK(store.ask(1, AddRequest{"/n", 0}) == from_hex("0000000000000000"));
    CHECK(store.read(2) == kReleased);
    CHECK(store.ask(1, GetRequest{"/n"}) == from_hex("0100000000000000 30"));
}

TEST_CASE("add to a text that is no plain number is refused and changes nothing") {
    for (const char* text : {"", "x", " 3", "3x", "+3", "0x3", "99999999999999999999"}) {
        KvHarness store;
        store.send(1, SetRequest{"/k", text});

        CHECK_FALSE(store.send(1, AddRequest{"/k", 1}).empty());
        CHECK(store.ask(1, GetRequest{"/k"}).substr(8) == text);
    }
}

TEST_CASE("add beyond 64 bits is refused and changes nothing") {
    KvHarness store;
    constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
    constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
    store.send(1, AddRequest{"/up", kMost});
    store.send(1, AddRequest{"/down", kLeast});

    CHECK_FALSE(store.send(1, AddRequest{"/up", 1}).empty());
    CHECK_FALSE(store.send(1, AddRequest{"/down", -1}).empty());
    CHECK(store.read(1).size() == 16);
    CHECK(store.ask(1, GetRequest{"/up"}).substr(8) == "9223372036854775807");
    CHECK(store.ask(1, GetRequest{"/down"}).substr(8) == "-9223372036854775808");
}

TEST_CASE("append creates and extends and wakes") {
    KvHarness store;
    store.send(2, WaitRequest{{"/k"}});

    store.send(1, AppendRequest{"/k", "ab"});
    store.send(1, AppendRequest{"/k", "cd"});

    CHECK(store.ask(1, GetRequest{"/k"}).substr(8) == "abcd");
    CHECK(store.read(2) == kReleased);
}

TEST_CASE("append beyond the limit of a value is refused and changes nothing") {
    KvHarness store;
    const std::string large = test::filled(limits::kValueBytesMax, 'x');
    store.send(1, SetRequest{"/k", large});

    CHECK_FALSE(store.send(1, AppendRequest{"/k", "y"}).empty());
    CHECK(store.ask(1, GetRequest{"/k"}).size() == 8 + large.size());
}

TEST_CASE("a wait for several keys ends with the last of them") {
    KvHarness store;
    store.send(1, SetRequest{"/a", ""});
    store.send(2, WaitRequest{{"/a", "/b", "/c"}});

    store.send(1, SetRequest{"/c", ""});
    CHECK(store.read(2).empty());
    store.send(1, MultiSetRequest{{{"/x", ""}, {"/b", ""}}});

    CHECK(store.read(2) == kReleased);
    CHECK(store.counters().registrations == 0);
    CHECK(store.counters().waiting_clients == 0);
}

TEST_CASE("a key listed twice in a wait ends it all the same") {
    KvHarness store;
    store.send(2, WaitRequest{{"/a", "/a"}});

    store.send(1, SetRequest{"/a", ""});

    CHECK(store.read(2) == kReleased);
}

TEST_CASE("a key that is deleted while others are waited for stays counted as arrived") {
    KvHarness store;
    store.send(2, WaitRequest{{"/a", "/b"}});

    store.send(1, SetRequest{"/a", ""});
    store.send(1, DeleteKeyRequest{"/a"});
    store.send(1, SetRequest{"/b", ""});

    CHECK(store.read(2) == kReleased);
}

TEST_CASE("a canceled wait is answered once and nothing comes later") {
    KvHarness store;
    store.send(2, WaitRequest{{"/k"}});

    CHECK(store.ask(2, CancelWaitRequest{}) == kCanceled);
    store.send(1, SetRequest{"/k", ""});

    CHECK(store.read(2).empty());
}

TEST_CASE("a wait that ends just before it is canceled has both answers in order") {
    KvHarness store;
    store.send(2, WaitRequest{{"/k"}});

    store.send(1, SetRequest{"/k", ""});
    store.send(2, CancelWaitRequest{});

    CHECK(store.read(2) == kReleased + kCanceled);
}

TEST_CASE("a client can wait again after a canceled wait") {
    KvHarness store;
    store.send(2, WaitRequest{{"/k"}});
    store.ask(2, CancelWaitRequest{});

    store.send(2, WaitRequest{{"/k"}});
    store.send(1, SetRequest{"/k", ""});

    CHECK(store.read(2) == kReleased);
}

TEST_CASE("a second wait or barrier of a waiting client is refused") {
    KvHarness store;
    store.send(2, WaitRequest{{"/k"}});

    CHECK_FALSE(store.send(2, WaitRequest{{"/l"}}).empty());
    CHECK_FALSE(store.send(2, BarrierRequest{"/b", 2}).empty());
    CHECK(store.counters().keys == 0);
}

TEST_CASE("a request pipelined behind a wait is answered before it") {
    KvHarness store;
    store.send(2, WaitRequest{{"/k"}});

    CHECK(store.ask(2, PingRequest{1}) == from_hex("01000000"));
    store.send(2, SetRequest{"/k", ""});

    CHECK(store.read(2) == kReleased);
}

TEST_CASE("what a client waits for is forgotten when it goes and what it wrote stays") {
    KvHarness store;
    store.send(2, SetRequest{"/mine", "v"});
    store.send(2, WaitRequest{{"/k", "/l"}});
    store.send(3, WaitRequest{{"/k"}});

    store.state().client_gone(ClientId{2}, {});

    CHECK(store.counters().registrations == 1);
    CHECK(store.counters().waiting_clients == 1);
    store.send(1, SetRequest{"/k", ""});
    CHECK(store.read(2).empty());
    CHECK(store.read(3) == kReleased);
    CHECK(store.ask(1, GetRequest{"/mine"}).substr(8) == "v");
}

TEST_CASE("one set releases all who wait in the order in which they came") {
    KvHarness store;
    for (std::uint64_t client = 10; client < 20; ++client) {
        store.send(client, WaitRequest{{"/k"}});
    }
    ReplyBuffer reply;
    KvEffects effects{reply};

    store.state().apply(ClientId{1}, SetRequest{"/k", ""}, effects);

    REQUIRE(effects.released.size() == 10);
    for (std::uint64_t i = 0; i < 10; ++i) {
        CHECK(effects.released[i] == ClientId{10 + i});
    }
}

TEST_CASE("a queue gives its values in order and its length before each pop") {
    KvHarness store;
    store.send(1, QueuePushRequest{"/q", "a"});
    store.send(1, QueuePushRequest{"/q", "b"});

    CHECK(store.ask(1, QueueLengthRequest{"/q"}) == from_hex("0200000000000000"));
    CHECK(store.ask(1, QueuePopRequest{"/q"}) == from_hex("0200000000000000 0100000000000000 61"));
    CHECK(store.ask(1, QueuePopRequest{"/q"}) == from_hex("0100000000000000 0100000000000000 62"));
    CHECK(store.ask(1, QueuePopRequest{"/q"}) == from_hex("0000000000000000"));
    CHECK(store.counters().queues == 0);
    CHECK(store.counters().bytes == 0);
}

TEST_CASE("queues are no keys but a filled one counts as ready") {
    KvHarness store;
    store.send(1, QueuePushRequest{"/q", "a"});

    CHECK(store.ask(1, NumKeysRequest{}) == from_hex("0000000000000000"));
    CHECK(store.ask(1, ListKeysRequest{}) == from_hex("0000000000000000"));
    CHECK(store.ask(1, DeleteKeyRequest{"/q"}) == from_hex("0000000000000000"));
    CHECK(store.ask(1, CheckRequest{{"/q"}}) == from_hex("00"));
    CHECK(store.ask(1, WaitRequest{{"/q"}}) == kReleased);
}

TEST_CASE("each push releases one consumer the first that waits") {
    KvHarness store;
    store.send(2, WaitRequest{{"/q"}});
    store.send(3, WaitRequest{{"/q"}});

    store.send(1, QueuePushRequest{"/q", "a"});
    CHECK(store.read(2) == kReleased);
    CHECK(store.read(3).empty());
    store.send(1, QueuePushRequest{"/q", "b"});

    CHECK(store.read(3) == kReleased);
}

TEST_CASE("a released consumer that waits for another key isn't released by a further push") {
    KvHarness store;
    store.send(2, WaitRequest{{"/q"}});
    store.send(1, QueuePushRequest{"/q", "a"});
    store.read(2);

    store.send(2, WaitRequest{{"/other"}});
    store.send(1, QueuePushRequest{"/q", "b"});

    CHECK(store.read(2).empty());
}

TEST_CASE("two pushes don't stand in for another key that is waited for") {
    KvHarness store;
    store.send(2, WaitRequest{{"/q", "/other"}});

    store.send(1, QueuePushRequest{"/q", "a"});
    store.send(1, QueuePushRequest{"/q", "b"});
    CHECK(store.read(2).empty());
    store.send(1, SetRequest{"/other", ""});

    CHECK(store.read(2) == kReleased);
}

TEST_CASE("a barrier releases all when the last one arrives") {
    KvHarness store;
    store.send(1, BarrierRequest{"/b", 3});
    store.send(2, BarrierRequest{"/b", 3});
    CHECK(store.read(1).empty());

    store.send(3, BarrierRequest{"/b", 3});

    CHECK(store.read(1) == kReleased);
    CHECK(store.read(2) == kReleased);
    CHECK(store.read(3) == kReleased);
    CHECK(store.ask(1, GetRequest{"/b"}).substr(8) == "3");
}

TEST_CASE("a barrier's early arrivals don't wake those who wait for its key") {
    KvHarness store;
    store.send(4, WaitRequest{{"/b"}});

    store.send(1, BarrierRequest{"/b", 2});
    CHECK(store.read(4).empty());
    store.send(2, BarrierRequest{"/b", 2});

    CHECK(store.read(4) == kReleased);
}

TEST_CASE("an arrival that is canceled stays counted") {
    KvHarness store;
    store.send(1, BarrierRequest{"/b", 2});
    CHECK(store.ask(1, CancelWaitRequest{}) == kCanceled);

    CHECK(store.ask(2, BarrierRequest{"/b", 2}) == kReleased);
    CHECK(store.read(1).empty());
}

TEST_CASE("setting a barrier's key releases the parked participants") {
    KvHarness store;
    store.send(1, BarrierRequest{"/b", 5});

    store.send(2, SetRequest{"/b", "9"});

    CHECK(store.read(1) == kReleased);
}

TEST_CASE("a barrier of no participants passes at once") {
    KvHarness store;

    CHECK(store.ask(1, BarrierRequest{"/b", 0}) == kReleased);
    CHECK(store.ask(1, BarrierRequest{"/c", -1}) == kReleased);
}

TEST_CASE("a barrier on a text that is no number is refused") {
    KvHarness store;
    store.send(1, SetRequest{"/b", "x"});

    CHECK_FALSE(store.send(1, BarrierRequest{"/b", 2}).empty());
    CHECK(store.counters().waiting_clients == 0);
}

TEST_SUITE_END();

TEST_SUITE_BEGIN("rendezvous/kv_state limits");

TEST_CASE("keys beyond the limit are refused and what is there can be replaced") {
    KvLimits limits;
    limits.keys_max = 2;
    KvHarness store{limits};
    store.send(1, SetRequest{"/a", "1"});
    store.send(1, SetRequest{"/b", "1"});

    CHECK_FALSE(store.send(1, SetRequest{"/c", "1"}).empty());
    CHECK_FALSE(store.send(1, AddRequest{"/c", 1}).empty());
    CHECK_FALSE(store.send(1, AppendRequest{"/c", "1"}).empty());
    CHECK_FALSE(store.send(1, CompareSetRequest{"/c", "", "1"}).empty());
    CHECK_FALSE(store.send(1, BarrierRequest{"/c", 2}).empty());
    CHECK(store.send(1, SetRequest{"/b", "2"}).empty());
    CHECK(store.counters().keys == 2);
    CHECK(store.counters().refused == 5);
    CHECK(store.read(1).empty());
}

TEST_CASE("a multi set that doesn't fit as a whole stores nothing") {
    KvLimits limits;
    limits.keys_max = 2;
    KvHarness store{limits};

    CHECK_FALSE(store.send(1, MultiSetRequest{{{"/a", ""}, {"/b", ""}, {"/c", ""}}}).empty());

    CHECK(store.counters().keys == 0);
}

TEST_CASE("a multi set that replaces what is there fits where its new keys and bytes do") {
    KvLimits limits;
    limits.keys_max = 2;
    limits.bytes_max = 10;
    KvHarness store{limits};
    store.send(1, MultiSetRequest{{{"/a", "111"}, {"/b", "222"}}});

    CHECK(store.send(1, MultiSetRequest{{{"/a", "333"}, {"/b", "444"}, {"/a", "555"}}}).empty());

    CHECK(store.counters().bytes == 10);
    CHECK(store.ask(1, GetRequest{"/a"}).substr(8) == "555");
}

TEST_CASE("bytes beyond the limit are refused and come back when keys are deleted") {
    KvLimits limits;
    limits.bytes_max = 10;
    KvHarness store{limits};
    store.send(1, SetRequest{"/a", "12345678"});

    CHECK_FALSE(store.send(1, SetRequest{"/b", ""}).empty());
    CHECK_FALSE(store.send(1, QueuePushRequest{"/q", ""}).empty());
    CHECK(store.counters().bytes == 10);
    store.send(1, DeleteKeyRequest{"/a"});

    CHECK(store.counters().bytes == 0);
    CHECK(store.send(1, SetRequest{"/b", "12345678"}).empty());
}

TEST_CASE("a queue beyond its limit is refused") {
    KvLimits limits;
    limits.queue_length_max = 1;
    KvHarness store{limits};
    store.send(1, QueuePushRequest{"/q", "a"});

    CHECK_FALSE(store.send(1, QueuePushRequest{"/q", "b"}).empty());
    CHECK(store.ask(1, QueueLengthRequest{"/q"}) == from_hex("0100000000000000"));
}

TEST_CASE("registrations beyond the limit are refused and come back") {
    KvLimits limits;
    limits.registrations_max = 2;
    KvHarness store{limits};
    store.send(2, WaitRequest{{"/a", "/b"}});

    CHECK_FALSE(store.send(3, WaitRequest{{"/c"}}).empty());
    CHECK_FALSE(store.send(3, BarrierRequest{"/d", 2}).empty());
    store.state().client_gone(ClientId{2}, {});

    CHECK(store.send(3, WaitRequest{{"/c"}}).empty());
    CHECK(store.counters().registrations == 1);
}

TEST_CASE("values are shared with those who read them and not copied") {
    KvHarness store;
    const std::string large = test::filled(1'000'000, 'x');
    store.send(1, SetRequest{"/k", large});
    ReplyBuffer first;
    ReplyBuffer second;
    KvEffects to_first{first};
    KvEffects to_second{second};

    store.state().apply(ClientId{1}, GetRequest{"/k"}, to_first);
    store.state().apply(ClientId{2}, GetRequest{"/k"}, to_second);

    CHECK(first.front(2)[1].data() == second.front(2)[1].data());
}

TEST_CASE("a reply of very many values stays small in memory") {
    KvHarness store;
    const std::string value = test::filled(1'000, 'x');
    store.send(1, SetRequest{"/k", value});
    const std::vector<std::string_view> keys(100'000, "/k");
    ReplyBuffer reply;
    KvEffects effects{reply};

    store.state().apply(ClientId{1}, MultiGetRequest{keys}, effects);

    CHECK(reply.size() == keys.size() * (8 + value.size()));
    CHECK(reply.own_bytes() < 16 * limits::kMiB);
}

TEST_CASE("all who list the keys before one comes or goes share one text") {
    KvHarness store;
    store.send(1, MultiSetRequest{{{"/a", "1"}, {"/b", "2"}}});
    ReplyBuffer first;
    ReplyBuffer second;
    KvEffects to_first{first};
    KvEffects to_second{second};

    store.state().apply(ClientId{1}, ListKeysRequest{}, to_first);
    store.send(1, SetRequest{"/a", "another value"});
    store.state().tidy();  // the first has still to get it
    store.state().apply(ClientId{2}, ListKeysRequest{}, to_second);

    CHECK(first.text().size() == 8 + 2 * (8 + 2));
    CHECK(first.front(1)[0].data() == second.front(1)[0].data());
}

TEST_CASE("the list of keys is that of the moment") {
    KvHarness store;
    store.send(1, SetRequest{"/a", ""});
    CHECK(store.ask(1, ListKeysRequest{}) == from_hex("0100000000000000 0200000000000000 2f61"));

    store.send(1, SetRequest{"/b", ""});
    store.ask(1, DeleteKeyRequest{"/a"});

    CHECK(store.ask(1, ListKeysRequest{}) == from_hex("0100000000000000 0200000000000000 2f62"));
}

TEST_CASE("a list of keys beyond the limit is refused") {
    KvLimits limits;
    limits.listed_bytes_max = 8 + 2 * (8 + 2);
    KvHarness store{limits};
    store.send(1, MultiSetRequest{{{"/a", "1"}, {"/b", "2"}}});
    CHECK(store.send(1, ListKeysRequest{}).empty());

    store.send(1, SetRequest{"/c", ""});

    CHECK_FALSE(store.send(1, ListKeysRequest{}).empty());
    CHECK(store.counters().refused == 1);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
