// Counts what this program has on the heap through operator new: link it into a test that bounds
// memory. One thread's use of it is exact; several threads' is not.
#pragma once

#include <cstddef>

namespace ddprun {

/// Bytes that are allocated now.
[[nodiscard]] std::size_t heap_bytes();

/// The most since the last reset.
[[nodiscard]] std::size_t heap_peak_bytes();

void reset_heap_peak();

}  // namespace ddprun
