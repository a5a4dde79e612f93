// A resolver that doesn't answer: getaddrinfo() of this program blocks for one name until the test
// lets it go, and is the system's for all others.
#include "tests/support/store_thread.h"

#include <doctest/doctest.h>

#include <dlfcn.h>
#include <netdb.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace {

constexpr std::string_view kHangingName = "hangs.invalid";

/// Look-ups of kHangingName: blocked while `is_closed`, counted when they begin and end.
struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_closed = true;
    int begun = 0;
    int ended = 0;
};

Gate& gate() {
    static Gate the_gate;
    return the_gate;
}

void wait_at_gate() {
    Gate& the_gate = gate();
    std::unique_lock lock{the_gate.mutex};
    ++the_gate.begun;
    the_gate.changed.wait(lock, [&] { return !the_gate.is_closed; });
    ++the_gate.ended;
    the_gate.changed.notify_all();
}

}  // namespace

extern "C" int getaddrinfo(
    const char* node, const char* service, const addrinfo* hints, addrinfo** result
) {
    const bool is_numeric_only = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
    if (node != nullptr && node == kHangingName && !is_numeric_only) {
        wait_at_gate();
        return EAI_AGAIN;
    }
    using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
    static const auto next = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "getaddrinfo"));
    return next(node, service, hints, result);
}

namespace ddprun {
namespace {

using std::chrono::milliseconds;

TEST_SUITE_BEGIN("rendezvous/client names");

TEST_CASE("a name is looked up and connected to") {
    StoreThread server;
    StoreClientOptions options = server.options();
    options.host = "localhost";

    const auto client = StoreClient::connect(options);

    REQUIRE(client);
    CHECK((*client)->ping());
}

TEST_CASE("a name that nobody knows is an error that says so") {
    StoreClientOptions options;
    options.host = "no such name";
    options.port = 1;
    options.connect_timeout = milliseconds{20};

    const auto client = StoreClient::connect(options);

    REQUIRE_FALSE(client);
    CHECK(client.error().code == Errc::not_found);
    CHECK(client.error().context.find("look up the name no such name") != std::string::npos);
}

TEST_CASE("a resolver that doesn't answer outlasts no deadline and holds one thread at most") {
    StoreClientOptions options;
    options.host = kHangingName;
    options.port = 1;
    options.connect_timeout = milliseconds{300};
    {
        const auto client = StoreClient::connect(options);  // returns while the look-up still hangs

        REQUIRE_FALSE(client);
        CHECK(client.error().code == Errc::timed_out);
        CHECK(client.error().context.find("look up the name hangs.invalid") != std::string::npos);
    }

    Gate& the_gate = gate();
    std::unique_lock lock{the_gate.mutex};
    CHECK(the_gate.begun == 1);
    CHECK(the_gate.ended == 0);
    the_gate.is_closed = false;
    the_gate.changed.notify_all();
    // Its client is long gone; the thread ends by itself all the same.
    CHECK(the_gate.changed.wait_for(lock, std::chrono::seconds{20}, [&] {
        return the_gate.ended == 1;
    }));
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
