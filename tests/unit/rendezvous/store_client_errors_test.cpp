// What the client says of a host or port that can't be used, and of a request that the store
// refuses.
#include "proto/limits.h"
#include "rendezvous/client.h"
#include "tests/support/filled.h"
#include "tests/support/scripted_store.h"
#include "tests/support/store_thread.h"

#include <doctest/doctest.h>

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

bool has(const Error& error, std::string_view part) {
    return error.context.find(part) != std::string::npos;
}

bool has_ipv6() {
    const ClosedPort port;
    const int fd = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        ::close(fd);
    }
    return fd >= 0 && ::access("/proc/net/if_inet6", R_OK) == 0;
}

TEST_SUITE_BEGIN("rendezvous/client errors");

TEST_CASE("an IPv6 host is taken with brackets and without") {
    if (!has_ipv6()) {
        MESSAGE("skipped: no IPv6 here");
        return;
    }
    ScriptedStore store{
        [](int fd) {
            ScriptedStore::greet(fd);
            ScriptedStore::swallow(fd);
        },
        "::1"};
    StoreClientOptions options = store.options();

    CHECK(StoreClient::connect(options));
    options.host = "[::1]";
    CHECK(StoreClient::connect(options));
}

TEST_CASE("an error on an IPv6 host shows it in brackets") {
    const ClosedPort port;
    StoreClientOptions options;
    options.host = "[::1]";
    options.port = port.number();
    options.connect_timeout = std::chrono::milliseconds{0};

    const auto client = StoreClient::connect(options);

    REQUIRE_FALSE(client);
    CHECK(has(client.error(), "store [::1]:" + std::to_string(port.number()) + ": connect: "));
    CHECK(has(client.error(), "1 attempt in "));
}

TEST_CASE("a host or port that can't be one is an error at once") {
    using Place = std::pair<std::string, std::uint16_t>;
    for (const auto& [host, port] : std::vector<Place>{
             {"", 29'500},
             {"localhost", 0},
             {"", 0},
             {"[]", 29'500},
             {"[", 29'500},
             {"]", 29'500},
             {"[localhost]", 29'500},
             {"[127.0.0.1]", 29'500},
             {"[::1", 29'500},
             {"::1]", 29'500},
             {std::string{"127.0.0.1\0.example", 18}, 29'500}}) {
        CAPTURE(host);
        StoreClientOptions options;
        options.host = host;
        options.port = port;
        options.connect_timeout = std::chrono::milliseconds{10'000};

        const Clock::time_point begin = Clock::now();
        const auto client = StoreClient::connect(options);

        CHECK(Clock::now() - begin < std::chrono::seconds{2});
        REQUIRE_FALSE(client);
        CHECK(client.error().code == Errc::invalid_argument);
        CHECK(has(client.error(), "port " + std::to_string(port)));
        CHECK(has(client.error(), "'" + host + "'"));
    }
}

TEST_CASE("a refused request says what was attempted, on which key, and why a store may refuse it"
) {
    StoreThread server;
    const auto client = server.connect();
    REQUIRE(client->set("text", "x"));
    REQUIRE(client->set("most", std::to_string(std::numeric_limits<std::int64_t>::max())));
    REQUIRE(client->set("full", test::filled(limits::kValueBytesMax, 'v')));
    const auto error_of = [](const auto& result) {
        REQUIRE_FALSE(result);
        return result.error();
    };

    const std::vector<std::pair<Error, std::vector<std::string>>> refused{
        {error_of(client->add("text", 1)), {"add to 'text'", "no decimal number"}},
        {error_of(client->add("most", 1)), {"add to 'most'", "out of range"}},
        {error_of(client->append("full", "v")), {"append to 'full'", "too long"}},
        {error_of(client->barrier("text", 2)), {"barrier 'text'", "no number"}},
    };

    for (const auto& [error, parts] : refused) {
        CAPTURE(error.context);
        CHECK(error.code == Errc::connection_lost);
        CHECK(has(error, "closes a connection whose request makes no sense"));
        for (const std::string& part : parts) {
            CHECK(has(error, part));
        }
    }
    CHECK(client->ping());
}

TEST_CASE("a lost connection isn't called a refusal where nothing could be refused") {
    ScriptedStore store{[](int fd) {
        ScriptedStore::greet(fd);
        ScriptedStore::receive(fd, 1);
        ::shutdown(fd, SHUT_RDWR);
    }};
    const auto client = StoreClient::connect(store.options());
    REQUIRE(client);

    const auto pinged = (*client)->ping();

    REQUIRE_FALSE(pinged);
    CHECK(pinged.error().code == Errc::connection_lost);
    CHECK_FALSE(has(pinged.error(), "makes no sense"));
}

TEST_CASE("a long key is shown by its beginning") {
    StoreThread server;
    const auto client = server.connect();
    const std::string key(limits::kKeyBytesMax * 2, 'k');

    const auto set = client->set(key, "");

    REQUIRE_FALSE(set);
    CHECK(has(set.error(), "set 'kkk"));
    CHECK(set.error().context.size() < limits::kKeyBytesMax);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
