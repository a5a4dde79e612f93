// A program under test, run as a user would: own argv, environment and folder, its output captured,
// a deadline on everything. Whatever it started is found by a mark in the environment (so sessions
// of their own and re-parented processes count too), can be listed, and is killed by the
// destructor. No sleeps: every wait is poll(2) on pipes and pidfds.
//
//   const CommandResult result = run_command({.argv = {"/bin/sh", "-c", "echo hi"}});
//   CHECK(result.exit_code == 0);
//
//   Command job({.argv = {ddprun, "--nproc_per_node=2", ...}});
//   REQUIRE(job.wait_for_line("ready 1"));
//   job.send_signal(SIGTERM);
//   const CommandResult result = job.finish();
//   CHECK(job.left_behind() == "");
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::test {

struct CommandOptions {
    std::vector<std::string> argv{};  ///< argv[0] without a slash is looked up in PATH
    std::vector<std::string> env{};   ///< NAME=VALUE, over this process's environment
    std::vector<std::string> unset_env{};
    std::string cwd{};         ///< empty: this process's
    std::string stdin_text{};  ///< what it reads on standard input, then end of file
    std::chrono::milliseconds deadline{40'000};  ///< after it everything is killed
    /// Runs in the child before exec (signal dispositions, closed descriptors, limits); only
    /// async-signal-safe calls.
    std::function<void()> in_child{};
};

struct CommandResult {
    std::optional<int> exit_code;  ///< empty where a signal ended it, or where it never started
    int signal = 0;                ///< that ended it, else 0
    bool timed_out = false;        ///< the deadline passed and it was killed
    std::string out;
    std::string err;
    std::chrono::microseconds wall{};  ///< from its start to its end
};

/// "exit 3", "signal 9", "timed out", for messages of a test.
[[nodiscard]] std::string describe(const CommandResult& result);

class Command {
public:
    explicit Command(CommandOptions options);
    Command(const Command&) = delete;
    Command& operator=(const Command&) = delete;
    /// Kills and reaps whatever is left.
    ~Command();

    [[nodiscard]] pid_t pid() const { return pid_; }

    /// Waits until the `occurrence`-th whole line that contains `text` has appeared on stdout or
    /// stderr (stdout is looked at first) and returns it without its newline; empty when `timeout`
    /// passed or both streams ended.
    std::optional<std::string> wait_for_line(
        std::string_view text,
        int occurrence = 1,
        std::chrono::milliseconds timeout = std::chrono::milliseconds(40'000)
    );

    /// Waits until `text` stands anywhere in stdout, in a line without its end too; false when
    /// `timeout` passed or both streams ended.
    [[nodiscard]] bool wait_for_text(
        std::string_view text, std::chrono::milliseconds timeout = std::chrono::milliseconds(40'000)
    );

    void send_signal(int signal) const;

    /// Reads no more from its stdout and stderr, as a stopped reader does; finish() reads on.
    void close_stdout();

    /// Waits for its end and for the end of its output (at most a second longer). Only once.
    CommandResult finish();

    /// Living processes with our mark, the program itself included, in order of their pids.
    [[nodiscard]] std::vector<pid_t> living() const;

    /// Living children of `parent` (for example of pid()) in order of their pids.
    [[nodiscard]] static std::vector<pid_t> children_of(pid_t parent);

    /// Waits up to `timeout` until nothing that it started lives; what still does: "PID COMMAND; ",
    /// or empty.
    [[nodiscard]] std::string left_behind(
        std::chrono::milliseconds timeout = std::chrono::milliseconds(1'000)
    ) const;

    /// What it has written so far.
    [[nodiscard]] const std::string& out() const { return out_; }

    [[nodiscard]] const std::string& err() const { return err_; }

private:
    using Clock = std::chrono::steady_clock;

    void start();
    void feed_stdin();
    bool read_some(int& fd, std::string& into);
    bool pump(Clock::time_point until, bool watch_exit);
    void reap();
    void kill_everything() const;

    CommandOptions options_;
    std::string mark_;
    pid_t pid_ = -1;
    int pidfd_ = -1;
    int stdin_fd_ = -1;
    int stdout_fd_ = -1;
    int stderr_fd_ = -1;
    std::size_t stdin_sent_ = 0;
    std::string out_;
    std::string err_;
    Clock::time_point started_;
    Clock::time_point ended_;
    bool reaped_ = false;
    CommandResult result_;
};

/// Runs it to its end.
[[nodiscard]] CommandResult run_command(CommandOptions options);

/// True once `pid` is gone or a zombie; waits up to `timeout`.
[[nodiscard]] bool wait_until_dead(pid_t pid, std::chrono::milliseconds timeout);

}  // namespace ddprun::test
