#include "trainer/local_address.h"

#include <doctest/doctest.h>

namespace ddprun::trainer {
namespace {

constexpr std::uint16_t kPort = 29500;

TEST_CASE("a loopback address is reached from loopback, on one node and on several") {
    for (const bool several_nodes : {false, true}) {
        CAPTURE(several_nodes);
        const auto v4 = local_address_towards("127.0.0.1", kPort, several_nodes);
        REQUIRE(v4);
        CHECK(*v4 == "127.0.0.1");
        const auto name = local_address_towards("localhost", kPort, several_nodes);
        REQUIRE(name);
        CHECK((*name == "127.0.0.1" || *name == "::1"));
    }
}

TEST_CASE("a name that nobody knows is named in the error") {
    const auto address = local_address_towards("no-such-host.invalid", kPort, false);
    REQUIRE_FALSE(address);
    CHECK(address.error().context.find("no-such-host.invalid") != std::string::npos);
}

}  // namespace
}  // namespace ddprun::trainer
