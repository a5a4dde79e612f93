// What this process was given by its parent and must pass on to workers unchanged, whatever it
// changes for itself: ignored signals, the limit of open descriptors. Captured before any change.
#pragma once

#include <cstdint>
#include <set>

namespace ddprun {

struct ProcessState {
    /// Signals that were ignored (nohup, a background job of a shell) and stay so, here and in the
    /// workers. PIPE and CHLD are not among them: those are always set right.
    std::set<int> ignored_signals;
    std::uint64_t descriptors_soft = 0;  ///< RLIMIT_NOFILE; 0: not known, left as it is
    std::uint64_t descriptors_hard = 0;
};

[[nodiscard]] ProcessState capture_process_state();

}  // namespace ddprun
