#include "agent/exit_status.h"

#include <fmt/format.h>

#include <signal.h>
#include <string.h>

namespace ddprun {

std::string signal_name(int signal) {
    // From glibc: the abbreviation of a standard signal, null for others.
    if (const char* name = ::sigabbrev_np(signal); name != nullptr) {
        return fmt::format("SIG{}", name);
    }
    if (signal >= SIGRTMIN && signal <= SIGRTMAX) {
        return fmt::format("SIGRTMIN+{}", signal - SIGRTMIN);
    }
    return fmt::format("signal {}", signal);
}

std::string to_string(const ExitStatus& status) {
    switch (status.kind()) {
        case ExitStatus::Kind::running: return "running";
        case ExitStatus::Kind::exited: return fmt::format("exit code {}", status.value());
        case ExitStatus::Kind::signaled:
            return fmt::format(
                "signal {} ({}){}",
                status.value(),
                signal_name(status.value()),
                status.core_dumped() ? ", core dumped" : ""
            );
    }
    return "unknown";
}

}  // namespace ddprun
