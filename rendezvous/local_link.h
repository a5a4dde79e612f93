// The link of the agent that lives in the host's own process: the same messages, posted instead of
// sent, no socket and no bytes. Two ends that hold each other until one of them closes.
#pragma once

#include "rendezvous/agent_peer.h"
#include "rendezvous/link.h"

#include <boost/asio/io_context.hpp>

#include <memory>
#include <string>

namespace ddprun {

/// `local_address` is what on_connected reports. Goes on to work, as a link that is down, after its
/// host is gone.
[[nodiscard]] std::unique_ptr<RendezvousLink> make_local_link(
    boost::asio::io_context& io_context,
    std::weak_ptr<AgentPeerOwner> owner,
    std::string local_address
);

}  // namespace ddprun
