// When a server should give memory back to the system. glibc keeps what is free below something
// that lives, so without this a server would stay as large as its largest crowd of clients has made
// it. Pure: told what the server holds, it says when that is far below the most since the last
// time.
#pragma once

#include "proto/limits.h"

#include <algorithm>
#include <cstddef>

namespace ddprun {

class HeapUse {
public:
    /// What is held now, in bytes, and in how many allocations, both roughly.
    void holds(std::size_t bytes, std::size_t pieces) {
        bytes_ = bytes;
        pieces_ = pieces;
        most_ = std::max(most_, bytes);
    }

    /// Enough was freed, and so few pieces live that it doesn't take long: each free piece is
    /// looked at, and there are hardly more of these than of living ones.
    [[nodiscard]] bool is_due() const {
        return most_ - bytes_ >= limits::kTrimBytesMin && pieces_ <= limits::kTrimPiecesMax;
    }

    /// It was given back.
    void trimmed() { most_ = bytes_; }

private:
    std::size_t bytes_ = 0;
    std::size_t pieces_ = 0;
    std::size_t most_ = 0;  ///< bytes since the last time
};

}  // namespace ddprun
