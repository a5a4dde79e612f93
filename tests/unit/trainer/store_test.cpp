#include "trainer/store.h"

#include <c10/util/Exception.h>
#include <doctest/doctest.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

namespace ddprun::trainer {
namespace {

using std::chrono::milliseconds;
using Bytes = ClientStore::Bytes;

Bytes bytes(const std::string& text) {
    return {text.begin(), text.end()};
}

/// LibTorch's own server and client on a free port of loopback, and our client of it.
struct Fixture {
    Fixture() {
        c10d::TCPStoreOptions options;
        options.port = 0;
        options.isServer = true;
        options.waitWorkers = false;
        theirs = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
        StoreClientOptions client;
        client.host = "127.0.0.1";
        client.port = theirs->getPort();
        client.connect_timeout = milliseconds(10'000);
        auto connected = StoreClient::connect(client);
        REQUIRE(connected);
        ours = c10::make_intrusive<ClientStore>(
            std::shared_ptr<StoreClient>(std::move(*connected)), milliseconds(10'000)
        );
    }

    c10::intrusive_ptr<c10d::TCPStore> theirs;
    c10::intrusive_ptr<ClientStore> ours;
};

TEST_CASE_FIXTURE(
    Fixture, "what LibTorch's client writes ours reads, and back, zero bytes included"
) {
    const Bytes value = {0, 1, 255, 0};
    theirs->set("a", value);
    CHECK(ours->get("a") == value);
    ours->set("b", value);
    CHECK(theirs->get("b") == value);
}

TEST_CASE_FIXTURE(Fixture, "both clients count on the same counter") {
    CHECK(ours->add("n", 2) == 2);
    CHECK(theirs->add("n", 3) == 5);
    CHECK(ours->add("n", -1) == 4);
}

TEST_CASE_FIXTURE(Fixture, "compareSet stores only where the expected value stands") {
    CHECK(ours->compareSet("c", bytes(""), bytes("one")) == bytes("one"));
    CHECK(ours->compareSet("c", bytes("two"), bytes("three")) == bytes("one"));
    CHECK(ours->compareSet("c", bytes("one"), bytes("three")) == bytes("three"));
    CHECK(theirs->get("c") == bytes("three"));
}

TEST_CASE_FIXTURE(
    Fixture, "check, deleteKey, append, multiSet and multiGet mean what they mean there"
) {
    ours->multiSet({"x", "y"}, {bytes("1"), bytes("2")});
    CHECK(theirs->check({"x", "y"}));
    CHECK(ours->check({"x", "y"}));
    CHECK_FALSE(ours->check({"x", "z"}));
    ours->append("x", bytes("0"));
    CHECK(ours->multiGet({"x", "y"}) == std::vector<Bytes>{bytes("10"), bytes("2")});
    CHECK(ours->getNumKeys() == theirs->getNumKeys());
    CHECK(ours->deleteKey("x"));
    CHECK_FALSE(ours->deleteKey("x"));
    CHECK_FALSE(theirs->check({"x"}));
}

TEST_CASE_FIXTURE(
    Fixture, "a queue gives its values in order, and an empty one says so when not waited for"
) {
    ours->queuePush("q", bytes("1"));
    theirs->queuePush("q", bytes("2"));
    CHECK(theirs->queueLen("q") == 2);  // its push is not answered; this is, after it
    CHECK(ours->queueLen("q") == 2);
    CHECK(ours->queuePop("q", true) == bytes("1"));
    CHECK(ours->queuePop("q", false) == bytes("2"));
    CHECK_THROWS_AS(ours->queuePop("q", false), c10::DistStoreError);
}

TEST_CASE_FIXTURE(Fixture, "a wait ends when the key comes, also from another thread's client") {
    auto waiting = std::async(std::launch::async, [&] { ours->wait({"late"}); });
    theirs->set("late", bytes("now"));
    CHECK(waiting.wait_for(std::chrono::seconds(10)) == std::future_status::ready);
    CHECK_NOTHROW(waiting.get());
}

TEST_CASE_FIXTURE(Fixture, "a wait for a key that doesn't come throws after its time-out") {
    CHECK_THROWS_AS(ours->wait({"never"}, milliseconds(50)), c10::DistStoreError);
    ours->setTimeout(milliseconds(50));
    CHECK_THROWS_AS(ours->get("never"), c10::DistStoreError);
}

TEST_CASE_FIXTURE(Fixture, "a clone sees the same keys and has a time-out of its own") {
    const auto clone = ours->clone();
    clone->set("k", bytes("v"));
    CHECK(ours->get("k") == bytes("v"));
    clone->setTimeout(milliseconds(50));
    CHECK(ours->getTimeout() == milliseconds(10'000));
}

TEST_CASE_FIXTURE(Fixture, "a worker under an agent connects below the prefix of its start") {
    WorkerPlace place;
    place.world_size = 2;
    place.rank = 0;
    place.restart_count = 3;
    place.master_addr = "127.0.0.1";
    place.master_port = theirs->getPort();
    place.agent_hosts_store = true;
    auto store = connect_store(place, milliseconds(10'000));
    REQUIRE(store);
    (*store)->set("key", bytes("value"));
    CHECK(theirs->get("/worker/attempt_3/key") == bytes("value"));
}

}  // namespace
}  // namespace ddprun::trainer
