// A blocking TCP connection with a deadline on every step, for StoreClient: plain POSIX,
// close-on-exec, no SIGPIPE. Not thread-safe: one call at a time. Any error leaves it unusable, but
// for Errc::timed_out of read(), which loses nothing.
#pragma once

#include "proto/result.h"
#include "rendezvous/client_names.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddprun {

class ClientSocket {
public:
    using Clock = std::chrono::steady_clock;
    using Deadline = Clock::time_point;

    /// Tries each address once, in order.
    [[nodiscard]] static Result<ClientSocket> connect(
        const HostLookUp::Addresses& addresses, Deadline deadline
    );

    ClientSocket(ClientSocket&& other) noexcept;
    ClientSocket& operator=(ClientSocket&& other) noexcept;
    ClientSocket(const ClientSocket&) = delete;
    ClientSocket& operator=(const ClientSocket&) = delete;
    ~ClientSocket();

    Result<void> send(std::string_view bytes, Deadline deadline);

    Result<std::uint8_t> read_u8(Deadline deadline);
    Result<std::uint32_t> read_u32(Deadline deadline);
    Result<std::int64_t> read_i64(Deadline deadline);

    /// u64 length of at most `bytes_max`, then the bytes; memory grows as they arrive.
    Result<std::string> read_string(std::size_t bytes_max, Deadline deadline);

    /// The peer has neither closed nor sent anything: fit for a new request.
    [[nodiscard]] bool is_idle() const;

private:
    explicit ClientSocket(int fd) : fd_(fd) {}

    Result<void> wait_for(short events, Deadline deadline) const;
    Result<void> fill(std::size_t size, Deadline deadline);
    std::string take(std::size_t size);

    int fd_ = -1;
    std::string input_;     ///< received
    std::size_t used_ = 0;  ///< of input_, already given out
};

/// Milliseconds until then for poll(): rounded up, 0 when it has passed, at most an hour at a time.
[[nodiscard]] int milliseconds_until(ClientSocket::Deadline deadline);

}  // namespace ddprun
