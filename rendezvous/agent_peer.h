// One agent as the rendezvous host sees it: a TCP connection or the agent of this very process.
// Everything happens on the io_context's one thread.
#pragma once

#include "proto/agent_messages.h"
#include "proto/error.h"

#include <memory>
#include <optional>
#include <string>

namespace ddprun {

class AgentPeer {
public:
    AgentPeer() = default;
    AgentPeer(const AgentPeer&) = delete;
    AgentPeer& operator=(const AgentPeer&) = delete;
    virtual ~AgentPeer() = default;

    /// Queues a message; nothing happens after close.
    virtual void send(const ServerMessage& message) = 0;

    /// Sends what is queued, then closes. The host hears no more of it.
    virtual void close() = 0;

    /// For logs: the peer's address.
    [[nodiscard]] virtual const std::string& name() const = 0;

    /// A peer in this process can't fall silent.
    [[nodiscard]] virtual bool is_local() const = 0;

    /// Who it is; empty before its Join.
    struct Identity {
        JobId job;
        NodeId node;
        Incarnation incarnation{};
    };

    std::optional<Identity> identity;
};

/// What peers tell their host. Never called from inside AgentPeer's own functions.
class AgentPeerOwner {
public:
    AgentPeerOwner() = default;
    AgentPeerOwner(const AgentPeerOwner&) = delete;
    AgentPeerOwner& operator=(const AgentPeerOwner&) = delete;
    virtual ~AgentPeerOwner() = default;

    virtual void on_message(
        const std::shared_ptr<AgentPeer>& peer, const AgentMessage& message
    ) = 0;

    /// The connection is gone; `reason` is for the log. The peer is of no use any more.
    virtual void on_closed(const std::shared_ptr<AgentPeer>& peer, const Error& reason) = 0;
};

}  // namespace ddprun
