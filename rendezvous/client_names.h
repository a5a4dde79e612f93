// Looks up the host of a StoreClient with a deadline. getaddrinfo() has none: with a name server
// that doesn't answer it blocks for as long as resolv.conf says, often half a minute. So a name is
// looked up in a thread of its own, whose answer is waited for until the deadline; the next call
// waits for the same thread, so that there is at most one per object. A thread that is still in
// getaddrinfo() when the object goes keeps what it needs alive and ends by itself. Numeric
// addresses take no thread. Calls may come from any thread.
#pragma once

#include "proto/result.h"

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace ddprun {

/// A socket address of either family.
struct HostAddress {
    sockaddr_storage storage{};
    socklen_t size = 0;
};

class HostLookUp {
public:
    using Addresses = std::vector<HostAddress>;
    using Deadline = std::chrono::steady_clock::time_point;

    explicit HostLookUp(std::string host, std::uint16_t port);

    /// At least one address. Errc::not_found for a name that nobody knows, Errc::timed_out when the
    /// resolver didn't answer in time.
    [[nodiscard]] Result<Addresses> find(Deadline deadline);

private:
    struct Answer;

    [[nodiscard]] Result<std::shared_ptr<Answer>> ask();

    std::string host_;
    std::uint16_t port_;
    std::mutex mutex_;
    std::shared_ptr<Answer> running_;  ///< guarded by mutex_
};

}  // namespace ddprun
