// Signals as wishes, at which the training loop looks after each step: SIGTERM and SIGINT to save
// and end, SIGUSR1 to save and go on. Until `catch_all` a stop signal ends the process at once, as
// does a second one after it.
#pragma once

namespace ddprun::trainer::stop_signal {

/// From now on SIGUSR1 is only remembered, unless it is ignored already. First of all: it may come
/// while the job still begins.
void catch_save_wish();

/// From now on the first of each stop signal is only remembered, unless it is ignored already.
void catch_all();

/// The number of the stop signal that came last, or 0.
[[nodiscard]] int pending();

/// Whether SIGUSR1 has come since the last call.
[[nodiscard]] bool take_save_wish();

}  // namespace ddprun::trainer::stop_signal
