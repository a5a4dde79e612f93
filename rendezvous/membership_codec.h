// The stored form of a job's membership: its state, and the events that made it, as bytes in the
// manner of the agent protocol (docs/wire.md). The same events, read back and stepped in order,
// give the same state on any machine, so a log of them can live anywhere. Pure.
#pragma once

#include "proto/result.h"
#include "rendezvous/membership_events.h"
#include "rendezvous/membership_state.h"

#include <string>
#include <string_view>

namespace ddprun {

/// First byte of each of the two.
inline constexpr std::uint8_t kMembershipCodecVersion = 1;

/// What a log keeps of one call of Membership::step.
struct MembershipStep {
    Stamp now;
    MembershipEvent event;

    friend bool operator==(const MembershipStep&, const MembershipStep&) = default;
};

/// Appends to `out`.
void encode(const MembershipState& state, std::string& out);
void encode(const MembershipStep& step, std::string& out);

/// Errors: Errc::malformed, Errc::version_mismatch.
[[nodiscard]] Result<MembershipState> decode_membership_state(std::string_view bytes);
[[nodiscard]] Result<MembershipStep> decode_membership_step(std::string_view bytes);

}  // namespace ddprun
