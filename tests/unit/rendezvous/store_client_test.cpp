#include "proto/limits.h"
#include "rendezvous/client.h"
#include "tests/support/filled.h"
#include "tests/support/store_thread.h"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace ddprun {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kSoon{20};

TEST_SUITE_BEGIN("rendezvous/client");

TEST_CASE("a value that was set is read") {
    StoreThread server;
    const auto client = server.connect();

    REQUIRE(client->set("key", "value"));

    CHECK(client->get("key") == "value");
}

TEST_CASE("values hold any bytes and any legal size") {
    StoreThread server;
    const auto client = server.connect();
    const std::string large = test::filled(limits::kValueBytesMax, '\0');
    const std::string odd{"\0\xff\n", 3};

    REQUIRE(client->set(odd, odd));
    REQUIRE(client->set("large", large));
    REQUIRE(client->set("empty", ""));

    CHECK(client->get(odd) == odd);
    CHECK(client->get("large") == large);
    CHECK(client->get("empty") == "");
}

TEST_CASE("a set has been applied when it returns whoever looks") {
    StoreThread server;
    const auto writer = server.connect();
    const auto reader = server.connect();
    for (int i = 0; i < 200; ++i) {
        REQUIRE(writer->set("key", std::to_string(i)));
        CHECK(reader->get("key") == std::to_string(i));
    }
}

TEST_CASE("counters add and check tells what is there") {
    StoreThread server;
    const auto client = server.connect();

    CHECK(client->add("n", 5) == 5);
    CHECK(client->add("n", -7) == -2);
    CHECK(client->check({"n"}) == true);
    CHECK(client->check({"n", "m"}) == false);
    CHECK(client->check({}) == true);
}

TEST_CASE("compare set stores only over what is expected") {
    StoreThread server;
    const auto client = server.connect();

    CHECK(client->compare_set("k", "x", "y") == "x");
    CHECK(client->compare_set("k", "", "a") == "a");
    CHECK(client->compare_set("k", "b", "c") == "a");
    CHECK(client->compare_set("k", "a", "c") == "c");
}

TEST_CASE("several keys are set and read in one go") {
    StoreThread server;
    const auto client = server.connect();

    REQUIRE(client->multi_set({{"a", "1"}, {"b", "2"}}));
    REQUIRE(client->append("b", "3"));

    CHECK(client->multi_get({"b", "a"}) == std::vector<std::string>{"23", "1"});
}

TEST_CASE("keys are counted listed without the prefix and removed") {
    StoreThread server;
    const auto client = server.connect();
    StoreClientOptions options = server.options();
    options.key_prefix = "other:";
    const auto other = StoreClient::connect(options);
    REQUIRE(other);
    REQUIRE(client->set("a", ""));
    REQUIRE(client->set("b", ""));
    REQUIRE((*other)->set("c", ""));

    CHECK(client->num_keys() == 3);
    CHECK(client->list_keys() == StoreClient::Keys{"a", "b"});
    CHECK((*other)->list_keys() == StoreClient::Keys{"c"});
    CHECK(client->remove("a") == true);
    CHECK(client->remove("a") == false);
}

TEST_CASE("a queue is first in first out") {
    StoreThread server;
    const auto client = server.connect();
    REQUIRE(client->queue_push("q", "a"));
    REQUIRE(client->queue_push("q", "b"));

    CHECK(client->queue_len("q") == 2);
    CHECK(client->queue_pop("q") == "a");
    CHECK(client->try_queue_pop("q").value() == "b");
    CHECK(client->try_queue_pop("q").value() == std::nullopt);
    const auto empty = client->queue_pop("q", kSoon);
    REQUIRE_FALSE(empty);
    CHECK(empty.error().code == Errc::timed_out);
}

TEST_CASE("get waits until another thread sets") {
    StoreThread server;
    const auto client = server.connect();
    Result<std::string> value{std::string{}};
    std::thread reader{[&] { value = client->get("key"); }};
    server.wait_for_waiting_clients(1);

    // The same client object: its blocked call delays nobody.
    CHECK(client->ping());
    CHECK(client->set("key", "value"));
    reader.join();

    CHECK(value == "value");
}

TEST_CASE("many threads share one client") {
    StoreThread server;
    const auto client = server.connect();
    std::vector<std::thread> threads;
    for (int i = 0; i < 12; ++i) {
        threads.emplace_back([&client, i] {
            for (int n = 0; n < 50; ++n) {
                static_cast<void>(client->add("n", 1));
            }
            static_cast<void>(client->set(std::to_string(i), "done"));
            static_cast<void>(client->barrier("end", 12));
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }

    CHECK(client->add("n", 0) == 600);
    CHECK(client->num_keys() == 14);
}

TEST_CASE("a wait that times out says which keys and leaves the client usable") {
    StoreThread server;
    const auto client = server.connect();

    const auto waited = client->wait({"here", "there"}, kSoon);

    REQUIRE_FALSE(waited);
    CHECK(waited.error().code == Errc::timed_out);
    CHECK(waited.error().context.find("20 ms") != std::string::npos);
    CHECK(waited.error().context.find("here, there") != std::string::npos);
    CHECK(client->set("here", "1"));
    CHECK(client->get("here") == "1");
    CHECK(server.accepted() == 1);
}

TEST_CASE("a wait with time-out zero tells at once what is there") {
    StoreThread server;
    const auto client = server.connect();
    REQUIRE(client->set("here", ""));

    CHECK(client->wait({"here"}, milliseconds{0}));
    CHECK_FALSE(client->wait({"there"}, milliseconds{0}));
    CHECK_FALSE(client->get("there", milliseconds{-5}));
}

TEST_CASE("a barrier that times out is taken back") {
    StoreThread server;
    const auto client = server.connect();

    const auto waited = client->barrier("b", 2, kSoon);

    REQUIRE_FALSE(waited);
    CHECK(waited.error().code == Errc::timed_out);
    CHECK(client->ping());
}

TEST_CASE("a key or value beyond the limit is an error before anything is sent") {
    StoreThread server;
    const auto client = server.connect();

    const auto long_key = client->set(std::string(limits::kKeyBytesMax, 'k'), "");
    const auto long_value = client->set("k", std::string(limits::kValueBytesMax + 1, 'v'));

    REQUIRE_FALSE(long_key);
    CHECK(long_key.error().code == Errc::limit_exceeded);
    REQUIRE_FALSE(long_value);
    CHECK(long_value.error().code == Errc::limit_exceeded);
    CHECK(client->ping());
    CHECK(server.accepted() == 1);
}

TEST_CASE("a request that the server refuses is a lost connection and the next call has a new one"
) {
    StoreThread server;
    const auto client = server.connect();
    REQUIRE(client->set("text", "x"));

    const auto added = client->add("text", 1);

    REQUIRE_FALSE(added);
    CHECK(added.error().code == Errc::connection_lost);
    CHECK(client->get("text") == "x");
    CHECK(server.accepted() == 2);
}

TEST_CASE("a call after the server has been restarted connects again") {
    StoreThread server;
    const auto client = server.connect();
    REQUIRE(client->set("key", "old"));

    server.restart();

    REQUIRE(client->set("key", "new"));
    CHECK(client->get("key") == "new");
}

TEST_CASE("a blocked call ends when the server goes") {
    StoreThread server;
    const auto client = server.connect();
    Result<void> waited;
    std::thread waiting{[&] { waited = client->wait({"never"}); }};
    server.wait_for_waiting_clients(1);

    server.stop();
    waiting.join();

    REQUIRE_FALSE(waited);
    CHECK(waited.error().code == Errc::connection_lost);
}

TEST_CASE("connect gives up at its deadline and says where and why") {
    StoreClientOptions options;
    {
        StoreThread server;
        options = server.options();
    }
    options.connect_timeout = milliseconds{50};

    const auto client = StoreClient::connect(options);

    REQUIRE_FALSE(client);
    CHECK(client.error().code == Errc::connection_refused);
    CHECK(client.error().context.find(std::to_string(options.port)) != std::string::npos);
    CHECK(client.error().context.find("attempts") != std::string::npos);
}

TEST_CASE("connect waits for a server that starts later") {
    StoreThread server;
    server.stop();
    Result<std::unique_ptr<StoreClient>> client;
    std::thread connecting{[&] { client = StoreClient::connect(server.options()); }};

    server.restart();
    connecting.join();

    REQUIRE(client);
    CHECK((*client)->ping());
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
