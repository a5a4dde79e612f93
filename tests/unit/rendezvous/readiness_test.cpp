#include "rendezvous/readiness.h"

#include "rendezvous/unique_fd.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <memory>
#include <vector>

namespace ddprun {
namespace {

constexpr Ready kRead{true, false};
constexpr Ready kWrite{false, true};

/// One end of a pair of sockets is watched, the other one is the peer's.
class Pair final : public Readiness::Watcher {
public:
    Pair() {
        std::array<int, 2> ends{};
        const int made =
            ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data());
        REQUIRE(made == 0);
        ours = UniqueFd{ends[0]};
        peer = UniqueFd{ends[1]};
    }

    void on_ready(Ready ready) override {
        ++told;
        last = ready;
        if (then) {
            then();
        }
    }

    void send() const { CHECK(::write(peer.get(), "x", 1) == 1); }

    /// One byte of what the peer sent.
    void take() const {
        char byte = 0;
        CHECK(::read(ours.get(), &byte, 1) == 1);
    }

    UniqueFd ours;
    UniqueFd peer;
    std::function<void()> then;
    int told = 0;
    Ready last;
};

struct Loop {
    Loop() {
        auto opened = Readiness::open(io_context);
        REQUIRE(opened);
        readiness = std::move(*opened);
    }

    bool add(Pair& pair, Ready wanted = kRead) const {
        return readiness->add(pair.ours.get(), pair, wanted);
    }

    /// All have a byte to read; who is told of it does `then`.
    void make_ready(std::vector<Pair>& pairs, const std::function<void()>& then) const {
        for (Pair& pair : pairs) {
            REQUIRE(add(pair));
            pair.send();
            pair.then = then;
        }
    }

    void remove(Pair& pair) const { readiness->remove(pair.ours.get(), pair); }

    /// What is ready now, once.
    void turn() {
        if (io_context.stopped()) {
            io_context.restart();
        }
        io_context.poll_one();
    }

    boost::asio::io_context io_context{1};
    std::shared_ptr<Readiness> readiness;
};

TEST_SUITE_BEGIN("rendezvous/readiness");

TEST_CASE("a watcher is told of bytes for as long as they are there") {
    Loop loop;
    Pair pair;
    REQUIRE(loop.add(pair));
    loop.turn();
    CHECK(pair.told == 0);

    pair.send();
    loop.turn();
    CHECK(pair.told == 1);
    CHECK(pair.last == kRead);
    loop.turn();
    CHECK(pair.told == 2);
    pair.take();
    loop.turn();
    CHECK(pair.told == 2);

    pair.send();
    loop.turn();
    CHECK(pair.told == 3);
}

TEST_CASE("a watcher is told of room only while it wants to be") {
    Loop loop;
    Pair pair;
    REQUIRE(loop.add(pair, kWrite));
    loop.turn();
    CHECK(pair.told == 1);
    CHECK(pair.last == kWrite);

    loop.readiness->change(pair.ours.get(), pair, kRead);
    loop.turn();
    CHECK(pair.told == 1);
}

TEST_CASE("the end of a connection counts as ready for both") {
    Loop loop;
    Pair pair;
    REQUIRE(loop.add(pair, kWrite));

    pair.peer.reset();
    loop.turn();

    CHECK(pair.last == Ready{true, true});
}

TEST_CASE("who is removed hears no more, though an event that names it was under way") {
    Loop loop;
    std::vector<Pair> pairs(10);
    int told = 0;
    loop.make_ready(pairs, [&] {
        ++told;
        for (Pair& other : pairs) {  // whoever is first removes all, itself too
            loop.remove(other);
        }
    });

    loop.turn();
    loop.turn();

    CHECK(told == 1);
}

TEST_CASE("a removed watcher's memory may be another one's at once, who hears its own events only"
) {
    Loop loop;
    Pair first;
    Pair second;
    REQUIRE(loop.add(first));
    REQUIRE(loop.add(second));
    first.send();
    second.send();
    // Whoever is told first removes the other and comes back in its place without a byte to read.
    const auto replace = [&](Pair& self, Pair& other) {
        loop.remove(other);
        other.take();
        self.take();
        REQUIRE(loop.add(other));
    };
    first.then = [&] { replace(first, second); };
    second.then = [&] { replace(second, first); };

    loop.turn();
    loop.turn();

    CHECK(first.told + second.told == 1);
}

TEST_CASE("it may be destroyed by whom it tells") {
    Loop loop;
    std::vector<Pair> pairs(3);
    int told = 0;
    loop.make_ready(pairs, [&] {
        ++told;
        if (loop.readiness != nullptr) {
            loop.readiness->close();
            loop.readiness.reset();
        }
    });

    loop.turn();
    loop.turn();

    CHECK(told == 1);
}

TEST_CASE("destroyed before an event that has come is told, it tells nobody") {
    Loop loop;
    Pair pair;
    REQUIRE(loop.add(pair));
    pair.send();
    boost::asio::post(loop.io_context, [&] { loop.readiness.reset(); });

    for (int i = 0; i < 3; ++i) {
        loop.turn();
    }

    CHECK(pair.told == 0);
}

TEST_CASE("others on the loop have their turn after a bounded number of events") {
    constexpr std::size_t kMany = 400;
    Loop loop;
    std::vector<Pair> pairs(kMany);
    std::size_t told = 0;
    std::size_t told_before = 0;
    for (Pair& pair : pairs) {
        REQUIRE(loop.add(pair));
        pair.send();
        pair.then = [&] {
            if (++told == 1) {
                boost::asio::post(loop.io_context, [&] { told_before = told; });
            }
        };  // reads nothing: it stays ready
    }

    while (told_before == 0) {
        loop.turn();
    }

    CHECK(told_before > 0);
    CHECK(told_before <= Readiness::kEventsPerTurnMax);
    while (told < kMany) {
        loop.turn();
    }
    for (const Pair& pair : pairs) {  // nobody waits for a second event of another one
        CHECK(pair.told >= 1);
        CHECK(pair.told <= 2);
    }
}

TEST_CASE("it keeps the loop at work until it is closed") {
    Loop loop;
    CHECK(loop.io_context.poll() == 0);
    CHECK(loop.io_context.stopped());  // nobody is watched yet
    loop.io_context.restart();
    Pair pair;
    REQUIRE(loop.add(pair));
    loop.io_context.poll();
    CHECK(!loop.io_context.stopped());

    loop.remove(pair);
    loop.readiness->close();
    loop.io_context.poll();

    CHECK(loop.io_context.stopped());
}

TEST_CASE("what can't be watched is said") {
    Loop loop;
    Pair pair;
    const UniqueFd file{::open("/etc/passwd", O_RDONLY | O_CLOEXEC)};

    CHECK(!loop.readiness->add(file.get(), pair, kRead));
    CHECK(loop.add(pair));
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
