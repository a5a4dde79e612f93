#include "rendezvous/liveness.h"

#include "proto/limits.h"

namespace ddprun {

namespace {

Stamp later(Stamp stamp, std::chrono::milliseconds delay) {
    return Stamp{stamp.value() + delay.count()};
}

/// The last heartbeat before a cut is somewhat old when it begins, and the next one needs a new
/// connection when it is over.
std::chrono::milliseconds silence_max(const Liveness::Rhythm& rhythm) {
    return rhythm.interval * rhythm.misses + rhythm.interval / 2;
}

}  // namespace

void Liveness::watch(const LiveKey& key, Incarnation incarnation, Rhythm rhythm, Stamp now) {
    const auto former = lives_.find(key);
    if (former != lives_.end()) {
        erase(former);
    }
    const Stamp deadline = later(now, silence_max(rhythm));
    lives_.emplace(key, Life{incarnation, rhythm, now, std::nullopt, deadline});
    deadlines_.emplace(deadline, key);
}

void Liveness::heard(const LiveKey& key, Incarnation incarnation, Stamp now) {
    const auto life = find(key, incarnation);
    if (life == lives_.end() || life->second.closed) {
        return;
    }
    life->second.heard = now;
    set_deadline(life, later(now, silence_max(life->second.rhythm)));
}

void Liveness::connection_closed(const LiveKey& key, Incarnation incarnation, Stamp now) {
    const auto life = find(key, incarnation);
    if (life == lives_.end() || life->second.closed) {
        return;
    }
    life->second.closed = now;
    set_deadline(life, later(now, limits::kResumeGrace));
}

void Liveness::forget(const LiveKey& key, Incarnation incarnation) {
    const auto life = find(key, incarnation);
    if (life != lives_.end()) {
        erase(life);
    }
}

std::vector<Liveness::Lost> Liveness::expire(Stamp now) {
    std::vector<Lost> lost;
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
        const auto life = lives_.find(deadlines_.begin()->second);
        const Life& end = life->second;
        if (!end.closed && now > later(end.deadline, end.rhythm.interval)) {
            // This process itself was asleep (stopped, suspended): what nodes sent meanwhile hasn't
            // been read yet.
            set_deadline(life, later(now, end.rhythm.interval));
            continue;
        }
        NodeLost what;
        what.cause = end.closed ? NodeLost::Cause::closed : NodeLost::Cause::silent;
        // A silent node was there at its last heartbeat and may have been until the next was due.
        what.since = end.closed ? *end.closed : later(end.heard, end.rhythm.interval);
        lost.push_back(Lost{life->first, end.incarnation, what});
        erase(life);
    }
    return lost;
}

std::optional<Stamp> Liveness::deadline() const {
    if (deadlines_.empty()) {
        return std::nullopt;
    }
    return deadlines_.begin()->first;
}

Liveness::Lives::iterator Liveness::find(const LiveKey& key, Incarnation incarnation) {
    const auto life = lives_.find(key);
    if (life == lives_.end() || life->second.incarnation != incarnation) {
        return lives_.end();
    }
    return life;
}

void Liveness::set_deadline(Lives::iterator life, Stamp deadline) {
    deadlines_.erase({life->second.deadline, life->first});
    life->second.deadline = deadline;
    deadlines_.emplace(deadline, life->first);
}

void Liveness::erase(Lives::iterator life) {
    deadlines_.erase({life->second.deadline, life->first});
    lives_.erase(life);
}

}  // namespace ddprun
