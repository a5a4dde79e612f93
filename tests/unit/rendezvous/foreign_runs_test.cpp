#include "rendezvous/foreign_runs.h"

#include "proto/limits.h"
#include "tests/support/kv_harness.h"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using TimePoint = ForeignRuns::TimePoint;
using Names = std::vector<std::string>;

constexpr milliseconds kKeep{600'000};
constexpr ClientId kFirst{1};
constexpr ClientId kSecond{2};
const std::string kState = "/torch.rendezvous.job";
const std::string kAddress = "/torch.rendezvous.job.0/MASTER_ADDR";

TimePoint at(milliseconds since_start) {
    return TimePoint{} + since_start;
}

/// `client` stores the key, whose characters stay, as one request does.
void store(ForeignRuns& runs, ClientId client, std::string_view key) {
    runs.stored(key);
    runs.used(client, key);
}

TEST_SUITE_BEGIN("rendezvous/foreign_runs");

TEST_CASE("all keys of one id are one run whatever their round") {
    CHECK(ForeignRuns::run_of(kState) == kState);
    CHECK(ForeignRuns::run_of(kAddress) == kState);
    CHECK(ForeignRuns::run_of("/torch.rendezvous.job.12/torchelastic/role_info/0") == kState);
}

TEST_CASE("an id with dots and digits is told from its rounds") {
    const std::string state = "/torch.rendezvous.job.3";

    CHECK(ForeignRuns::run_of(state) == state);
    CHECK(ForeignRuns::run_of(state + ".0/MASTER_ADDR") == state);
    CHECK(ForeignRuns::run_of("/torch.rendezvous.7/x") == "/torch.rendezvous.7");
    CHECK(ForeignRuns::run_of("/torch.rendezvous.7/x/y") == "/torch.rendezvous.7");
}

TEST_CASE("a client that puts no slash before its keys has runs, too") {
    CHECK(ForeignRuns::run_of("torch.rendezvous.job") == "torch.rendezvous.job");
    CHECK(ForeignRuns::run_of("torch.rendezvous.job.3/x") == "torch.rendezvous.job");
    CHECK(ForeignRuns::run_of("torch.rendezvous.7/x") == "torch.rendezvous.7");
}

TEST_CASE("other keys belong to no run") {
    for (const char* key : {"", "/", "/job", "//torch.rendezvous.job", "/torch.rendezvou.job"}) {
        CHECK(ForeignRuns::run_of(key).empty());
    }
}

TEST_CASE("a run is due a while after the last connection that used it") {
    ForeignRuns runs{kKeep, 100};
    store(runs, kFirst, kState);
    store(runs, kSecond, kAddress);

    runs.gone(kFirst, at(milliseconds{1'000}));
    CHECK_FALSE(runs.next());
    runs.gone(kSecond, at(milliseconds{5'000}));

    CHECK(runs.next() == at(milliseconds{5'000} + kKeep));
    CHECK(runs.due(at(milliseconds{4'999} + kKeep), 10).empty());
    CHECK(runs.due(at(milliseconds{5'000} + kKeep), 10).size() == 2);
}

TEST_CASE("a connection that only reads holds the run") {
    ForeignRuns runs{kKeep, 100};
    store(runs, kFirst, kState);
    runs.used(kSecond, kState);

    runs.gone(kFirst, at(milliseconds{0}));

    CHECK_FALSE(runs.next());
}

TEST_CASE("a connection that comes back within the time saves the run") {
    ForeignRuns runs{kKeep, 100};
    store(runs, kFirst, kState);
    runs.gone(kFirst, at(milliseconds{0}));

    runs.used(kSecond, kState);

    CHECK_FALSE(runs.next());
    runs.gone(kSecond, at(milliseconds{9}));
    CHECK(runs.next() == at(milliseconds{9} + kKeep));
}

TEST_CASE("a connection that uses other keys doesn't hold the run") {
    ForeignRuns runs{kKeep, 100};
    store(runs, kFirst, kState);
    store(runs, kSecond, "/torch.rendezvous.other");

    runs.gone(kFirst, at(milliseconds{0}));

    CHECK(runs.due(at(kKeep), 10) == Names{kState});
}

TEST_CASE("runs are due in the order in which they were left") {
    ForeignRuns runs{kKeep, 100};
    store(runs, kFirst, "/torch.rendezvous.b");
    store(runs, kSecond, "/torch.rendezvous.a");

    runs.gone(kFirst, at(milliseconds{1}));
    runs.gone(kSecond, at(milliseconds{2}));

    CHECK(runs.next() == at(milliseconds{1} + kKeep));
    CHECK(
        runs.due(at(milliseconds{2} + kKeep), 10) ==
        Names{"/torch.rendezvous.b", "/torch.rendezvous.a"}
    );
}

TEST_CASE("due keys are given out in portions and a run without keys is forgotten") {
    ForeignRuns runs{kKeep, 100};
    store(runs, kFirst, kState);
    store(runs, kFirst, kAddress);
    runs.gone(kFirst, at(milliseconds{0}));

    for (int portion = 0; portion < 2; ++portion) {
        const Names keys = runs.due(at(kKeep), 1);
        REQUIRE(keys.size() == 1);
        runs.removed(keys.front() == kState ? kState : kAddress);
    }

    CHECK(runs.due(at(kKeep), 1).empty());
    CHECK(runs.size() == 0);
}

TEST_CASE("a run whose keys were removed by its own connections is forgotten when they go") {
    ForeignRuns runs{kKeep, 100};
    store(runs, kFirst, kState);

    runs.removed(kState);
    CHECK(runs.size() == 1);
    runs.gone(kFirst, at(milliseconds{0}));

    CHECK(runs.size() == 0);
}

TEST_CASE("uses beyond the bound aren't remembered and the run is due from the last known time") {
    ForeignRuns runs{kKeep, 1};
    store(runs, kFirst, "/torch.rendezvous.a");
    runs.gone(kFirst, at(milliseconds{7}));
    store(runs, kFirst, "/torch.rendezvous.b");
    store(runs, kFirst, "/torch.rendezvous.c");

    CHECK(
        runs.due(at(milliseconds{7} + kKeep), 10) ==
        Names{"/torch.rendezvous.a", "/torch.rendezvous.c"}
    );
}

TEST_CASE("the store removes what a torchrun left and nothing else") {
    KvHarness store;
    store.send(1, CompareSetRequest{kState, "", "state"});
    store.send(1, MultiSetRequest{{{kAddress, "host"}, {"/mine", "1"}}});
    store.send(2, GetRequest{kState});
    CHECK(store.counters().foreign_runs == 1);

    store.state().client_gone(ClientId{1}, at(milliseconds{0}));
    CHECK_FALSE(store.state().next_expiry());
    store.state().client_gone(ClientId{2}, at(milliseconds{3}));
    REQUIRE(store.state().next_expiry() == at(milliseconds{3} + limits::kForeignRunTimeout));
    store.state().expire(at(milliseconds{2} + limits::kForeignRunTimeout));
    CHECK(store.counters().keys == 3);
    store.state().expire(at(milliseconds{3} + limits::kForeignRunTimeout));

    CHECK(store.counters().keys == 1);
    CHECK(store.counters().expired_keys == 2);
    CHECK(store.counters().foreign_runs == 0);
    CHECK(store.counters().bytes == 6);
    CHECK_FALSE(store.state().next_expiry());
}

TEST_CASE("a run with more keys than one turn removes goes in several") {
    KvHarness store;
    const std::size_t count = limits::kKeysRemovedPerTurnMax + 1;
    for (std::size_t i = 0; i < count; ++i) {
        store.send(1, SetRequest{kState + ".0/" + std::to_string(i), ""});
    }
    store.state().client_gone(ClientId{1}, at(milliseconds{0}));
    const TimePoint later = at(limits::kForeignRunTimeout);

    store.state().expire(later);
    CHECK(store.counters().keys == 1);
    CHECK(store.state().next_expiry() == later);
    store.state().expire(later);

    CHECK(store.counters().keys == 0);
}

TEST_CASE("the queues that a torchrun left go with its keys") {
    KvHarness store;
    const std::string both = kState + ".0/both";  // a key and a queue
    store.send(1, SetRequest{both, "value"});
    store.send(1, QueuePushRequest{both, "first"});
    store.send(1, QueuePushRequest{kState + ".0/queue", "first"});
    store.send(1, QueuePushRequest{kState + ".0/queue", "second"});
    store.send(1, QueuePushRequest{"/mine", "1"});

    store.state().client_gone(ClientId{1}, at(milliseconds{0}));
    store.state().expire(at(limits::kForeignRunTimeout));

    CHECK(store.counters().keys == 0);
    CHECK(store.counters().queues == 1);
    CHECK(store.counters().bytes == 6);
    CHECK(store.counters().foreign_runs == 0);
}

TEST_CASE("a run is there as long as a key or a queue of a name is") {
    for (const bool key_goes_first : {true, false}) {
        KvHarness store;
        store.send(1, SetRequest{kState, "value"});
        store.send(1, QueuePushRequest{kState, "first"});
        const StoreRequest remove = DeleteKeyRequest{kState};
        const StoreRequest pop = QueuePopRequest{kState};

        store.send(1, key_goes_first ? remove : pop);
        store.state().client_gone(ClientId{1}, at(milliseconds{0}));
        CHECK(store.counters().foreign_runs == 1);
        store.send(2, key_goes_first ? pop : remove);
        store.state().client_gone(ClientId{2}, at(milliseconds{0}));

        CHECK(store.counters().foreign_runs == 0);
    }
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
