// Servers that are down, stopped, silent, half-hearted or without end: no call of the client
// outlasts its time-out, whichever call it is. All calls are made at once, each in a thread of its
// own, so that a case takes as long as one of them.
#include "proto/limits.h"
#include "proto/store_messages.h"
#include "rendezvous/client.h"
#include "tests/support/filled.h"
#include "tests/support/scripted_store.h"
#include "tests/support/store_thread.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTimeout{300};  // of a call; connecting alone might take ten seconds
/// On a busy machine; a deadline that isn't kept is that of connecting, or one of more than a
/// moment for CANCEL_WAIT.
constexpr milliseconds kLatest{5'000};

struct Call {
    std::string name;
    std::function<std::optional<Error>(StoreClient&)> make;
    bool waits = false;  ///< for a key, with a time-out of its own
};

template <class T>
std::optional<Error> error_of(const Result<T>& result) {
    return result ? std::nullopt : std::optional<Error>{result.error()};
}

/// Every call that there is.
std::vector<Call> all_calls() {
    using Client = StoreClient;
    return {
        {"set", [](Client& c) { return error_of(c.set("k", "v")); }},
        {"get", [](Client& c) { return error_of(c.get("k", kTimeout)); }, true},
        {"add", [](Client& c) { return error_of(c.add("k", 1)); }},
        {"check", [](Client& c) { return error_of(c.check({"k"})); }},
        {"wait", [](Client& c) { return error_of(c.wait({"k"}, kTimeout)); }, true},
        {"compare_set", [](Client& c) { return error_of(c.compare_set("k", "", "v")); }},
        {"multi_get",
         [](Client& c) {
             return error_of(c.multi_get({"k", "l"}, kTimeout));
         },
         true},
        {"multi_set",
         [](Client& c) {
             return error_of(c.multi_set({{"k", "v"}}));
         }},
        {"append", [](Client& c) { return error_of(c.append("k", "v")); }},
        {"remove", [](Client& c) { return error_of(c.remove("k")); }},
        {"num_keys", [](Client& c) { return error_of(c.num_keys()); }},
        {"list_keys", [](Client& c) { return error_of(c.list_keys()); }},
        {"queue_push", [](Client& c) { return error_of(c.queue_push("k", "v")); }},
        {"queue_pop", [](Client& c) { return error_of(c.queue_pop("k", kTimeout)); }, true},
        {"try_queue_pop", [](Client& c) { return error_of(c.try_queue_pop("k")); }},
        {"queue_len", [](Client& c) { return error_of(c.queue_len("k")); }},
        {"barrier", [](Client& c) { return error_of(c.barrier("k", 2, kTimeout)); }, true},
        {"ping", [](Client& c) { return error_of(c.ping()); }},
        {"wait, default", [](Client& c) { return error_of(c.wait({"k"})); }, true},
    };
}

std::unique_ptr<StoreClient> client_of(const ScriptedStore& store) {
    StoreClientOptions options = store.options();
    options.timeout = kTimeout;
    auto client = StoreClient::connect(options);
    REQUIRE(client);
    return std::move(*client);
}

struct Outcome {
    std::optional<Error> error;
    milliseconds elapsed{};
};

Outcome timed(const Call& call, StoreClient& client) {
    const Clock::time_point begin = Clock::now();
    Outcome outcome;
    outcome.error = call.make(client);
    outcome.elapsed = std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
    return outcome;
}

/// Each call fails at its time-out, not before and not much later.
std::vector<Outcome> check_all_end(StoreClient& client, const std::vector<Call>& calls) {
    std::vector<Outcome> outcomes(calls.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < calls.size(); ++i) {
        threads.emplace_back([&, i] { outcomes[i] = timed(calls[i], client); });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    for (std::size_t i = 0; i < calls.size(); ++i) {
        CAPTURE(calls[i].name);
        CHECK(outcomes[i].error.has_value());
        CHECK(outcomes[i].elapsed >= kTimeout);
        CHECK(outcomes[i].elapsed < kLatest);
    }
    return outcomes;
}

TEST_SUITE_BEGIN("rendezvous/client deadlines");

TEST_CASE("no call outlasts its time-out where the server has fallen silent after the greeting") {
    ScriptedStore store{[](int fd) {
        ScriptedStore::greet(fd);
        ScriptedStore::swallow(fd);
    }};
    const auto client = client_of(store);

    for (const Outcome& outcome : check_all_end(*client, all_calls())) {
        REQUIRE(outcome.error);
        CHECK(outcome.error->code == Errc::timed_out);
    }
}

TEST_CASE("no call outlasts its time-out where new connections aren't greeted") {
    std::atomic<bool> greets = true;  // a stopped process: the kernel accepts, nobody answers
    ScriptedStore store{[&greets](int fd) {
        if (greets) {
            ScriptedStore::greet(fd);
        }
        ScriptedStore::swallow(fd);
    }};
    const auto client = client_of(store);
    greets = false;
    store.end_connections();

    for (const Outcome& outcome : check_all_end(*client, all_calls())) {
        REQUIRE(outcome.error);
        CHECK(outcome.error->code == Errc::timed_out);
    }
}

TEST_CASE("no call outlasts its time-out where the server is down") {
    auto store = std::make_unique<ScriptedStore>([](int fd) {
        ScriptedStore::greet(fd);
        ScriptedStore::swallow(fd);
    });
    const auto client = client_of(*store);
    store.reset();

    for (const Outcome& outcome : check_all_end(*client, all_calls())) {
        REQUIRE(outcome.error);
        CHECK(outcome.error->code == Errc::connection_refused);
        CHECK(outcome.error->context.find("attempts in ") != std::string::npos);
    }
}

TEST_CASE("no call outlasts its time-out where the server answers that a key is there and no more"
) {
    ScriptedStore store{[](int fd) {
        ScriptedStore::greet(fd);
        std::string wait;
        encode_request(WaitRequest{{"/k"}}, wait);
        if (ScriptedStore::receive(fd, wait.size()) == wait) {
            ScriptedStore::send(fd, std::string(1, static_cast<char>(kStopWaiting)));
        }
        ScriptedStore::swallow(fd);
    }};
    const auto client = client_of(store);
    std::vector<Call> calls;
    for (const Call& call : all_calls()) {
        if (call.name == "get" || call.name == "queue_pop") {
            calls.push_back(call);
        }
    }
    calls.push_back({"multi_get", [](StoreClient& c) {
                         return error_of(c.multi_get({"k"}, kTimeout));
                     }});
    StoreClientOptions options = store.options();  // whose own time-out is no bound here
    const auto patient = StoreClient::connect(options);
    REQUIRE(patient);

    check_all_end(**patient, calls);
}

TEST_CASE("no call outlasts its time-out where the answer never ends") {
    ScriptedStore store{[](int fd) {
        ScriptedStore::greet(fd);
        std::string endless(sizeof(std::int64_t), '\xff');
        endless.back() = '\x7f';  // so many keys will come
        for (int i = 0; i < 1'000; ++i) {
            endless += std::string{"\x02\0\0\0\0\0\0\0/k", 10};
        }
        std::string request;
        encode_request(ListKeysRequest{}, request);
        ScriptedStore::receive(fd, request.size());
        ScriptedStore::send(fd, endless);
        while (ScriptedStore::send(fd, std::string_view{endless}.substr(sizeof(std::int64_t)))) {
        }
    }};
    const auto client = client_of(store);

    const auto outcomes = check_all_end(
        *client, {{"list_keys", [](StoreClient& c) { return error_of(c.list_keys()); }}}
    );
    CHECK(outcomes.front().error->code == Errc::timed_out);
}

TEST_CASE("no call outlasts its time-out where the server reads a long request too slowly") {
    constexpr std::size_t kPiece = 4'096;
    ScriptedStore store{[](int fd) {
        ScriptedStore::greet(fd);
        // Always a little, so that there is always room for a little more.
        std::promise<void> never;
        const auto pause = never.get_future();
        while (!ScriptedStore::receive(fd, kPiece).empty()) {
            pause.wait_for(milliseconds{1});
        }
    }};
    const auto client = client_of(store);
    const std::string large = test::filled(limits::kValueBytesMax, 'v');
    const StoreClient::KeyValues pairs(7, {"k", large});

    check_all_end(
        *client, {{"multi_set", [&pairs](StoreClient& c) { return error_of(c.multi_set(pairs)); }}}
    );
}

TEST_CASE("a wait whose end the server doesn't confirm says so and its connection isn't used again"
) {
    std::atomic<int> number = 0;
    ScriptedStore store{[&number](int fd) {
        ScriptedStore::greet(fd);
        if (number++ == 0) {
            ScriptedStore::swallow(fd);
        }
        while (true) {  // further ones: a PING each
            std::string ping;
            encode_request(PingRequest{0}, ping);
            const std::string got = ScriptedStore::receive(fd, ping.size());
            if (got.empty() || !ScriptedStore::send(fd, got.substr(1))) {
                return;
            }
        }
    }};
    const auto client = client_of(store);

    const auto waited = client->wait({"here", "there"}, kTimeout);

    REQUIRE_FALSE(waited);
    CHECK(waited.error().code == Errc::timed_out);
    CHECK(waited.error().context.find("timed out after 300 ms") != std::string::npos);
    CHECK(waited.error().context.find("here, there") != std::string::npos);
    CHECK(waited.error().context.find("answers nothing") != std::string::npos);
    CHECK(client->ping());
    CHECK(store.accepted() == 2);
}

TEST_CASE("the longest time-outs that can be written are long ones") {
    StoreThread server;
    StoreClientOptions options = server.options();
    options.timeout = milliseconds::max();
    options.connect_timeout = milliseconds::max();
    const auto client = StoreClient::connect(options);
    REQUIRE(client);

    CHECK((*client)->set("k", "v"));
    CHECK((*client)->get("k", milliseconds::max()) == "v");
    CHECK((*client)->wait({"k"}));
    CHECK_FALSE((*client)->wait({"l"}, milliseconds::min()));
}

TEST_CASE("connect tries until its deadline and tells how long that was") {
    const ClosedPort port;
    StoreClientOptions options;
    options.host = "127.0.0.1";
    options.port = port.number();
    options.connect_timeout = kTimeout;

    const Clock::time_point begin = Clock::now();
    const auto client = StoreClient::connect(options);
    const auto elapsed = std::chrono::duration_cast<milliseconds>(Clock::now() - begin);

    REQUIRE_FALSE(client);
    CHECK(client.error().code == Errc::connection_refused);
    CHECK(elapsed >= kTimeout);
    CHECK(elapsed < kLatest);
    const std::string_view text = client.error().context;
    const std::size_t in = text.find("attempts in ");
    REQUIRE(in != std::string_view::npos);
    const int told =
        std::stoi(std::string{text.substr(in + std::string_view{"attempts in "}.size())});
    CHECK(milliseconds{told} >= kTimeout);
    CHECK(milliseconds{told} <= elapsed);
}

TEST_CASE("a server that comes up late in the time to connect is found") {
    constexpr milliseconds kWhole{3'000};
    constexpr milliseconds kUp{2'100};
    StoreThread server;
    server.stop();
    StoreClientOptions options = server.options();
    options.connect_timeout = kWhole;
    Result<std::unique_ptr<StoreClient>> client;
    const Clock::time_point begin = Clock::now();
    auto connecting =
        std::async(std::launch::async, [&] { client = StoreClient::connect(options); });

    // The moment is what is tested; had the client given up, it would be over before.
    CHECK(connecting.wait_until(begin + kUp) == std::future_status::timeout);
    server.restart();
    connecting.wait();

    REQUIRE(client);
    CHECK((*client)->ping());
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
