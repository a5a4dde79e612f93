// The two output streams of a worker, and a choice among them for each worker of a node: torchrun's
// -r and -t.
#pragma once

#include "proto/types.h"

#include <cstdint>
#include <map>

namespace ddprun {

enum class StreamKind : std::uint8_t { out = 0, err = 1 };

/// Sets of streams as torchrun writes them: 0 none, 1 stdout, 2 stderr, 3 both.
struct StreamChoice {
    std::uint8_t others = 0;  ///< of the workers that `by_rank` doesn't name
    std::map<LocalRank, std::uint8_t> by_rank;

    [[nodiscard]] bool has(LocalRank local_rank, StreamKind kind) const {
        const auto found = by_rank.find(local_rank);
        const std::uint8_t set = found == by_rank.end() ? others : found->second;
        return (set & (kind == StreamKind::out ? 1U : 2U)) != 0;
    }

    [[nodiscard]] bool any(StreamKind kind) const {
        const unsigned bit = kind == StreamKind::out ? 1U : 2U;
        unsigned all = others;
        for (const auto& [local_rank, set] : by_rank) {
            all |= set;
        }
        return (all & bit) != 0;
    }

    friend bool operator==(const StreamChoice&, const StreamChoice&) = default;
};

}  // namespace ddprun
