// A pseudo-terminal for a worker: what is written to `worker_end` is read from `our_end`, and the
// other way round, with a terminal's line discipline between them.
#pragma once

#include "proto/result.h"
#include "rendezvous/unique_fd.h"

#include <sys/ioctl.h>
#include <termios.h>

namespace ddprun {

struct PseudoTerminal {
    UniqueFd our_end;
    UniqueFd worker_end;
};

/// With the modes and the size of a terminal, but for the treatment of output: bytes of the worker
/// come out as they are (the user's terminal treats them once). Both ends are close-on-exec.
[[nodiscard]] Result<PseudoTerminal> open_pseudo_terminal(termios modes, const winsize& size);

}  // namespace ddprun
