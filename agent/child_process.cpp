#include "agent/child_process.h"

#include "agent/start_steps.h"
#include "proto/assert.h"

#include <boost/asio/buffer.hpp>
#include <fmt/format.h>

#include <dirent.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

namespace ddprun {

namespace {

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
/// vfork() into a control group: moving a process there afterwards takes 20 ms. The child runs on
/// our stack, deeper than we do, and we go on when it has executed or ended. In a function of its
/// own, so that nothing is in the registers that the child would change.
[[gnu::noinline]] pid_t vfork_into(int cgroup_fd, const StartSteps& steps) {
    clone_args arguments{};
    arguments.flags = CLONE_VM | CLONE_VFORK | CLONE_INTO_CGROUP;
    arguments.exit_signal = SIGCHLD;
    arguments.cgroup = static_cast<std::uint64_t>(cgroup_fd);
    long result = SYS_clone3;
    asm volatile("syscall"
                 : "+a"(result)
                 : "D"(&arguments), "S"(sizeof arguments)
                 : "rcx", "r11", "memory");
    if (result == 0) {
        steps.become_program();
    }
    return result < 0 ? -1 : static_cast<pid_t>(result);
}
#else
/// Nowhere else: the caller does without the group.
pid_t vfork_into(int /*cgroup_fd*/, const StartSteps& /*steps*/) {
    return -1;
}
#endif

/// All signals are blocked in this thread while it lives, so that none reaches a handler of ours in
/// a child that has not executed yet.
class SignalsBlocked {
public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }

    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

    ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
    sigset_t before_{};
};

std::vector<int> signals_ignored_now() {
    std::vector<int> ignored;
    for (int signal = 1; signal < NSIG; ++signal) {
        struct sigaction current {};

        if (::sigaction(signal, nullptr, &current) == 0 && current.sa_handler == SIG_IGN) {
            ignored.push_back(signal);
        }
    }
    return ignored;
}

ExitStatus status_of(const siginfo_t& info) {
    switch (info.si_code) {
        case CLD_EXITED: return ExitStatus::exited(info.si_status);
        case CLD_DUMPED: return ExitStatus::signaled(info.si_status, true);
        default: return ExitStatus::signaled(info.si_status, false);
    }
}

bool is_ended(pid_t pid) {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
}

bool carries(pid_t pid, const std::string& mark) {
    std::ifstream file(fmt::format("/proc/{}/environ", pid), std::ios::binary);
    for (std::string entry; std::getline(file, entry, '\0');) {
        if (entry == mark) {
            return true;
        }
    }
    return false;
}

void reap(pid_t pid) {
    while (::waitid(P_PID, static_cast<id_t>(pid), nullptr, WEXITED | WNOHANG) != 0 &&
           errno == EINTR) {
    }
}

}  // namespace

// ---- one child
// -----------------------------------------------------------------------------------

ChildProcess::ChildProcess(boost::asio::any_io_executor executor, pid_t pid, UniqueFd pidfd)
    : pidfd_(std::move(executor), pidfd.release()),
      pid_(pid) {}

ChildProcess::~ChildProcess() {
    DDPRUN_ASSERT(released_);
}

void ChildProcess::async_wait(std::function<void(ExitStatus)> handler) {
    handler_ = std::move(handler);
    wait_again();
}

void ChildProcess::wait_again() {
    pidfd_.async_wait(
        boost::asio::posix::stream_descriptor::wait_read,
        [this](const boost::system::error_code& error) {
            if (error || released_) {
                return;
            }
            if (look()) {
                pidfd_.close();
                std::exchange(handler_, nullptr)(status_);
            } else {
                wait_again();
            }
        }
    );
}

bool ChildProcess::look() {
    siginfo_t info{};
    const auto fd = static_cast<id_t>(pidfd_.native_handle());
    const int flags = WEXITED | WNOHANG | WNOWAIT;
    if (::waitid(static_cast<idtype_t>(P_PIDFD), fd, &info, flags) != 0 || info.si_pid == 0) {
        return false;
    }
    status_ = status_of(info);
    return true;
}

void ChildProcess::send_signal(int signal) const {
    if (!released_ && !ended()) {
        // Its number is ours until we reap it, so it can't be another process.
        ::kill(pid_, signal);
    }
}

void ChildProcess::signal_group(int signal) const {
    if (!released_) {
        ::kill(-pid_, signal);
    }
}

void ChildProcess::release() {
    DDPRUN_ASSERT(ended() && !released_);
    signal_group(SIGKILL);
    reap(pid_);
    released_ = true;
}

void ChildProcess::abandon() {
    if (!released_) {
        signal_group(SIGKILL);
        ::kill(pid_, SIGKILL);
        reap(pid_);
        released_ = true;
    }
}

// ---- a batch
// -------------------------------------------------------------------------------------

ChildBatch::ChildBatch(boost::asio::any_io_executor executor)
    : executor_(std::move(executor)),
      read_end_(executor_),
      ignored_now_(signals_ignored_now()) {
    int fds[2] = {-1, -1};
    if (::pipe2(fds, O_CLOEXEC) == 0) {
        read_end_.assign(fds[0]);
        write_end_.reset(fds[1]);
    } else {
        pipe_error_ = errno;
    }
}

Result<std::unique_ptr<ChildProcess>> ChildBatch::start(const ChildSpec& spec) {
    if (!write_end_.valid()) {
        return fail(from_errno(pipe_error_, fmt::format("start {}: make a pipe", spec.program)));
    }
    const StartSteps steps(
        spec, ignored_now_, static_cast<std::int32_t>(started_), write_end_.get()
    );
    ++started_;
    pid_t pid = -1;
    int fork_error = 0;
    {
        const SignalsBlocked blocked;
        // The memory stays ours, so nothing of it is copied, however much there is; we go on when
        // the child has executed or ended.
        pid = spec.cgroup_fd < 0 ? -1 : vfork_into(spec.cgroup_fd, steps);
        if (pid < 0) {
            pid = ::vfork();
            if (pid == 0) {
                steps.become_program();
            }
            fork_error = errno;
        }
    }
    if (pid <= 0) {
        return fail(from_errno(fork_error, fmt::format("fork {}", spec.program)));
    }
    // Here as well as in the child: a group signal may come before the child has got so far.
    ::setpgid(pid, pid);
    UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!pidfd.valid()) {
        const int error_number = errno;
        ::kill(pid, SIGKILL);
        siginfo_t info{};
        ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED);
        return fail(from_errno(error_number, fmt::format("watch {}: pidfd_open", spec.program)));
    }
    return std::make_unique<ChildProcess>(executor_, pid, std::move(pidfd));
}

void ChildBatch::async_results(std::function<void(std::vector<StartError>)> handler) {
    handler_ = std::move(handler);
    write_end_.reset();
    read_more();
}

void ChildBatch::read_more() {
    read_end_.async_wait(
        boost::asio::posix::stream_descriptor::wait_read,
        [this](const boost::system::error_code& error) {
            if (error == boost::asio::error::operation_aborted) {
                return;
            }
            std::array<char, 64 * sizeof(StartRecord)> buffer;
            const ssize_t size =
                error ? 0 : ::read(read_end_.native_handle(), buffer.data(), buffer.size());
            if (size > 0) {
                received_.append(buffer.data(), static_cast<std::size_t>(size));
            } else if (size == 0) {
                read_end_.close();
                std::exchange(handler_, nullptr)(parse());
                return;
            }
            read_more();
        }
    );
}

std::vector<StartError> ChildBatch::parse() const {
    std::vector<StartError> errors;
    for (std::size_t at = 0; at + sizeof(StartRecord) <= received_.size();
         at += sizeof(StartRecord)) {
        StartRecord record;
        std::memcpy(&record, received_.data() + at, sizeof record);
        errors.push_back(StartError{
            .index = static_cast<std::size_t>(record.index),
            .step = std::string(to_string(record.step)),
            .error_number = record.error_number,
        });
    }
    return errors;
}

// ---- all children
// --------------------------------------------------------------------------------

Result<void> become_reaper() {
    // An ignored CHLD would make the kernel reap for us, and exit codes would be lost.
    ::signal(SIGCHLD, SIG_DFL);
    ::signal(SIGPIPE, SIG_IGN);
    if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
        return fail(from_errno(errno, "become the reaper of what workers leave behind: prctl"));
    }
    return {};
}

std::set<pid_t> children_of_this_process() {
    std::set<pid_t> children;
    DIR* tasks = ::opendir("/proc/self/task");
    if (tasks == nullptr) {
        return children;
    }
    while (const dirent* entry = ::readdir(tasks)) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        std::ifstream file(fmt::format("/proc/self/task/{}/children", entry->d_name));
        for (pid_t pid = 0; file >> pid;) {
            children.insert(pid);
        }
    }
    ::closedir(tasks);
    return children;
}

void reap_orphans(const std::set<pid_t>& owned) {
    for (const pid_t pid : children_of_this_process()) {
        if (!owned.contains(pid)) {
            reap(pid);
        }
    }
}

std::set<pid_t> kill_orphans(const std::set<pid_t>& spared, const std::string& mark) {
    std::set<pid_t> alive;
    for (const pid_t pid : children_of_this_process()) {
        if (spared.contains(pid)) {
            continue;
        }
        if (is_ended(pid)) {
            reap(pid);
        } else if (mark.empty() || carries(pid, mark)) {
            ::kill(pid, SIGKILL);
            alive.insert(pid);
        }
    }
    return alive;
}

}  // namespace ddprun
