#include "launcher/line_writer.h"

#include <fmt/format.h>

#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace ddprun::launcher {

namespace {

bool is_socket(int fd) {
    struct stat status {};

    return ::fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
}

}  // namespace

LineWriter::LineWriter(int fd) : fd_(fd), is_socket_(is_socket(fd)) {}

LineWriter::~LineWriter() {
    flush(kLastLinesPatience);
}

void LineWriter::write(std::string_view line) {
    if (!flush(is_stuck_ ? std::chrono::milliseconds(0) : kLinePatience) &&
        queue_.size() + line.size() > kLineQueueBytesMax) {
        ++lost_;
        return;
    }
    if (lost_ > lost_told_) {
        queue_ += fmt::format(
            "({} lines are missing here: whoever reads this read too slowly)\n", lost_ - lost_told_
        );
        lost_told_ = lost_;
    }
    queue_ += line;
    flush(is_stuck_ ? std::chrono::milliseconds(0) : kLinePatience);
}

/// True when nothing is left.
bool LineWriter::flush(std::chrono::milliseconds patience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    std::size_t written = 0;
    while (written < queue_.size()) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now()
        );
        if (!has_room(std::max(left, std::chrono::milliseconds(0)))) {
            is_stuck_ = true;
            break;
        }
        // A pipe that can be written to has room for this much.
        const std::size_t piece = std::min<std::size_t>(queue_.size() - written, PIPE_BUF);
        const long count = write_some(std::string_view{queue_}.substr(written, piece));
        if (count > 0) {
            written += static_cast<std::size_t>(count);
            is_stuck_ = false;
        } else if (errno != EAGAIN && errno != EINTR) {
            written = queue_.size();  // its reader has gone, or it was closed: nobody misses it
        }
    }
    queue_.erase(0, written);
    return queue_.empty();
}

bool LineWriter::has_room(std::chrono::milliseconds patience) const {
    pollfd poll{fd_, POLLOUT, 0};
    return ::poll(&poll, 1, static_cast<int>(patience.count())) != 0;
}

long LineWriter::write_some(std::string_view bytes) const {
    return is_socket_ ? ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL)
                      : ::write(fd_, bytes.data(), bytes.size());
}

}  // namespace ddprun::launcher
