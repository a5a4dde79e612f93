#include "trainer/nccl_id.h"

#include "tests/support/store_thread.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <thread>
#include <vector>

namespace ddprun::trainer {
namespace {

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
Agreements exchange_ids(StoreThread& server, const std::vector<NcclIdOffer>& offers) {
    Agreements agreements(offers.size());
    std::vector<std::thread> ranks;
    for (std::size_t i = 0; i < offers.size(); ++i) {
        ranks.emplace_back([&server, &offers, &agreements, i] {
            agreements[i] = agree_on_id(*server.connect(), offers[i]);
        });
    }
    for (std::thread& rank : ranks) {
        rank.join();
    }
    return agreements;
}

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
    const NcclIdOffer first = offer_of(0, 2);
    const auto impostor = server.connect();
    REQUIRE(impostor->set("test/held/1", std::string(kNcclIdBytes, 'x')));

    const auto agreement = agree_on_id(*server.connect(), first);

    REQUIRE_FALSE(agreement);
    CHECK(agreement.error().code == Errc::malformed);
    CHECK(agreement.error().context.find("rank 1 holds another id") != std::string::npos);
    CHECK(impostor->get("test/verdict")->front() == '-');
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
