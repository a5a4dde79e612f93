// A TCP connection between an agent and the host in a simulation: in order in each direction, with
// delays; a blocked node's bytes arrive when its network is back; a cut loses what is on its way.
#pragma once

#include "proto/agent_messages.h"
#include "tests/sim/world.h"

#include <functional>
#include <memory>

namespace ddprun::sim {

/// What a node's network does.
struct Network {
    std::int64_t blocked_until = 0;  ///< nothing gets through before
    std::int64_t delay_max = 3;
};

class Connection : public std::enable_shared_from_this<Connection> {
public:
    Connection(World& world, const Network& network) : world_(world), network_(network) {}

    std::function<void(const AgentMessage&)> at_host;
    std::function<void()> host_sees_end;
    std::function<void(const ServerMessage&)> at_agent;
    std::function<void()> agent_sees_end;

    void to_host(const AgentMessage& message) {
        deliver(host_side_, [this, message] { at_host(message); });
    }

    void to_agent(const ServerMessage& message) {
        deliver(agent_side_, [this, message] { at_agent(message); });
    }

    /// What was sent before still arrives.
    void close_from_agent() {
        deliver(host_side_, [this] { end_host_side(); });
        agent_side_.ended = true;
    }

    void close_from_host() {
        deliver(agent_side_, [this] { end_agent_side(); });
        host_side_.ended = true;
    }

    /// What is on its way is lost; both sides see the end some time later.
    void cut() {
        ++epoch_;
        const auto self = shared_from_this();
        world_.after(travel_time(), [self] { self->end_host_side(); });
        world_.after(world_.random.between(0, 5), [self] { self->end_agent_side(); });
    }

    /// The system closes a dead process's sockets; where the machine died, nobody does.
    void agent_died(bool machine_too) {
        agent_side_.ended = true;
        ++epoch_;
        if (machine_too) {
            return;
        }
        const auto self = shared_from_this();
        const std::int64_t delay = travel_time();
        world_.after(delay, [self] { self->end_host_side(); });
    }

    void end_agent_side() {
        if (!agent_side_.ended) {
            agent_side_.ended = true;
            agent_sees_end();
        }
    }

private:
    struct Side {
        bool ended = false;     ///< takes nothing any more
        std::int64_t last = 0;  ///< when the last message arrives
    };

    std::int64_t travel_time() {
        const std::int64_t blocked = network_.blocked_until - world_.now().value();
        return std::max<std::int64_t>(blocked, 0) + world_.random.between(0, network_.delay_max);
    }

    template <class Arrive>
    void deliver(Side& side, Arrive arrive) {
        const std::int64_t now = world_.now().value();
        side.last = std::max(side.last, now + travel_time());
        world_.after(side.last - now, [self = shared_from_this(), &side, arrive, epoch = epoch_] {
            if (self->epoch_ == epoch && !side.ended) {
                arrive();
            }
        });
    }

    void end_host_side() {
        if (!host_side_.ended) {
            host_side_.ended = true;
            host_sees_end();
        }
    }

    World& world_;
    const Network& network_;
    Side host_side_;
    Side agent_side_;
    std::uint64_t epoch_ = 0;
};

}  // namespace ddprun::sim
