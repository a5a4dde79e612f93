// SIGTERM and SIGINT as a wish: the training loop looks at it after each step. Until `catch_all` a
// signal ends the process at once, as does a second one after it.
#pragma once

namespace ddprun::trainer::stop_signal {

/// From now on the first of each signal is only remembered, unless it is ignored already.
void catch_all();

/// The number of the signal that came last, or 0.
[[nodiscard]] int pending();

}  // namespace ddprun::trainer::stop_signal
