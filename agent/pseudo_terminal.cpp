#include "agent/pseudo_terminal.h"

#include "proto/error.h"

#include <fcntl.h>
#include <stdlib.h>

#include <cerrno>

namespace ddprun {

Result<PseudoTerminal> open_pseudo_terminal(termios modes, const winsize& size) {
    PseudoTerminal pair;
    pair.our_end.reset(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    const bool is_open = pair.our_end.valid() && ::grantpt(pair.our_end.get()) == 0 &&
                         ::unlockpt(pair.our_end.get()) == 0;
    if (is_open) {
        // Without a name in /dev/pts, which a container may lack.
        pair.worker_end.reset(
            ::ioctl(pair.our_end.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC)
        );
    }
    if (!pair.worker_end.valid()) {
        return fail(from_errno(errno, "open a pseudo-terminal for a worker"));
    }
    modes.c_oflag &= ~static_cast<tcflag_t>(OPOST);
    ::tcsetattr(pair.worker_end.get(), TCSANOW, &modes);
    ::ioctl(pair.our_end.get(), TIOCSWINSZ, &size);
    return pair;
}

}  // namespace ddprun
