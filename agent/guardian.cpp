#include "agent/guardian.h"

#include "agent/agent_folders.h"
#include "agent/child_process.h"
#include "agent/exit_status.h"
#include "agent/worker_cgroup.h"
#include "proto/error.h"
#include "proto/exit_codes.h"
#include "proto/limits.h"

#include <fmt/format.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>

// Made by the linker: where the program's code begins and ends in memory.
extern "C" const char __executable_start;
extern "C" const char etext;

namespace ddprun {

namespace {

/// At most 15 characters; without "ddprun" in it, see the header.
constexpr const char* kAgentName = "ddp-agent";

sigset_t set_of(const std::set<int>& signals) {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : signals) {
        sigaddset(&set, signal);
    }
    return set;
}

/// The terminal as it was, for an agent that was killed while it had changed it.
class Terminal {
public:
    Terminal() : known_(::tcgetattr(STDIN_FILENO, &modes_) == 0) {}

    /// Only where an agent's process group had the terminal.
    void take_back_from(pid_t agent) const {
        if (!known_ || ::tcgetpgrp(STDIN_FILENO) != agent) {
            return;
        }
        // Otherwise a background process, which we are now, would be stopped.
        ::signal(SIGTTOU, SIG_IGN);
        ::tcsetattr(STDIN_FILENO, TCSANOW, &modes_);
        ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
    }

private:
    termios modes_{};
    bool known_;
};

/// Code that start-up needed and the front never will again: it leaves our memory, and what is
/// wanted all the same is read again from the file.
void forget_code() {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    // NOLINTBEGIN(cppcoreguidelines-pro-type-reinterpret-cast): addresses are what this is about
    const auto begin = reinterpret_cast<std::uintptr_t>(&__executable_start) / page * page;
    const auto end = reinterpret_cast<std::uintptr_t>(&etext) / page * page;
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
    // NOLINTEND(cppcoreguidelines-pro-type-reinterpret-cast)
}

class Front {
public:
    Front(pid_t agent, sigset_t signals, std::set<pid_t> foreign, const GuardSettings& settings)
        : agent_(agent),
          signals_(signals),
          foreign_(std::move(foreign)),
          settings_(settings) {}

    /// Until the agent has ended.
    int run(const Terminal& terminal) {
        while (!reap()) {
            siginfo_t info{};
            const int signal = ::sigwaitinfo(&signals_, &info);
            if (signal > 0 && signal != SIGCHLD) {
                // Its number is its own until we reap it.
                ::kill(agent_, signal);
            }
        }
        terminal.take_back_from(agent_);
        if (agent_status_.kind() == ExitStatus::Kind::exited) {
            return agent_status_.value();
        }
        // Among strangers (children of the program that became ddprun, or of a container whose init
        // process we are) only what carries our mark.
        const bool strangers = ::getpid() == 1 || !foreign_.empty();
        kill_worker_cgroup(settings_.cgroup);
        sweep_children(foreign_, strangers ? settings_.mark : std::string{});
        remove_worker_cgroup(settings_.cgroup);
        remove_folders_left_by(agent_);
        fmt::print(
            stderr,
            "ddprun: its agent (process {}) was ended by {}; its workers are ended too\n",
            agent_,
            to_string(agent_status_)
        );
        return exit_code::from_signal(agent_status_.value());
    }

private:
    /// Reaps everything that has ended; true when the agent is among it.
    bool reap() {
        bool over = false;
        while (true) {
            siginfo_t info{};
            if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) {
                return over;
            }
            if (info.si_pid == agent_) {
                over = true;
                agent_status_ =
                    info.si_code == CLD_EXITED
                        ? ExitStatus::exited(info.si_status)
                        : ExitStatus::signaled(info.si_status, info.si_code == CLD_DUMPED);
            }
        }
    }

    pid_t agent_;
    sigset_t signals_;
    std::set<pid_t> foreign_;
    const GuardSettings& settings_;
    ExitStatus agent_status_;
};

Result<UniqueFd> become_agent(pid_t front) {
    UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, front, 0)));
    // An own number of a front that has died may be another process's by now.
    if (!pidfd.valid() || ::getppid() != front) {
        ::_exit(exit_code::from_signal(SIGKILL));
    }
    ::setpgid(0, 0);
    // We are no foreground group of the terminal and write to it all the same.
    ::signal(SIGTTOU, SIG_IGN);
    ::prctl(PR_SET_NAME, kAgentName);
    return pidfd;
}

}  // namespace

Result<Guarded> split_off_agent(const GuardSettings& settings) {
    std::set<int> awaited = settings.signals;
    awaited.insert(SIGCHLD);
    const sigset_t signals = set_of(awaited);
    // An ignored CHLD would make the kernel reap for us, and the status would be lost.
    ::signal(SIGCHLD, SIG_DFL);
    // Kept from now on: none is lost between here and the loops of the two processes.
    sigset_t before;
    ::sigprocmask(SIG_SETMASK, &signals, &before);
    std::set<pid_t> foreign = children_of_this_process();
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    std::fflush(nullptr);

    const Terminal terminal;
    const pid_t front = ::getpid();
    const pid_t agent = ::fork();
    if (agent < 0) {
        const int error_number = errno;
        ::sigprocmask(SIG_SETMASK, &before, nullptr);
        return fail(from_errno(error_number, "start the agent of this node: fork"));
    }
    if (agent == 0) {
        auto pidfd = become_agent(front);
        return Guarded{std::nullopt, std::move(*pidfd)};
    }
    // Here as well as in the agent: a signal to our group may come before it has got so far.
    ::setpgid(agent, agent);
    forget_code();
    Front loop(agent, signals, std::move(foreign), settings);
    return Guarded{loop.run(terminal), UniqueFd{}};
}

std::set<pid_t> sweep_children(const std::set<pid_t>& spared, const std::string& mark) {
    const sigset_t child = set_of({SIGCHLD});
    const auto until = std::chrono::steady_clock::now() + limits::kSweepTimeMax;
    constexpr timespec kPause{
        0, std::chrono::duration_cast<std::chrono::nanoseconds>(limits::kSweepInterval).count()};
    while (true) {
        std::set<pid_t> alive = kill_orphans(spared, mark);
        if (alive.empty() || std::chrono::steady_clock::now() >= until) {
            return alive;
        }
        // The end of one wakes us; the pause is for a CHLD that was merged with another.
        ::sigtimedwait(&child, nullptr, &kPause);
    }
}

}  // namespace ddprun
