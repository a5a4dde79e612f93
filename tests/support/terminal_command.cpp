#include "tests/support/terminal_command.h"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace ddprun::test {

TerminalCommand::TerminalCommand(std::vector<std::string> argv, TerminalSize size) {
    std::vector<char*> pointers;
    for (std::string& word : argv) {
        pointers.push_back(word.data());
    }
    pointers.push_back(nullptr);
    winsize window{};
    window.ws_row = size.rows;
    window.ws_col = size.columns;
    REQUIRE(::openpty(&fd_, &keep_open_, nullptr, nullptr, &window) == 0);
    ::fcntl(fd_, F_SETFD, FD_CLOEXEC);
    ::fcntl(keep_open_, F_SETFD, FD_CLOEXEC);
    REQUIRE(::tcgetattr(keep_open_, &modes_at_start_) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
        ::setsid();
        ::ioctl(keep_open_, TIOCSCTTY, 0);
        for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
            ::dup2(keep_open_, fd);
        }
        sigset_t none;
        sigemptyset(&none);
        ::sigprocmask(SIG_SETMASK, &none, nullptr);
        ::signal(SIGPIPE, SIG_DFL);
        ::execvp(pointers[0], pointers.data());
        ::_exit(127);
    }
    pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
    REQUIRE(pidfd_ >= 0);
}

TerminalCommand::~TerminalCommand() {
    if (!reaped_) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    ::close(pidfd_);
    ::close(keep_open_);
    ::close(fd_);
}

void TerminalCommand::type(std::string_view keys) const {
    REQUIRE(::write(fd_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
}

void TerminalCommand::resize(TerminalSize size) const {
    winsize window{};
    window.ws_row = size.rows;
    window.ws_col = size.columns;
    REQUIRE(::ioctl(fd_, TIOCSWINSZ, &window) == 0);
}

bool TerminalCommand::pump(Clock::time_point until, bool watch_exit) {
    pollfd fds[2] = {{ended_ ? -1 : fd_, POLLIN, 0}, {watch_exit ? pidfd_ : -1, POLLIN, 0}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0 || ::poll(fds, 2, static_cast<int>(left)) <= 0) {
        return Clock::now() < until;
    }
    if (fds[0].revents != 0) {
        char buffer[4'096];
        const ssize_t size = ::read(fd_, buffer, sizeof buffer);
        if (size > 0) {
            shown_.append(buffer, static_cast<std::size_t>(size));
            return true;
        }
        ended_ = true;
    }
    return fds[1].revents == 0;
}

bool TerminalCommand::wait_for_text(std::string_view text, std::chrono::milliseconds timeout) {
    const Clock::time_point until = Clock::now() + timeout;
    while (shown_.find(text) == std::string::npos) {
        if (!pump(until, true)) {
            // What was written before the end is there already.
            return shown_.find(text) != std::string::npos;
        }
    }
    return true;
}

std::optional<int> TerminalCommand::finish(std::chrono::milliseconds timeout) {
    const Clock::time_point until = Clock::now() + timeout;
    while (pump(until, true)) {
    }
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) {
        return std::nullopt;
    }
    reaped_ = true;
    // What it wrote last is there already.
    pollfd rest{fd_, POLLIN, 0};
    while (!ended_ && ::poll(&rest, 1, 0) > 0) {
        pump(Clock::now() + std::chrono::seconds(1), false);
    }
    return status;
}

termios TerminalCommand::modes() const {
    termios modes{};
    REQUIRE(::tcgetattr(keep_open_, &modes) == 0);
    return modes;
}

}  // namespace ddprun::test
