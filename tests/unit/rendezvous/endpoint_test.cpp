#include "rendezvous/endpoint.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace ddprun {
namespace {

using Addresses = std::vector<std::string>;

Result<Endpoint> parse(std::string_view text) {
    return parse_endpoint(text, PortZero::refused);
}

std::string error_of(std::string_view text) {
    const auto endpoint = parse(text);
    return endpoint ? "no error" : endpoint.error().context;
}

HostDecision decide(const std::string& host, Addresses resolved) {
    HostFacts facts;
    facts.endpoint.host = host;
    facts.resolved = std::move(resolved);
    facts.own = {"127.0.0.1", "::1", "10.0.0.1", "fd00::1"};
    return decide_host(facts);
}

TEST_SUITE_BEGIN("rendezvous/endpoint");

TEST_CASE("a host without a port gets the default port") {
    CHECK(*parse("node0") == Endpoint{"node0", Port{29400}});
}

TEST_CASE("a port is taken from behind the colon") {
    CHECK(*parse("node0:1234") == Endpoint{"node0", Port{1234}});
    CHECK(*parse("10.0.0.1:65535") == Endpoint{"10.0.0.1", Port{65535}});
}

TEST_CASE("IPv6 stands in brackets, with and without a port") {
    CHECK(*parse("[::1]:1234") == Endpoint{"::1", Port{1234}});
    CHECK(*parse("[fd00::1]") == Endpoint{"fd00::1", Port{29400}});
}

TEST_CASE("an endpoint is written as it is read") {
    for (const char* text : {"node0:1234", "[::1]:29400", "127.0.0.1:1"}) {
        CHECK(to_string(*parse(text)) == text);
    }
}

TEST_CASE("IPv6 without brackets is an error that shows how to write it") {
    CHECK(
        error_of("fd00::1") ==
        "endpoint 'fd00::1': put an IPv6 address in brackets, for example [::1]:29400"
    );
}

TEST_CASE("what is no endpoint gets a sentence") {
    CHECK(error_of("") == "endpoint '': give it as HOST[:PORT]");
    CHECK(error_of(":29400") == "endpoint ':29400': give it as HOST[:PORT]");
    CHECK(error_of("a:b") == "endpoint 'a:b': 'b' is no port, use 1 to 65535");
    CHECK(error_of("a:") == "endpoint 'a:': '' is no port, use 1 to 65535");
    CHECK(error_of("a:65536") == "endpoint 'a:65536': '65536' is no port, use 1 to 65535");
    CHECK(error_of("a:-1") == "endpoint 'a:-1': '-1' is no port, use 1 to 65535");
    CHECK(error_of("a:12x") == "endpoint 'a:12x': '12x' is no port, use 1 to 65535");
    CHECK(error_of("[::1") == "endpoint '[::1': write IPv6 as [ADDRESS]:PORT");
    CHECK(error_of("[::1]x") == "endpoint '[::1]x': write IPv6 as [ADDRESS]:PORT");
    CHECK(error_of("[node0]:1") == "endpoint '[node0]:1': 'node0' is no IPv6 address");
}

TEST_CASE("a host with a sign that no host name has is refused with that sign") {
    for (const std::string text :
         {"a b", " a", "a\t:1", "h/x:1", "http//h", "a,b", "u@h", "h?", "h#"}) {
        CAPTURE(text);
        CHECK(error_of(text).find("is in no host name") != std::string::npos);
    }
    for (const std::string text : {"node-0.cluster_1", "[fe80::1]:3", "10.0.0.1", "b\xC3\xBCro"}) {
        CAPTURE(text);
        CHECK(parse(text).has_value());
    }
}

TEST_CASE("port 0 is for jobs of one node") {
    CHECK(error_of("a:0").find("port 0 would be another port on each node") != std::string::npos);
    CHECK(parse_endpoint("a:0", PortZero::allowed)->port == Port{0});
}

TEST_CASE("the node that owns one of the addresses hosts and listens there") {
    const HostDecision decision = decide("node0", {"10.9.9.9", "10.0.0.1"});

    CHECK(decision.hosts);
    CHECK(decision.listen == Addresses{"10.0.0.1"});
}

TEST_CASE("a node that owns none of the addresses doesn't host") {
    const HostDecision decision = decide("node0", {"10.0.0.2"});

    CHECK_FALSE(decision.hosts);
    CHECK(decision.why == "none of the addresses of node0 (10.0.0.2) is this node's");
    CHECK(decide("node0", {}).why == "node0 resolves to nothing here");
}

TEST_CASE("every loopback address is every node's own") {
    CHECK(decide("127.3.4.5", {"127.3.4.5"}).hosts);
    CHECK(decide("127.3.4.5", {"127.3.4.5"}).listen == Addresses{"127.3.4.5"});
    CHECK(decide("localhost", {"::1", "127.0.0.1"}).listen == Addresses{"::1", "127.0.0.1"});
    CHECK(decide("::1", {"::1"}).listen == Addresses{"::1"});
}

TEST_CASE("a host name that resolves to loopback listens everywhere and says why") {
    const HostDecision decision = decide("node0", {"127.0.1.1"});

    CHECK(decision.hosts);
    CHECK(decision.listen.empty());
    CHECK(
        decision.why ==
        "node0 resolves to 127.0.1.1, which other nodes can't reach: listening on every interface"
    );
}

TEST_CASE("a node that is told to host a service name listens everywhere") {
    HostFacts facts;
    facts.endpoint.host = "service";
    facts.resolved = {"10.96.0.1"};
    facts.is_host = true;

    const HostDecision decision = decide_host(facts);

    CHECK(decision.hosts);
    CHECK(decision.listen.empty());
    CHECK(decision.why.find("not this node's address") != std::string::npos);
}

TEST_CASE("is_host=false wins over an own address") {
    HostFacts facts;
    facts.endpoint.host = "localhost";
    facts.resolved = {"127.0.0.1"};
    facts.is_host = false;

    CHECK_FALSE(decide_host(facts).hosts);
}

TEST_CASE("a job of one node listens on loopback only") {
    HostFacts facts;
    facts.endpoint.host = "node0";
    facts.resolved = {"10.0.0.1"};
    facts.own = {"10.0.0.1"};
    facts.one_node = true;

    CHECK(decide_host(facts).listen == Addresses{"127.0.0.1"});
}

TEST_CASE("loopback is recognised in both families") {
    CHECK(is_loopback("127.0.0.1"));
    CHECK(is_loopback("127.255.0.9"));
    CHECK(is_loopback("::1"));
    CHECK_FALSE(is_loopback("128.0.0.1"));
    CHECK_FALSE(is_loopback("::2"));
    CHECK_FALSE(is_loopback("localhost"));
}

TEST_CASE("numeric addresses resolve to themselves") {
    CHECK(*resolve_host("10.1.2.3") == Addresses{"10.1.2.3"});
    CHECK(*resolve_host("fd00::7") == Addresses{"fd00::7"});
}

TEST_CASE("a name that can't be resolved is an error with the name") {
    const auto addresses = resolve_host("no-such-host.invalid");

    REQUIRE_FALSE(addresses);
    CHECK(addresses.error().code == Errc::not_found);
    CHECK(addresses.error().context.find("no-such-host.invalid") != std::string::npos);
}

TEST_CASE("loopback is among the own addresses") {
    const Addresses own = own_addresses();

    CHECK(std::count(own.begin(), own.end(), "127.0.0.1") == 1);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
