// An agent's way to the rendezvous: over TCP to another node or a daemon, or straight to the host
// in this process. Messages in order, none lost while the link is up; both kinds behave the same.
// Not thread-safe: everything happens on the io_context's one thread, and handlers are never called
// from inside send() or start().
#pragma once

#include "proto/agent_messages.h"
#include "proto/error.h"

#include <functional>
#include <string>

namespace ddprun {

class RendezvousLink {
public:
    struct Handlers {
        /// The link is up (again): send Join now. `local_address` is the numeric address by which
        /// this node reaches the rendezvous, the one to publish to other nodes.
        std::function<void(const std::string& local_address)> on_connected;
        std::function<void(const ServerMessage& message)> on_message;
        /// The link is down and is being restored in the background; on_connected follows when it
        /// is up again.
        std::function<void(const Error& reason)> on_disconnected;
        /// The link is down for good: its deadline passed. Nothing follows.
        std::function<void(const Error& reason)> on_lost;
    };

    RendezvousLink() = default;
    RendezvousLink(const RendezvousLink&) = delete;
    RendezvousLink& operator=(const RendezvousLink&) = delete;
    virtual ~RendezvousLink() = default;

    /// Begins to connect. Once.
    virtual void start(Handlers handlers) = 0;

    /// Queues a message; dropped silently while the link is down (the agent sends what is
    /// unacknowledged again after on_connected).
    virtual void send(const AgentMessage& message) = 0;

    /// Sends what is queued, then closes; `done` is called when that is over. No handler is called
    /// afterwards.
    virtual void close(std::function<void()> done) = 0;
};

}  // namespace ddprun
