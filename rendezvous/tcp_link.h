// An agent's link to a rendezvous on another node (or in a daemon) over TCP: resolves, connects
// with backoff, sends heartbeats at the rhythm that Welcome names, and comes back after a lost
// connection. A connection counts as up for good when its Welcome has come; until then the backoff
// goes on and the deadline stays. After Refused or EndJob a lost connection isn't restored. How it
// connects, and what it says while it can't, is LinkDialer's part.
//
// The rendezvous answers heartbeats. Where nothing comes back for half the time after which it
// would call this node lost, the connection counts as lost on this side: the network is cut, or
// that process stands still. The new one is tried at once and often, so that a cut shorter than
// that time costs nobody a restart; TCP alone would wait twice as long after each attempt.
#pragma once

#include "proto/log.h"
#include "proto/types.h"
#include "rendezvous/link.h"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ddprun {

struct TcpLinkOptions {
    std::string host;  ///< a name or a numeric address, without brackets
    Port port;
    /// For the first Welcome: the join time-out of the job.
    std::chrono::milliseconds connect_timeout{600'000};
    /// From the loss of the connection to the next Welcome.
    std::chrono::milliseconds lost_timeout{60'000};
    /// Intervals of silence after which the rendezvous calls a node lost: the job's.
    std::int32_t heartbeat_misses = 3;
    /// Asked before each attempt until the first Welcome, with the addresses that the host has
    /// (none where it can't be resolved yet). True: no link is wanted any more, nothing follows.
    std::function<bool(const std::vector<std::string>& addresses)> superseded{};
};

/// `log` must outlive the link. Errors of on_lost: timed_out, with host, port, the number of
/// attempts and what the last one met.
[[nodiscard]] std::unique_ptr<RendezvousLink> make_tcp_link(
    boost::asio::io_context& io_context, TcpLinkOptions options, Log& log
);

}  // namespace ddprun
