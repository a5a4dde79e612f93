#include "trainer/stop_signal.h"

#include <atomic>
#include <csignal>

namespace ddprun::trainer::stop_signal {
namespace {

std::atomic<int> last{0};
std::atomic<bool> save_wish{false};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler stores it");

}  // namespace

void catch_save_wish() {
    struct sigaction action = {};

    action.sa_handler = [](int) { save_wish.store(true); };
    action.sa_flags = SA_RESTART;
    struct sigaction before = {};

    ::sigaction(SIGUSR1, nullptr, &before);
    if (before.sa_handler != SIG_IGN) {
        ::sigaction(SIGUSR1, &action, nullptr);
    }
}

void catch_all() {
    struct sigaction action = {};

    action.sa_handler = [](int signal) { last.store(signal); };
    // RESETHAND: the second signal finds the default action.
    action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
    for (const int signal : {SIGTERM, SIGINT}) {
        struct sigaction before = {};

        ::sigaction(signal, nullptr, &before);
        if (before.sa_handler != SIG_IGN) {
            ::sigaction(signal, &action, nullptr);
        }
    }
}

int pending() {
    return last.load();
}

bool take_save_wish() {
    return save_wish.exchange(false);
}

}  // namespace ddprun::trainer::stop_signal
