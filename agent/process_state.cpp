#include "agent/process_state.h"

#include <signal.h>
#include <sys/resource.h>

namespace ddprun {

ProcessState capture_process_state() {
    ProcessState state;
    for (int signal = 1; signal < NSIG; ++signal) {
        struct sigaction current {};

        const bool known = ::sigaction(signal, nullptr, &current) == 0;
        if (known && current.sa_handler == SIG_IGN && signal != SIGPIPE && signal != SIGCHLD) {
            state.ignored_signals.insert(signal);
        }
    }
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        state.descriptors_soft = limit.rlim_cur;
        state.descriptors_hard = limit.rlim_max;
    }
    return state;
}

}  // namespace ddprun
