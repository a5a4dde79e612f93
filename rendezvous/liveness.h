// Which nodes live: a core of its own, one per server for all its jobs, never logged. A node is
// lost when nothing was heard of it for heartbeat_interval x heartbeat_misses and half an interval
// more, so that a cut shorter than that product costs no node, or when its closed connection didn't
// come back within kResumeGrace. Pure: the caller's stamps are the only clock.
#pragma once

#include "proto/types.h"
#include "rendezvous/membership_events.h"

#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace ddprun {

/// A node of any job of this server.
struct LiveKey {
    JobId job;
    NodeId node;

    friend auto operator<=>(const LiveKey&, const LiveKey&) = default;
};

class Liveness {
public:
    struct Lost {
        LiveKey key;
        Incarnation incarnation{};
        NodeLost lost;

        friend bool operator==(const Lost&, const Lost&) = default;
    };

    struct Rhythm {
        std::chrono::milliseconds interval{1'000};
        std::int32_t misses = 3;
    };

    /// This life of the node has an open connection from now on; a former life is forgotten.
    void watch(const LiveKey& key, Incarnation incarnation, Rhythm rhythm, Stamp now);

    /// Something came from it. Unknown lives are ignored, here and below.
    void heard(const LiveKey& key, Incarnation incarnation, Stamp now);

    void connection_closed(const LiveKey& key, Incarnation incarnation, Stamp now);

    void forget(const LiveKey& key, Incarnation incarnation);

    /// Those whose time is over; they are forgotten. In order of their deadlines.
    [[nodiscard]] std::vector<Lost> expire(Stamp now);

    /// When to call expire() next.
    [[nodiscard]] std::optional<Stamp> deadline() const;

private:
    struct Life {
        Incarnation incarnation{};
        Rhythm rhythm;
        Stamp heard;
        std::optional<Stamp> closed;
        Stamp deadline;
    };

    using Lives = std::map<LiveKey, Life>;

    [[nodiscard]] Lives::iterator find(const LiveKey& key, Incarnation incarnation);
    void set_deadline(Lives::iterator life, Stamp deadline);
    void erase(Lives::iterator life);

    Lives lives_;
    std::set<std::pair<Stamp, LiveKey>> deadlines_;
};

}  // namespace ddprun
