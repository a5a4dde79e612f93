// A job's membership as bytes and back.
#include "rendezvous/membership_codec.h"

#include "tests/unit/rendezvous/membership_job.h"

#include <doctest/doctest.h>

#include <string>

namespace ddprun {
namespace {

using test::TestJob;

/// A job in the middle of a stop, with something in every field that it can have.
MembershipState busy_state() {
    TestJob job({2, 4, 3});
    job.join("1", 0);
    job.join("2");
    job.join("3", 0);  // refused
    job.after(10'000);
    job.begin();
    job.join("4", std::nullopt, 7);
    job.worker_fails("2", 0, 3);
    job.leave("1");
    return job.core().state();
}

TEST_SUITE_BEGIN("rendezvous/membership_codec");

TEST_CASE("a state reads back as it was") {
    const MembershipState state = busy_state();
    std::string bytes;
    encode(state, bytes);

    const auto again = decode_membership_state(bytes);

    REQUIRE(again);
    CHECK(*again == state);
}

TEST_CASE("an event reads back as it was") {
    for (const MembershipEvent& event : std::vector<MembershipEvent>{
             {NodeId{}, Incarnation{}, DeadlineExpired{}},
             {NodeId{"n"}, Incarnation{3}, NodeLost{NodeLost::Cause::silent, Stamp{9}}},
             {NodeId{"n"}, Incarnation{3}, Leave{SequenceNumber{1}, 15}},
             {NodeId{"n"},
              Incarnation{3},
              WorkerFailed{
                  SequenceNumber{2}, Round{4}, TestJob::failure("n", 1, FailureKind::signaled)}},
         }) {
        std::string bytes;
        encode(MembershipStep{Stamp{5}, event}, bytes);

        const auto again = decode_membership_step(bytes);

        REQUIRE(again);
        CHECK(*again == MembershipStep{Stamp{5}, event});
    }
}

TEST_CASE("a state that is cut anywhere, or of another version, is an error") {
    std::string bytes;
    encode(busy_state(), bytes);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        CHECK(!decode_membership_state(std::string_view{bytes}.substr(0, size)));
    }
    CHECK(!decode_membership_state(bytes + "x"));
    ++bytes[0];

    const auto foreign = decode_membership_state(bytes);

    REQUIRE(!foreign);
    CHECK(foreign.error().code == Errc::version_mismatch);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
