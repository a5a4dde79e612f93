#include "agent/child_process.h"

#include "agent/worker_group.h"
#include "proto/assert.h"

#include <boost/asio/buffer.hpp>
#include <fmt/format.h>

#include <dirent.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/mempolicy.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <fstream>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace ddprun {

namespace {

/// Before exec in memory that is shared with the parent: the red zones around what lies on the
/// stack of this function that never returns would stay for the parent's next functions. ASan does
/// it by itself for vfork(), not for clone3().
void leave_no_poison() {
#ifdef __SANITIZE_ADDRESS__
    __asan_handle_no_return();
#endif
}

/// Steps in the child, in order; the names are for messages.
enum class Step : std::int32_t {
    process_group,
    death_signal,
    standard_streams,
    terminal,
    close_descriptors,
    pass_descriptors,
    folder,
    cpus,
    memory,
    execute,
};

std::string_view to_string(Step step) {
    switch (step) {
        case Step::process_group: return "make a process group for";
        case Step::death_signal: return "set the parent-death signal of";
        case Step::standard_streams: return "connect the standard streams of";
        case Step::terminal: return "give a terminal to";
        case Step::close_descriptors: return "close descriptors before";
        case Step::pass_descriptors: return "pass descriptors to";
        case Step::folder: return "enter the folder of";
        case Step::cpus: return "bind to CPUs";
        case Step::memory: return "set the memory policy of";
        case Step::execute: return kExecuteStep;
    }
    return "start";
}

/// What a child writes to the batch's pipe; below PIPE_BUF, so records never mix.
struct Record {
    std::int32_t index = 0;
    Step step = Step::execute;
    std::int32_t error_number = 0;
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
    std::vector<char*> result;
    result.reserve(strings.size() + 1);
    for (const std::string& string : strings) {
        // execve takes pointers to mutable characters and changes none of them.
        result.push_back(const_cast<char*>(string.c_str()));
    }
    result.push_back(nullptr);
    return result;
}

/// What a child does between vfork and exec, in memory that it shares with its parent: system calls
/// only, and nothing of ours is changed.
class StartSteps {
public:
    StartSteps(
        const ChildSpec& spec, const std::vector<int>& ignored_now, std::int32_t index, int error_fd
    )
        : spec_(spec),
          argv_(pointers(spec.argv)),
          environment_(pointers(spec.environment)),
          parent_(::getpid()),
          index_(index),
          error_fd_(error_fd),
          memory_mode_(memory_mode(spec.memory_nodes)) {
        // A handled signal gets its default by exec itself.
        for (const int signal : ignored_now) {
            if (!spec.state.ignored_signals.contains(signal)) {
                defaulted_.push_back(signal);
            }
        }
    }

    [[noreturn]] void become_program() const {
        lead_a_group();
        die_with_parent();
        connect_streams();
        restore_state();
        bind();
        // Last: until here a signal stays pending instead of running a handler of the parent.
        sigset_t none;
        sigemptyset(&none);
        ::sigprocmask(SIG_SETMASK, &none, nullptr);
        leave_no_poison();
        ::execve(spec_.program.c_str(), argv_.data(), environment_.data());
        fail_in_child(Step::execute, errno);
    }

private:
    void lead_a_group() const {
        // A session has one controlling terminal; its leader leads a group, too.
        if ((spec_.has_terminal ? ::setsid() : ::setpgid(0, 0)) < 0) {
            fail_in_child(Step::process_group, errno);
        }
    }

    void die_with_parent() const {
        if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
            fail_in_child(Step::death_signal, errno);
        }
        if (::getppid() != parent_) {
            ::_exit(SIGKILL);
        }
    }

    void connect_streams() const {
        const std::array<int, 3> sources{spec_.stdin_fd, spec_.stdout_fd, spec_.stderr_fd};
        for (int target = 0; target < 3; ++target) {
            const int source = sources[static_cast<std::size_t>(target)];
            if (source != target && ::dup2(source, target) < 0) {
                fail_in_child(Step::standard_streams, errno);
            }
        }
        if (spec_.has_terminal && ::ioctl(STDIN_FILENO, TIOCSCTTY, 0) != 0) {
            fail_in_child(Step::terminal, errno);
        }
        if (::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) != 0) {
            fail_in_child(Step::close_descriptors, errno);
        }
        for (const int fd : spec_.passed_fds) {
            if (::fcntl(fd, F_SETFD, 0) != 0) {
                fail_in_child(Step::pass_descriptors, errno);
            }
        }
    }

    void restore_state() const {
        for (const int signal : defaulted_) {
            ::signal(signal, SIG_DFL);
        }
        if (spec_.state.descriptors_soft != 0) {
            const rlimit limit{spec_.state.descriptors_soft, spec_.state.descriptors_hard};
            ::setrlimit(RLIMIT_NOFILE, &limit);
        }
        if (!spec_.working_folder.empty() && ::chdir(spec_.working_folder.c_str()) != 0) {
            fail_in_child(Step::folder, errno);
        }
    }

    /// One node is preferred; several are as long as the kernel knows how to (5.15), else what it
    /// does by itself, taking memory near the CPU, serves the same end.
    static int memory_mode(const std::vector<unsigned long>& nodes) {
        int count = 0;
        for (const unsigned long word : nodes) {
            count += std::popcount(word);
        }
        return count > 1 ? MPOL_PREFERRED_MANY : MPOL_PREFERRED;
    }

    void bind() const {
        const auto bytes = spec_.cpus.size() * sizeof(unsigned long);
        if (bytes > 0 && ::syscall(SYS_sched_setaffinity, 0, bytes, spec_.cpus.data()) != 0) {
            fail_in_child(Step::cpus, errno);
        }
        const auto& nodes = spec_.memory_nodes;
        // The kernel takes one bit less than it is told.
        const std::size_t bits = nodes.size() * sizeof(unsigned long) * CHAR_BIT + 1;
        if (!nodes.empty() && ::syscall(SYS_set_mempolicy, memory_mode_, nodes.data(), bits) != 0 &&
            !(memory_mode_ == MPOL_PREFERRED_MANY && errno == EINVAL)) {
            fail_in_child(Step::memory, errno);
        }
    }

    [[noreturn]] void fail_in_child(Step step, int error_number) const {
        const Record record{index_, step, error_number};
        ssize_t written = 0;
        do {
            written = ::write(error_fd_, &record, sizeof record);
        } while (written < 0 && errno == EINTR);
        ::_exit(127);
    }

    const ChildSpec& spec_;
    std::vector<char*> argv_;
    std::vector<char*> environment_;
    pid_t parent_;
    std::int32_t index_;
    int error_fd_;
    int memory_mode_;
    std::vector<int> defaulted_;
};

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
            std::array<char, 64 * sizeof(Record)> buffer;
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
    for (std::size_t at = 0; at + sizeof(Record) <= received_.size(); at += sizeof(Record)) {
        Record record;
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
