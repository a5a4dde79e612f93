// The connections of a StoreClient: a small pool of idle ones, and the opening of further ones with
// backoff. Whatever it gives out has been greeted by a store. Calls may come from any thread; no
// lock is held during I/O. Errors say what was tried, not on which store: see in_context().
#pragma once

#include "proto/result.h"
#include "rendezvous/client.h"
#include "rendezvous/client_names.h"
#include "rendezvous/client_socket.h"

#include <chrono>
#include <mutex>
#include <random>
#include <string_view>
#include <vector>

namespace ddprun {

class ClientPool {
public:
    using Deadline = ClientSocket::Deadline;

    /// The options must have passed check_options().
    explicit ClientPool(StoreClientOptions options);

    [[nodiscard]] const StoreClientOptions& options() const { return options_; }

    /// A connection of the caller's own: an idle one that still lives, else a new one. Tries again
    /// until `deadline` or the options' connect_timeout, whichever is sooner.
    [[nodiscard]] Result<ClientSocket> take(Deadline deadline);

    /// For the next call. Only after a conversation that went well.
    void give_back(ClientSocket socket);

    /// "store HOST:PORT: WHAT: WHY".
    [[nodiscard]] Error in_context(std::string_view what, const Error& error) const;

private:
    [[nodiscard]] Result<ClientSocket> open(Deadline deadline);
    [[nodiscard]] Result<ClientSocket> open_once(Deadline deadline);
    std::chrono::milliseconds jittered(std::chrono::milliseconds delay);

    StoreClientOptions options_;
    HostLookUp look_up_;
    std::mutex mutex_;  ///< guards idle_ and random_
    std::vector<ClientSocket> idle_;
    std::minstd_rand random_;
};

/// Takes the brackets off an IPv6 address. Errc::invalid_argument for a host or port that no retry
/// makes good.
[[nodiscard]] Result<StoreClientOptions> check_options(StoreClientOptions options);

/// Deadline of `timeout` from now, safe for any number of milliseconds.
[[nodiscard]] ClientSocket::Deadline after(std::chrono::milliseconds timeout);

}  // namespace ddprun
