#include "rendezvous/deadline_queues.h"

#include <boost/asio/io_context.hpp>
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace ddprun {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using Clock = DeadlineQueues::Clock;
using Kind = DeadlineQueues::Kind;

struct Member : DeadlineQueues::Member {
    explicit Member(int number_) : number(number_) {}

    int number;
};

/// Handshakes have 5 ms, progress 10 ms, whole requests an hour.
struct Deadlines {
    boost::asio::io_context io_context;
    std::vector<int> late;
    int others_calls = 0;
    std::function<void(Member&, Kind)> on_late = [this](Member& member, Kind kind) {
        queues->clear(member, kind);
    };
    std::shared_ptr<DeadlineQueues> queues = std::make_shared<DeadlineQueues>(
        io_context,
        std::array<Clock::duration, DeadlineQueues::kKinds>{
            milliseconds{5}, milliseconds{10}, hours{1}},
        DeadlineQueues::Handlers{
            [this](DeadlineQueues::Member& member, Kind kind) {
                late.push_back(static_cast<Member&>(member).number);
                on_late(static_cast<Member&>(member), kind);
            },
            [this](Clock::time_point) {
                ++others_calls;
                return std::optional<Clock::time_point>{};
            },
        }
    );
    Member first{1};
    Member second{2};

    /// Until `count` were late.
    void run_until_late(std::size_t count) {
        while (late.size() < count && io_context.run_one_for(std::chrono::seconds{10}) > 0) {
        }
    }
};

TEST_SUITE_BEGIN("rendezvous/deadline_queues");

TEST_CASE("deadlines pass in the order of their time, whatever their kind") {
    Deadlines deadlines;
    deadlines.queues->set(deadlines.first, Kind::request);
    deadlines.queues->set(deadlines.second, Kind::progress);
    deadlines.queues->set(deadlines.first, Kind::handshake);

    deadlines.run_until_late(2);

    CHECK(deadlines.late == std::vector<int>{1, 2});
    CHECK(deadlines.first.has_deadline(Kind::request));
    CHECK_FALSE(deadlines.first.has_deadline(Kind::handshake));
    deadlines.queues->clear_all(deadlines.first);
    CHECK_FALSE(deadlines.first.has_deadline(Kind::request));
}

TEST_CASE("a deadline that is cleared doesn't pass, one that is set anew begins anew") {
    Deadlines deadlines;
    deadlines.queues->set(deadlines.first, Kind::handshake);
    deadlines.queues->set(deadlines.second, Kind::handshake);
    deadlines.queues->clear(deadlines.first, Kind::handshake);
    int renewals = 3;
    deadlines.on_late = [&](Member& member, Kind kind) {
        if (renewals-- > 0) {
            deadlines.queues->set(member, kind);
        } else {
            deadlines.queues->clear(member, kind);
        }
    };

    deadlines.run_until_late(4);

    CHECK(deadlines.late == std::vector<int>{2, 2, 2, 2});
}

TEST_CASE("what else is due is called at its time, and at every timer before") {
    Deadlines deadlines;

    deadlines.queues->wake_by(Clock::now() + milliseconds{5});
    while (deadlines.others_calls == 0 &&
           deadlines.io_context.run_one_for(std::chrono::seconds{10}) > 0) {
    }

    CHECK(deadlines.others_calls == 1);
    CHECK(deadlines.late.empty());
}

TEST_CASE("closed from a handler, it lets the loop run out of work") {
    Deadlines deadlines;
    deadlines.queues->set(deadlines.first, Kind::request);  // for an hour
    deadlines.queues->set(deadlines.second, Kind::handshake);
    deadlines.on_late = [&](Member& member, Kind kind) {
        deadlines.queues->clear(member, kind);
        deadlines.queues->close();
    };

    deadlines.run_until_late(1);

    CHECK(deadlines.io_context.run_for(milliseconds{0}) == 0);
    CHECK(deadlines.io_context.stopped());
    deadlines.queues->clear_all(deadlines.first);
}

TEST_CASE("no handler is called once its owner has let go") {
    Deadlines deadlines;
    deadlines.queues->set(deadlines.first, Kind::handshake);
    deadlines.queues->clear_all(deadlines.first);
    deadlines.queues->wake_by(Clock::now());

    deadlines.queues.reset();
    deadlines.io_context.run();

    CHECK(deadlines.others_calls == 0);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
