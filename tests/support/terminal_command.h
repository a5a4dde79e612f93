// A program under test at a terminal: a pseudo-terminal of the test's own is its controlling one
// and its standard input, output and error. No sleeps: every wait is poll(2), with a deadline.
#pragma once

#include <sys/types.h>
#include <termios.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::test {

struct TerminalSize {
    unsigned short rows = 25;
    unsigned short columns = 80;
};

class TerminalCommand {
public:
    explicit TerminalCommand(std::vector<std::string> argv, TerminalSize size = {});
    TerminalCommand(const TerminalCommand&) = delete;
    TerminalCommand& operator=(const TerminalCommand&) = delete;
    /// Kills it, and with it whatever ddprun started.
    ~TerminalCommand();

    [[nodiscard]] pid_t pid() const { return pid_; }

    /// As a user at the keyboard: Enter is '\r', Ctrl-C '\3', Ctrl-D '\4'.
    void type(std::string_view keys) const;

    void resize(TerminalSize size) const;

    /// Waits until `text` has been shown; false after `timeout` or at the end.
    [[nodiscard]] bool wait_for_text(
        std::string_view text, std::chrono::milliseconds timeout = std::chrono::milliseconds(40'000)
    );

    /// The program's wait status (waitpid) at its end; none after `timeout`.
    [[nodiscard]] std::optional<int> finish(
        std::chrono::milliseconds timeout = std::chrono::milliseconds(40'000)
    );

    /// All that has been shown.
    [[nodiscard]] const std::string& shown() const { return shown_; }

    /// The terminal's modes now, and those at the start.
    [[nodiscard]] termios modes() const;

    [[nodiscard]] const termios& modes_at_start() const { return modes_at_start_; }

private:
    using Clock = std::chrono::steady_clock;

    /// Reads for at most until `until`; false when nothing more can come.
    bool pump(Clock::time_point until, bool watch_exit);

    int fd_ = -1;
    int keep_open_ = -1;  ///< the other end, so that the modes outlive the program
    pid_t pid_ = -1;
    int pidfd_ = -1;
    bool ended_ = false;
    bool reaped_ = false;
    termios modes_at_start_{};
    std::string shown_;
};

}  // namespace ddprun::test
