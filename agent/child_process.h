// Starts, watches, signals and reaps child processes: the only place of the program that does. A
// child leads a process group of its own, dies with the thread that started it (parent-death
// signal), has default signal dispositions but for those that our user ignored, an empty signal
// mask and only descriptors 0, 1 and 2, and those passed on purpose.
//
// A batch starts many and learns of all exec results together, without blocking: one pipe, end of
// file when all have executed. An ended child stays a zombie until release(), so that its process
// group's number can't be taken by a stranger before what it left behind is killed.
#pragma once

#include "agent/exit_status.h"
#include "agent/process_state.h"
#include "proto/result.h"
#include "rendezvous/unique_fd.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace ddprun {

struct ChildSpec {
    std::string program;  ///< a path
    std::vector<std::string> argv;
    std::vector<std::string> environment;
    std::string working_folder;  ///< empty: ours
    int stdin_fd = -1;           ///< these three must be above 2, or stdin_fd 0 to pass ours on
    int stdout_fd = -1;
    int stderr_fd = -1;
    int cgroup_fd = -1;  ///< folder of the control group to start in, where that is allowed
    /// Bit masks (agent/numa.h) of the CPUs that it may use and of the NUMA nodes whose memory it
    /// prefers; empty: as we do.
    std::vector<unsigned long> cpus;
    std::vector<unsigned long> memory_nodes;
    bool has_terminal = false;  ///< stdin_fd is a terminal, which becomes its controlling one
    std::set<int> passed_fds;   ///< above 2; they keep their numbers
    ProcessState state;         ///< what to pass on of our own start
};

class ChildProcess {
public:
    ChildProcess(boost::asio::any_io_executor executor, pid_t pid, UniqueFd pidfd);
    ChildProcess(const ChildProcess&) = delete;
    ChildProcess& operator=(const ChildProcess&) = delete;
    /// Asserts that release() or abandon() was called.
    ~ChildProcess();

    [[nodiscard]] pid_t pid() const { return pid_; }

    [[nodiscard]] bool ended() const { return status_.kind() != ExitStatus::Kind::running; }

    /// Calls `handler` once, when it has ended. Must outlive neither this object nor its executor.
    void async_wait(std::function<void(ExitStatus)> handler);

    /// To the process alone; nothing happens when it has ended.
    void send_signal(int signal) const;

    /// To its whole process group, its leader ended or not. Not after release().
    void signal_group(int signal) const;

    /// Kills what is left of its group and reaps it. It must have ended.
    void release();

    /// Kills it and its group and leaves the reaping to whoever inherits it: for the end of this
    /// program.
    void abandon();

private:
    void wait_again();
    bool look();

    boost::asio::posix::stream_descriptor pidfd_;
    pid_t pid_;
    ExitStatus status_;
    std::function<void(ExitStatus)> handler_;
    bool released_ = false;
};

/// What failed in the child before it became the program.
struct StartError {
    std::size_t index = 0;  ///< of start(), from 0
    std::string step;       ///< "execute" where the program itself was at fault
    int error_number = 0;
};

/// Starts children together. Keep it alive until the handler of async_results was called.
class ChildBatch {
public:
    explicit ChildBatch(boost::asio::any_io_executor executor);

    /// Starts one child and returns when it has executed or failed to (vfork: nothing of our memory
    /// is copied); which of both is in the results. An error is of this machine
    /// (processes, memory, descriptors), and nothing was started; `step` of it is "fork".
    Result<std::unique_ptr<ChildProcess>> start(const ChildSpec& spec);

    /// Once, after the last start: the failed starts, when every child has executed or ended.
    void async_results(std::function<void(std::vector<StartError>)> handler);

private:
    void read_more();
    [[nodiscard]] std::vector<StartError> parse() const;

    boost::asio::any_io_executor executor_;
    UniqueFd write_end_;
    boost::asio::posix::stream_descriptor read_end_;
    std::vector<int> ignored_now_;  ///< by this process, so by a child that doesn't change it
    int pipe_error_ = 0;
    std::size_t started_ = 0;
    std::string received_;
    std::function<void(std::vector<StartError>)> handler_;
};

/// Makes this process the new parent of descendants whose parents end, and sets SIGCHLD and SIGPIPE
/// as children need them. An error says what won't work; the program can go on.
[[nodiscard]] Result<void> become_reaper();

/// All children of this process, zombies too, in ascending order.
[[nodiscard]] std::set<pid_t> children_of_this_process();

/// Reaps every ended child but the `owned` ones.
void reap_orphans(const std::set<pid_t>& owned);

/// SIGKILL to every child but the `spared` ones, after reaping those that ended; the children that
/// still live. With a `mark` (NAME=VALUE) only children that carry it in their environment.
std::set<pid_t> kill_orphans(const std::set<pid_t>& spared, const std::string& mark);

}  // namespace ddprun
