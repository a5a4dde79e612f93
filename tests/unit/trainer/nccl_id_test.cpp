#include "trainer/nccl_id.h"

#include "proto/store_messages.h"
#include "tests/support/scripted_store.h"
#include "tests/support/store_thread.h"
#include "trainer/nccl_collector.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace ddprun::trainer {
namespace {

constexpr std::chrono::milliseconds kSoon{300};

using Agreements = std::vector<Result<NcclIdAgreement>>;

NcclIdOffer offer_of(std::int32_t rank, std::int32_t world_size) {
    NcclIdOffer offer;
    offer.rank = rank;
    offer.world_size = world_size;
    offer.prefix = "test/";
    if (rank == 0) {
        offer.id = std::string(kNcclIdBytes, 'i');
    }
    return offer;
}

/// Each offer in a thread and with a client of its own.
Agreements exchange_ids(
    StoreThread& server,
    const std::vector<NcclIdOffer>& offers,
    std::chrono::milliseconds timeout = std::chrono::milliseconds{10'000}
) {
    Agreements agreements(offers.size());
    std::vector<std::thread> ranks;
    for (std::size_t i = 0; i < offers.size(); ++i) {
        ranks.emplace_back([&server, &offers, &agreements, timeout, i] {
            StoreClientOptions options = server.options();
            options.timeout = timeout;
            agreements[i] = agree_on_id(**StoreClient::connect(options), offers[i]);
        });
    }
    for (std::thread& rank : ranks) {
        rank.join();
    }
    return agreements;
}

/// One offer, in a thread.
std::future<Result<NcclIdAgreement>> in_thread(StoreThread& server, const NcclIdOffer& offer) {
    return std::async(std::launch::async, [&server, offer] {
        return agree_on_id(*server.connect(), offer);
    });
}

/// Of a rank that a test plays itself.
const std::string kName(16, 'n');

TEST_SUITE_BEGIN("trainer/nccl_id");

TEST_CASE("every rank gets the bytes that rank 0 gave") {
    StoreThread server;

    const Agreements all = exchange_ids(server, {offer_of(0, 3), offer_of(1, 3), offer_of(2, 3)});

    for (const auto& agreement : all) {
        REQUIRE(agreement);
        CHECK(agreement->id == std::string(kNcclIdBytes, 'i'));
        CHECK(agreement->obstacle.empty());
    }
}

TEST_CASE("every rank learns the first obstacle and whose it is") {
    StoreThread server;
    std::vector<NcclIdOffer> offers{offer_of(0, 3), offer_of(1, 3), offer_of(2, 3)};
    offers[1].obstacle = "no GPU here";
    offers[2].obstacle = "none here either";

    for (const auto& agreement : exchange_ids(server, offers)) {
        REQUIRE(agreement);
        CHECK(agreement->obstacle == "rank 1: no GPU here");
    }
}

TEST_CASE("a rank that holds other bytes is found and named on every rank") {
    StoreThread server;
    const auto impostor = server.connect();
    auto first = in_thread(server, offer_of(0, 2));
    REQUIRE(impostor->queue_push("test/mail", join_text(1, 2, kName)));
    const auto greeting = parse_greeting(*impostor->get("test/answer/" + kName));
    REQUIRE(greeting);
    REQUIRE(impostor->set("test/held/" + kName, std::string(kNcclIdBytes, 'x')));
    REQUIRE(impostor->queue_push("test/mail", held_text(1, greeting->token, kName)));

    const auto agreement = first.get();

    REQUIRE_FALSE(agreement);
    CHECK(agreement.error().code == Errc::malformed);
    CHECK(agreement.error().context.find("rank 1 holds another id") != std::string::npos);
    CHECK(impostor->get("test/verdict/" + kName)->front() == '-');
}

TEST_CASE("exchange after exchange with one store and one prefix agrees and leaves one key") {
    StoreThread server;
    std::set<std::string> prefixes;
    for (const char with : {'a', 'b', 'c', 'd', 'e'}) {
        std::vector<NcclIdOffer> offers{offer_of(0, 3), offer_of(1, 3), offer_of(2, 3)};
        offers[0].id = std::string(kNcclIdBytes, with);

        for (const auto& agreement : exchange_ids(server, offers)) {
            REQUIRE(agreement);
            CHECK(agreement->id == offers[0].id);
            prefixes.insert(agreement->prefix);
        }
        CHECK(server.connect()->list_keys() == StoreClient::Keys{"test/owner"});
    }
    CHECK(prefixes.size() == 5);  // the same for all ranks, another for each exchange
}

TEST_CASE("what an exchange that was killed halfway left changes nothing") {
    StoreThread server;
    const auto dead = server.connect();
    // A rank 0 that had answered, heard and judged, and ranks at every step.
    REQUIRE(dead->set("test/owner", std::string(16, '0')));
    for (int step = 0; step < 5; ++step) {
        const std::string name = std::string(15, 'd') + std::to_string(step);
        REQUIRE(dead->queue_push("test/mail", join_text(1, 2, name)));
        if (step > 0) {
            REQUIRE(dead->set("test/answer/" + name, std::string(16 + kNcclIdBytes, '0')));
        }
        if (step > 1) {
            REQUIRE(dead->set("test/held/" + name, std::string(kNcclIdBytes, '0')));
        }
        if (step > 2) {
            REQUIRE(dead->queue_push("test/mail", held_text(1, std::string(16, '0'), name)));
        }
        if (step > 3) {
            REQUIRE(dead->set("test/verdict/" + name, "-rank 1 holds another id than rank 0"));
        }
    }
    // What the protocol before this one left, and what none could have.
    REQUIRE(dead->set("test/id", std::string(kNcclIdBytes, '0')));
    REQUIRE(dead->set("test/held/1", std::string(kNcclIdBytes, '0')));
    REQUIRE(dead->set("test/verdict", "-"));
    for (const char* nonsense :
         {"",
          " ",
          "join",
          "join 1 2 short",
          "held x y z",
          "join 1 3 nnnnnnnnnnnnnnnn",
          "join 0 2 nnnnnnnnnnnnnnnn",
          "join 2 2 nnnnnnnnnnnnnnnn",
          "join -1 2 nnnnnnnnnnnnnnnn",
          "join 1 2 nnnnnnnnnnnnnnnn more"}) {
        REQUIRE(dead->queue_push("test/mail", nonsense));
    }

    for (const auto& agreement : exchange_ids(server, {offer_of(0, 2), offer_of(1, 2)})) {
        REQUIRE(agreement);
        CHECK(agreement->id == std::string(kNcclIdBytes, 'i'));
    }
    CHECK(dead->queue_len("test/mail") == 0);
}

TEST_CASE("an exchange that still waits gives its letters to the one that began after it") {
    StoreThread server;
    auto old_first = in_thread(server, offer_of(0, 2));
    while (!*server.connect()->check({"test/owner"})) {
        std::this_thread::yield();
    }
    const std::string old_token = *server.connect()->get("test/owner");
    NcclIdOffer again = offer_of(0, 2);
    again.id = std::string(kNcclIdBytes, 'j');
    auto new_first = in_thread(server, again);
    while (*server.connect()->get("test/owner") == old_token) {
        std::this_thread::yield();
    }

    const auto other = agree_on_id(*server.connect(), offer_of(1, 2));

    REQUIRE(other);
    CHECK(other->id == again.id);
    const auto agreement = new_first.get();
    REQUIRE(agreement);
    CHECK(agreement->prefix == other->prefix);
    // The old one found out by the letter, or waits on: the next letter tells it.
    REQUIRE(server.connect()->queue_push("test/mail", "for whom"));
    const auto old = old_first.get();
    REQUIRE_FALSE(old);
    CHECK(old.error().code == Errc::refused);
    CHECK(old.error().context.find("another process has begun as rank 0") != std::string::npos);
}

TEST_CASE("the second of two processes that say they are one rank is told so") {
    StoreThread server;
    const auto impostor = server.connect();
    auto first = in_thread(server, offer_of(0, 3));
    const std::string later(16, 'm');
    for (const std::string& name : {kName, later}) {
        REQUIRE(impostor->queue_push("test/mail", join_text(1, 3, name)));
        const auto greeting = parse_greeting(*impostor->get("test/answer/" + name));
        REQUIRE(greeting);
        REQUIRE(impostor->set("test/held/" + name, greeting->id));
        REQUIRE(impostor->queue_push("test/mail", held_text(1, greeting->token, name)));
    }

    // Its letters come after those two.
    REQUIRE(agree_on_id(*server.connect(), offer_of(2, 3)));

    REQUIRE(first.get());
    CHECK(impostor->get("test/verdict/" + kName) == "+");
    CHECK(impostor->get("test/verdict/" + later)->find("!another process is rank 1") == 0);
}

TEST_CASE("a rank whose part another process takes fails for that reason") {
    StoreThread server;
    const auto first = server.connect();
    auto second = in_thread(server, offer_of(1, 2));
    const auto joined = first->queue_pop("test/mail");
    REQUIRE(joined);
    const std::string name = joined->substr(joined->rfind(' ') + 1);
    REQUIRE(first->set("test/answer/" + name, std::string(16 + kNcclIdBytes, 't')));
    REQUIRE(first->queue_pop("test/mail") == held_text(1, std::string(16, 't'), name));
    REQUIRE(first->set("test/verdict/" + name, "!taken"));

    const auto told = second.get();

    REQUIRE_FALSE(told);
    CHECK(told.error().code == Errc::refused);
    CHECK(told.error().context.find("taken") != std::string::npos);
}

TEST_CASE("missing ranks are named to all who came and nobody else is") {
    StoreThread server;
    std::vector<NcclIdOffer> offers{offer_of(0, 5), offer_of(2, 5), offer_of(4, 5)};

    for (const auto& agreement : exchange_ids(server, offers, kSoon)) {
        REQUIRE_FALSE(agreement);
        CHECK(agreement.error().code == Errc::timed_out);
        CHECK(
            agreement.error().context.find("ranks 1, 3 of 5 did not come within 300 ms") !=
            std::string::npos
        );
        CHECK(agreement.error().context.find("held") == std::string::npos);
    }
}

TEST_CASE("a missing rank 0 is named by the others") {
    StoreThread server;

    const auto alone = exchange_ids(server, {offer_of(1, 2)}, kSoon).front();

    REQUIRE_FALSE(alone);
    CHECK(alone.error().code == Errc::timed_out);
    CHECK(alone.error().context.find("rank 0 hasn't come within 300 ms") != std::string::npos);
}

TEST_CASE("an exchange works after one that lacked ranks") {
    StoreThread server;
    for (const auto& offer : {offer_of(0, 2), offer_of(1, 2), offer_of(0, 2)}) {
        REQUIRE_FALSE(exchange_ids(server, {offer}, kSoon).front());
    }

    for (const auto& agreement : exchange_ids(server, {offer_of(0, 2), offer_of(1, 2)})) {
        REQUIRE(agreement);
        CHECK(agreement->id == std::string(kNcclIdBytes, 'i'));
    }
}

TEST_CASE("a store that answers nothing isn't taken for missing ranks") {
    ScriptedStore store{[](int fd) {
        ScriptedStore::greet(fd);
        std::string set;  // of the owner: the last that is answered
        encode_request(SetRequest{"/test/owner", std::string(16, '0')}, set);
        std::string ping;
        encode_request(PingRequest{1}, ping);
        ScriptedStore::receive(fd, set.size());
        const std::string got = ScriptedStore::receive(fd, ping.size());
        if (!got.empty()) {
            ScriptedStore::send(fd, got.substr(1));
        }
        ScriptedStore::swallow(fd);
    }};
    StoreClientOptions options = store.options();
    options.timeout = kSoon;
    const auto client = StoreClient::connect(options);
    REQUIRE(client);

    const auto alone = agree_on_id(**client, offer_of(0, 2));

    REQUIRE_FALSE(alone);
    CHECK(alone.error().context.find("did not come") == std::string::npos);
    CHECK(alone.error().context.find("ping") != std::string::npos);
}

TEST_CASE("two exchanges with prefixes of their own don't meet") {
    StoreThread server;
    NcclIdOffer again = offer_of(0, 1);
    again.prefix = "again/";
    again.id = std::string(kNcclIdBytes, 'j');

    const auto one = agree_on_id(*server.connect(), offer_of(0, 1));
    const auto two = agree_on_id(*server.connect(), again);

    REQUIRE(one);
    REQUIRE(two);
    CHECK(one->id != two->id);
}

TEST_CASE("a random id has the size of an id and is another each time") {
    const auto one = random_id();
    const auto two = random_id();

    REQUIRE(one);
    REQUIRE(two);
    CHECK(one->size() == kNcclIdBytes);
    CHECK(*one != *two);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
