#include "rendezvous/client_socket.h"

#include "proto/bytes.h"

#include <fmt/format.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace ddprun {

namespace {

constexpr std::size_t kReadBytes = 16 * 1024;

/// Waits for one of `events`; false when the deadline passed first.
bool poll_until(int fd, short events, ClientSocket::Deadline deadline) {
    while (true) {
        pollfd entry{fd, events, 0};
        const int timeout = milliseconds_until(deadline);
        const int count = ::poll(&entry, 1, timeout);
        if (count > 0) {
            return true;
        }
        if (count == 0 && ClientSocket::Clock::now() >= deadline) {
            return false;
        }
        if (count < 0 && errno != EINTR && errno != EAGAIN) {
            return true;  // the call that follows reports what is wrong
        }
    }
}

/// 0, or the errno of the failed attempt.
int connect_fd(int fd, const HostAddress& address, ClientSocket::Deadline deadline) {
    const auto* name = reinterpret_cast<const sockaddr*>(&address.storage);
    if (::connect(fd, name, address.size) == 0) {
        return 0;
    }
    if (errno != EINPROGRESS && errno != EINTR) {
        return errno;
    }
    if (!poll_until(fd, POLLOUT, deadline)) {
        return ETIMEDOUT;
    }
    int error_number = 0;
    socklen_t size = sizeof error_number;
    if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error_number, &size) != 0) {
        return errno;
    }
    return error_number;
}

}  // namespace

int milliseconds_until(ClientSocket::Deadline deadline) {
    using std::chrono::milliseconds;
    constexpr milliseconds kLongest{3'600'000};
    const ClientSocket::Deadline now = ClientSocket::Clock::now();
    if (deadline <= now) {
        return 0;
    }
    const auto left = deadline - now;
    if (left >= kLongest) {
        return static_cast<int>(kLongest.count());
    }
    return static_cast<int>(std::chrono::ceil<milliseconds>(left).count());
}

Result<ClientSocket> ClientSocket::connect(
    const HostLookUp::Addresses& addresses, Deadline deadline
) {
    int error_number = ECONNREFUSED;
    for (const HostAddress& address : addresses) {
        const int family = address.storage.ss_family;
        const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0) {
            error_number = errno;
            continue;
        }
        ClientSocket socket{fd};
        error_number = connect_fd(fd, address, deadline);
        if (error_number == 0) {
            const int on = 1;
            // Small requests would otherwise wait for acknowledgements; nothing else depends on it.
            static_cast<void>(::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
            return socket;
        }
    }
    return fail(from_errno(error_number, "connect"));
}

ClientSocket::ClientSocket(ClientSocket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      input_(std::move(other.input_)),
      used_(std::exchange(other.used_, 0)) {}

ClientSocket& ClientSocket::operator=(ClientSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(input_, other.input_);
    std::swap(used_, other.used_);
    return *this;
}

ClientSocket::~ClientSocket() {
    if (fd_ >= 0) {
        ::close(fd_);
    }
}

Result<void> ClientSocket::wait_for(short events, Deadline deadline) const {
    if (!poll_until(fd_, events, deadline)) {
        return fail(Errc::timed_out, "no answer in time");
    }
    return {};
}

Result<void> ClientSocket::send(std::string_view bytes, Deadline deadline) {
    while (!bytes.empty()) {
        const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count >= 0) {
            bytes.remove_prefix(static_cast<std::size_t>(count));
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (auto ready = wait_for(POLLOUT, deadline); !ready) {
                return fail(Errc::timed_out, "the server doesn't read in time");
            }
        } else if (errno != EINTR) {
            return fail(from_errno(errno, "send"));
        }
    }
    return {};
}

/// At least `size` bytes that haven't been given out are in input_.
Result<void> ClientSocket::fill(std::size_t size, Deadline deadline) {
    if (used_ == input_.size()) {
        input_.clear();
        used_ = 0;
    }
    std::array<char, kReadBytes>
        chunk;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by recv
    while (input_.size() - used_ < size) {
        const ssize_t count = ::recv(fd_, chunk.data(), chunk.size(), 0);
        if (count > 0) {
            input_.append(chunk.data(), static_cast<std::size_t>(count));
            if (input_.size() - used_ < size && Clock::now() >= deadline) {
                return fail(Errc::timed_out, "no whole answer in time");
            }
        } else if (count == 0) {
            return fail(Errc::connection_lost, "the server closed the connection");
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (auto ready = wait_for(POLLIN, deadline); !ready) {
                return ready;
            }
        } else if (errno != EINTR) {
            return fail(from_errno(errno, "receive"));
        }
    }
    return {};
}

std::string ClientSocket::take(std::size_t size) {
    std::string bytes = input_.substr(used_, size);
    used_ += size;
    return bytes;
}

Result<std::uint8_t> ClientSocket::read_u8(Deadline deadline) {
    if (auto filled = fill(sizeof(std::uint8_t), deadline); !filled) {
        return fail(filled.error());
    }
    return static_cast<std::uint8_t>(input_[used_++]);
}

Result<std::uint32_t> ClientSocket::read_u32(Deadline deadline) {
    if (auto filled = fill(sizeof(std::uint32_t), deadline); !filled) {
        return fail(filled.error());
    }
    const std::string bytes = take(sizeof(std::uint32_t));
    return ByteReader{bytes}.u32();
}

Result<std::int64_t> ClientSocket::read_i64(Deadline deadline) {
    if (auto filled = fill(sizeof(std::int64_t), deadline); !filled) {
        return fail(filled.error());
    }
    const std::string bytes = take(sizeof(std::int64_t));
    return ByteReader{bytes}.i64();
}

Result<std::string> ClientSocket::read_string(std::size_t bytes_max, Deadline deadline) {
    const auto size = read_i64(deadline);
    if (!size) {
        return fail(size.error());
    }
    if (*size < 0 || static_cast<std::uint64_t>(*size) > bytes_max) {
        return fail(Errc::malformed, fmt::format("the server announces {} bytes", *size));
    }
    if (auto filled = fill(static_cast<std::size_t>(*size), deadline); !filled) {
        return fail(filled.error());
    }
    return take(static_cast<std::size_t>(*size));
}

bool ClientSocket::is_idle() const {
    if (used_ != input_.size()) {
        return false;
    }
    char byte = 0;
    const ssize_t count = ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

}  // namespace ddprun
