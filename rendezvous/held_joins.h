// Agents that ask for a place whose present agent seems to live: two machines with one host name,
// or one machine that came back before its old connection was noticed to be dead. Who is it? The
// present agent's next words tell: then the newcomer is refused; its silence or its end gives the
// place to the newcomer. Pure: the caller's stamps are the only clock.
#pragma once

#include "proto/limits.h"
#include "rendezvous/agent_peer.h"
#include "rendezvous/liveness.h"

#include <map>
#include <memory>
#include <optional>

namespace ddprun {

struct HeldJoin {
    std::shared_ptr<AgentPeer> peer;
    Join join;
    Stamp since;
};

class HeldJoins {
public:
    /// False where another one waits for this place already.
    [[nodiscard]] bool hold(const LiveKey& key, HeldJoin held) {
        return joins_.try_emplace(key, std::move(held)).second;
    }

    /// Something came from the place's present agent: who is to be refused for it. Nobody, where
    /// that may have been sent before the newcomer came.
    [[nodiscard]] std::optional<HeldJoin> refused_by_words(const LiveKey& key, Stamp now) {
        const auto found = joins_.find(key);
        if (found == joins_.end() ||
            now.value() - found->second.since.value() < limits::kHeldJoinMin.count()) {
            return std::nullopt;
        }
        return take(key);
    }

    /// The place is free: who gets it.
    [[nodiscard]] std::optional<HeldJoin> take(const LiveKey& key) {
        auto node = joins_.extract(key);
        return node.empty() ? std::nullopt : std::optional{std::move(node.mapped())};
    }

    /// Its connection has closed.
    void forget(const std::shared_ptr<AgentPeer>& peer) {
        std::erase_if(joins_, [&](const auto& each) { return each.second.peer == peer; });
    }

private:
    std::map<LiveKey, HeldJoin> joins_;
};

}  // namespace ddprun
