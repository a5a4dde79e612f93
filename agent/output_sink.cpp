#include "agent/output_sink.h"

#include "proto/limits.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace ddprun {

namespace {

/// A pipe that poll(2) calls writable takes at least this much without blocking (PIPE_BUF).
constexpr std::size_t kSmallStep = 4096;

}  // namespace

OutputSink::OutputSink(boost::asio::io_context& io_context, int fd, std::function<void()> on_room)
    : poller_(io_context),
      on_room_(std::move(on_room)),
      fd_(fd) {
    choose_way(fd);
    UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event interest{};
    interest.events = EPOLLOUT | EPOLLONESHOT;
    // Files and /dev/null can't be watched and never need it.
    if (epoll.valid() && ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd_, &interest) == 0) {
        poller_.assign(epoll.release());
    }
}

void OutputSink::choose_way(int fd) {
    struct stat status {};

    if (::fstat(fd, &status) != 0) {
        give_up(errno);
        return;
    }
    if (S_ISSOCK(status.st_mode)) {
        way_ = Way::socket;
    } else if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode)) {
        const std::string path = fmt::format("/proc/self/fd/{}", fd);
        own_.reset(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
        if (own_.valid()) {
            fd_ = own_.get();
            way_ = Way::nonblocking;
        }
    } else {
        way_ = Way::blocking;
    }
}

bool OutputSink::full() const {
    return !broken_ && queue_.size() - written_ > limits::kOutputQueueBytesMax;
}

std::size_t OutputSink::drop() {
    const std::size_t left = queue_.size() - written_;
    queue_.clear();
    written_ = 0;
    return left;
}

long OutputSink::write_once(const char* data, std::size_t size) const {
    switch (way_) {
        case Way::nonblocking:
        case Way::blocking: return ::write(fd_, data, size);
        case Way::socket: return ::send(fd_, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        case Way::small_steps: break;
    }
    pollfd ready{fd_, POLLOUT, 0};
    if (::poll(&ready, 1, 0) <= 0) {
        errno = EAGAIN;
        return -1;
    }
    return ::write(fd_, data, std::min(size, kSmallStep));
}

void OutputSink::flush() {
    if (waiting_) {
        was_full_ = was_full_ || full();
        return;
    }
    while (!broken_ && !empty()) {
        const long size = write_once(queue_.data() + written_, queue_.size() - written_);
        if (size >= 0) {
            written_ += static_cast<std::size_t>(size);
            taken_ += static_cast<std::uint64_t>(size);
        } else if (errno == EAGAIN) {
            was_full_ = was_full_ || full();
            wait_for_room();
            break;
        } else if (errno != EINTR) {
            give_up(errno);
        }
    }
    compact();
    const bool is_emptied = std::exchange(has_waited_, waiting_) && !waiting_;
    if (is_emptied || (was_full_ && !full())) {
        was_full_ = false;
        on_room_();
    }
}

void OutputSink::pass(std::string_view bytes) {
    while (empty() && !waiting_ && !broken_ && !bytes.empty()) {
        const long size = write_once(bytes.data(), bytes.size());
        if (size >= 0) {
            bytes.remove_prefix(static_cast<std::size_t>(size));
            taken_ += static_cast<std::uint64_t>(size);
        } else if (errno != EINTR) {
            break;  // flush() meets the same and deals with it
        }
    }
    queue_ += bytes;
    flush();
}

void OutputSink::give_up(int error) {
    broken_ = true;
    reason_ = {error, std::generic_category()};
}

void OutputSink::compact() {
    if (broken_ || empty()) {
        queue_.clear();
        written_ = 0;
    } else if (written_ > limits::kOutputQueueBytesMax / 2) {
        queue_.erase(0, written_);
        written_ = 0;
    }
}

void OutputSink::wait_for_room() {
    if (!poller_.is_open()) {
        give_up(EAGAIN);
        return;
    }
    epoll_event interest{};
    interest.events = EPOLLOUT | EPOLLONESHOT;
    ::epoll_ctl(poller_.native_handle(), EPOLL_CTL_MOD, fd_, &interest);
    waiting_ = true;
    poller_.async_wait(
        boost::asio::posix::stream_descriptor::wait_read,
        [this](const boost::system::error_code& error) {
            waiting_ = false;
            if (!error) {
                flush();
            }
        }
    );
}

}  // namespace ddprun
