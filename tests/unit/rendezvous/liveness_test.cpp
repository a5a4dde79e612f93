#include "rendezvous/liveness.h"

#include "proto/limits.h"

#include <doctest/doctest.h>

namespace ddprun {
namespace {

const LiveKey kNode{JobId{"job"}, NodeId{"node1"}};
constexpr Incarnation kLife{7};
const Liveness::Rhythm kRhythm{std::chrono::milliseconds(1'000), 3};

TEST_SUITE_BEGIN("rendezvous/liveness");

TEST_CASE("a silent node is lost half an interval after interval x misses and not before") {
    Liveness liveness;
    liveness.watch(kNode, kLife, kRhythm, Stamp{100});
    CHECK(liveness.deadline() == Stamp{3'600});
    CHECK(liveness.expire(Stamp{3'599}).empty());

    const auto lost = liveness.expire(Stamp{3'600});

    REQUIRE(lost.size() == 1);
    CHECK(lost[0].key == kNode);
    CHECK(lost[0].incarnation == kLife);
    CHECK(lost[0].lost.cause == NodeLost::Cause::silent);
    CHECK(lost[0].lost.since == Stamp{1'100});
    CHECK_FALSE(liveness.deadline());
}

TEST_CASE("each sign of life moves the deadline") {
    Liveness liveness;
    liveness.watch(kNode, kLife, kRhythm, Stamp{0});

    liveness.heard(kNode, kLife, Stamp{2'999});

    CHECK(liveness.expire(Stamp{3'500}).empty());
    CHECK(liveness.deadline() == Stamp{6'499});
}

TEST_CASE("a closed connection that doesn't come back within the grace loses the node") {
    Liveness liveness;
    liveness.watch(kNode, kLife, kRhythm, Stamp{0});

    liveness.connection_closed(kNode, kLife, Stamp{500});
    CHECK(liveness.expire(Stamp{500 + limits::kResumeGrace.count() - 1}).empty());
    const auto lost = liveness.expire(Stamp{500 + limits::kResumeGrace.count()});

    REQUIRE(lost.size() == 1);
    CHECK(lost[0].lost == NodeLost{NodeLost::Cause::closed, Stamp{500}});
}

TEST_CASE("a life that is back within the grace lives on") {
    Liveness liveness;
    liveness.watch(kNode, kLife, kRhythm, Stamp{0});
    liveness.connection_closed(kNode, kLife, Stamp{500});

    liveness.watch(kNode, kLife, kRhythm, Stamp{510});

    CHECK(liveness.expire(Stamp{1'000}).empty());
}

TEST_CASE("what a former life does is of no interest") {
    Liveness liveness;
    liveness.watch(kNode, Incarnation{1}, kRhythm, Stamp{0});
    liveness.watch(kNode, kLife, kRhythm, Stamp{10});

    liveness.connection_closed(kNode, Incarnation{1}, Stamp{20});
    liveness.heard(kNode, Incarnation{1}, Stamp{20});
    liveness.forget(kNode, Incarnation{1});

    CHECK(liveness.deadline() == Stamp{3'510});
}

TEST_CASE("a forgotten node is never lost") {
    Liveness liveness;
    liveness.watch(kNode, kLife, kRhythm, Stamp{0});

    liveness.forget(kNode, kLife);

    CHECK(liveness.expire(Stamp{3'501}).empty());
}

TEST_CASE("a server that was asleep itself gives silent nodes another interval") {
    Liveness liveness;
    liveness.watch(kNode, kLife, kRhythm, Stamp{0});

    CHECK(liveness.expire(Stamp{60'000}).empty());
    CHECK(liveness.deadline() == Stamp{61'000});

    CHECK(liveness.expire(Stamp{61'000}).size() == 1);
}

TEST_CASE("nodes of several jobs are lost in the order of their deadlines") {
    Liveness liveness;
    const LiveKey other{JobId{"another"}, NodeId{"node1"}};
    liveness.watch(kNode, kLife, kRhythm, Stamp{0});
    liveness.watch(other, kLife, kRhythm, Stamp{1});

    const auto lost = liveness.expire(Stamp{3'600});

    REQUIRE(lost.size() == 2);
    CHECK(lost[0].key == kNode);
    CHECK(lost[1].key == other);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
