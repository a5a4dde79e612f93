// What a peer's first bytes say that it is: one port serves clients of the store, agents and the
// curious with a browser. Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace ddprun {

enum class Opening : std::uint8_t {
    incomplete,   ///< more bytes will tell
    store,        ///< the beginning of a VALIDATE with the right magic, as far as it goes
    wrong_magic,  ///< begins like a VALIDATE and goes on differently
    agent,        ///< by its first byte; the rest is for the agents' codec to see
    http,
    stranger,
};

/// `bytes` are all that has come so far, at least one.
[[nodiscard]] Opening opening_of(std::string_view bytes);

}  // namespace ddprun
