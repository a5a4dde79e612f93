#include "agent/terminal.h"

#include "proto/error.h"
#include "proto/limits.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace ddprun {

namespace {

using boost::asio::posix::stream_descriptor;

/// Keys pass as they are, but those that make INT and QUIT. Ctrl-Z would stop us and not the front,
/// so that the shell wouldn't notice: it is a key like others.
termios keys_as_they_are(termios modes) {
    modes.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ECHOE | ECHOK | ECHONL | IEXTEN);
    modes.c_iflag &= ~static_cast<tcflag_t>(ICRNL | INLCR | IGNCR | IXON | ISTRIP);
    modes.c_cc[VSUSP] = _POSIX_VDISABLE;
    modes.c_cc[VMIN] = 1;
    modes.c_cc[VTIME] = 0;
    return modes;
}

winsize window_size() {
    winsize size{};
    ::ioctl(STDIN_FILENO, TIOCGWINSZ, &size);
    return size;
}

}  // namespace

Terminal::Terminal(boost::asio::io_context& io_context)
    : input_(io_context),
      target_(io_context),
      output_is_terminal_(::isatty(STDOUT_FILENO) == 1),
      error_is_terminal_(::isatty(STDERR_FILENO) == 1) {
    if (::isatty(STDIN_FILENO) != 1 || ::tcgetattr(STDIN_FILENO, &modes_) != 0) {
        return;
    }
    foreground_ = ::tcgetpgrp(STDIN_FILENO);
    // Ours, or that of the front, whose child we are.
    is_ours_to_take_ =
        foreground_ > 0 && (foreground_ == ::getpgrp() || foreground_ == ::getpgid(::getppid()));
}

Terminal::~Terminal() {
    give_back();
}

Terminal::Kind Terminal::kind_for(bool is_alone) const {
    if (!is_ours_to_take_) {
        return Kind::none;
    }
    return is_alone && output_is_terminal_ ? Kind::pseudo_terminal : Kind::pipe;
}

void Terminal::take(Kind kind) {
    if (std::exchange(taken_, true)) {
        return;
    }
    // A description of its own: it doesn't block, the shell's may.
    const int fd = ::open("/proc/self/fd/0", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    input_.assign(fd);
    ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
    if (kind == Kind::pseudo_terminal) {
        const termios raw = keys_as_they_are(modes_);
        ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
}

Result<Terminal::WorkerEnds> Terminal::open(Kind kind) {
    take(kind);
    close_target();
    WorkerEnds ends;
    if (kind == Kind::pipe) {
        int fds[2] = {-1, -1};
        if (::pipe2(fds, O_CLOEXEC) != 0) {
            return fail(from_errno(errno, "make a pipe for a worker's standard input"));
        }
        ends.input.reset(fds[0]);
        target_.assign(fds[1]);
    } else {
        Result<PseudoTerminal> main = open_pseudo_terminal(modes_, window_size());
        if (!main) {
            return fail(std::move(main.error()));
        }
        const int target = ::fcntl(main->our_end.get(), F_DUPFD_CLOEXEC, 3);
        if (target < 0) {
            return fail(from_errno(errno, "keep a pseudo-terminal"));
        }
        target_.assign(target);
        ends.input = std::move(main->worker_end);
        ends.our_out = std::move(main->our_end);
        if (error_is_terminal_) {
            Result<PseudoTerminal> error = open_pseudo_terminal(modes_, window_size());
            if (!error) {
                return fail(std::move(error.error()));
            }
            error_side_.reset(::fcntl(error->our_end.get(), F_DUPFD_CLOEXEC, 3));
            ends.error = std::move(error->worker_end);
            ends.our_error = std::move(error->our_end);
        }
    }
    ::fcntl(target_.native_handle(), F_SETFL, O_NONBLOCK | O_RDWR);
    read_more();
    return ends;
}

void Terminal::window_changed() {
    const winsize size = window_size();
    if (target_.is_open()) {
        ::ioctl(target_.native_handle(), TIOCSWINSZ, &size);
    }
    if (error_side_.valid()) {
        ::ioctl(error_side_.get(), TIOCSWINSZ, &size);
    }
}

void Terminal::give_back() {
    close_target();
    if (input_.is_open()) {
        input_.close();
        ::tcsetattr(STDIN_FILENO, TCSANOW, &modes_);
        if (::tcgetpgrp(STDIN_FILENO) == ::getpgrp()) {
            ::tcsetpgrp(STDIN_FILENO, foreground_);
        }
    }
}

void Terminal::close_target() {
    queue_.clear();
    writing_ = false;
    error_side_.reset();
    if (target_.is_open()) {
        target_.close();
    }
}

// ---- from the user to the worker
// -----------------------------------------------------------------

void Terminal::read_more() {
    if (reading_ || ended_ || !input_.is_open() || !target_.is_open() ||
        queue_.size() >= limits::kTerminalQueueBytesMax) {
        return;
    }
    reading_ = true;
    input_.async_wait(stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
        if (error == boost::asio::error::operation_aborted) {
            return;
        }
        reading_ = false;
        read_once();
        read_more();
        write_more();
    });
}

void Terminal::read_once() {
    std::array<char, 4'096> bytes;
    const ssize_t size = ::read(input_.native_handle(), bytes.data(), bytes.size());
    if (size > 0) {
        queue_.append(bytes.data(), static_cast<std::size_t>(size));
    } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
        ended_ = true;
    }
}

void Terminal::write_more() {
    if (writing_ || !target_.is_open()) {
        return;
    }
    if (queue_.empty()) {
        if (ended_) {
            close_target();
        }
        return;
    }
    writing_ = true;
    target_.async_wait(
        stream_descriptor::wait_write,
        [this](const boost::system::error_code& error) {
            if (error == boost::asio::error::operation_aborted) {
                return;
            }
            writing_ = false;
            if (error || !target_.is_open()) {
                return;
            }
            const ssize_t size = ::write(target_.native_handle(), queue_.data(), queue_.size());
            if (size > 0) {
                queue_.erase(0, static_cast<std::size_t>(size));
            } else if (size < 0 && errno != EAGAIN && errno != EINTR) {
                close_target();
                return;
            }
            write_more();
            read_more();
        }
    );
}

}  // namespace ddprun
