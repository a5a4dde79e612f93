#include "agent/start_steps.h"

#include "agent/worker_group.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/mempolicy.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <climits>
#include <string>

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

/// One node is preferred; several are as long as the kernel knows how to (5.15), else what it
/// does by itself, taking memory near the CPU, serves the same end.
int memory_mode(const std::vector<unsigned long>& nodes) {
    int count = 0;
    for (const unsigned long word : nodes) {
        count += std::popcount(word);
    }
    return count > 1 ? MPOL_PREFERRED_MANY : MPOL_PREFERRED;
}

}  // namespace

std::string_view to_string(StartStep step) {
    switch (step) {
        case StartStep::process_group: return "make a process group for";
        case StartStep::death_signal: return "set the parent-death signal of";
        case StartStep::standard_streams: return "connect the standard streams of";
        case StartStep::terminal: return "give a terminal to";
        case StartStep::close_descriptors: return "close descriptors before";
        case StartStep::pass_descriptors: return "pass descriptors to";
        case StartStep::folder: return "enter the folder of";
        case StartStep::cpus: return "bind to CPUs";
        case StartStep::memory: return "set the memory policy of";
        case StartStep::execute: return kExecuteStep;
    }
    return "start";
}

StartSteps::StartSteps(
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

void StartSteps::become_program() const {
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
    fail_in_child(StartStep::execute, errno);
}

void StartSteps::lead_a_group() const {
    // A session has one controlling terminal; its leader leads a group, too.
    if ((spec_.has_terminal ? ::setsid() : ::setpgid(0, 0)) < 0) {
        fail_in_child(StartStep::process_group, errno);
    }
}

void StartSteps::die_with_parent() const {
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
        fail_in_child(StartStep::death_signal, errno);
    }
    if (::getppid() != parent_) {
        ::_exit(SIGKILL);
    }
}

void StartSteps::connect_streams() const {
    const std::array<int, 3> sources{spec_.stdin_fd, spec_.stdout_fd, spec_.stderr_fd};
    for (int target = 0; target < 3; ++target) {
        const int source = sources[static_cast<std::size_t>(target)];
        if (source != target && ::dup2(source, target) < 0) {
            fail_in_child(StartStep::standard_streams, errno);
        }
    }
    if (spec_.has_terminal && ::ioctl(STDIN_FILENO, TIOCSCTTY, 0) != 0) {
        fail_in_child(StartStep::terminal, errno);
    }
    if (::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) != 0) {
        fail_in_child(StartStep::close_descriptors, errno);
    }
    for (const int fd : spec_.passed_fds) {
        if (::fcntl(fd, F_SETFD, 0) != 0) {
            fail_in_child(StartStep::pass_descriptors, errno);
        }
    }
}

void StartSteps::restore_state() const {
    for (const int signal : defaulted_) {
        ::signal(signal, SIG_DFL);
    }
    if (spec_.state.descriptors_soft != 0) {
        const rlimit limit{spec_.state.descriptors_soft, spec_.state.descriptors_hard};
        ::setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (!spec_.working_folder.empty() && ::chdir(spec_.working_folder.c_str()) != 0) {
        fail_in_child(StartStep::folder, errno);
    }
}

void StartSteps::bind() const {
    const auto bytes = spec_.cpus.size() * sizeof(unsigned long);
    if (bytes > 0 && ::syscall(SYS_sched_setaffinity, 0, bytes, spec_.cpus.data()) != 0) {
        fail_in_child(StartStep::cpus, errno);
    }
    const auto& nodes = spec_.memory_nodes;
    // The kernel takes one bit less than it is told.
    const std::size_t bits = nodes.size() * sizeof(unsigned long) * CHAR_BIT + 1;
    if (!nodes.empty() && ::syscall(SYS_set_mempolicy, memory_mode_, nodes.data(), bits) != 0 &&
        !(memory_mode_ == MPOL_PREFERRED_MANY && errno == EINVAL)) {
        fail_in_child(StartStep::memory, errno);
    }
}

void StartSteps::fail_in_child(StartStep step, int error_number) const {
    const StartRecord record{index_, step, error_number};
    ssize_t written = 0;
    do {
        written = ::write(error_fd_, &record, sizeof record);
    } while (written < 0 && errno == EINTR);
    ::_exit(127);
}

}  // namespace ddprun
