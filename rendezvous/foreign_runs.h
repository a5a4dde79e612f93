// The keys of foreign torchruns: what `torchrun --rdzv_backend=c10d` keeps at our store is named
// "/torch.rendezvous.ID" and "/torch.rendezvous.ID.ROUND/..." (with or without the first slash),
// and no agent of it ever removes a key, so a daemon would collect them for ever, and an id could
// not be used twice. All keys of one ID are a run. A run whose last connection is over is due after
// a while, unless another connection uses it before.
//
// Pure: time comes in with the events and may not go back. Call stored() and removed() for every
// key that comes and goes, used() for every key that a request of a connection names (after it has
// been applied), gone() when the connection is over. A use before the run has its first key isn't
// noted, nor one beyond `uses_max`.
#pragma once

#include "rendezvous/client_id.h"

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace ddprun {

class ForeignRuns {
public:
    using TimePoint = std::chrono::steady_clock::time_point;

    ForeignRuns(std::chrono::milliseconds keep, std::size_t uses_max)
        : keep_(keep),
          uses_max_(uses_max) {}

    /// The run that a key belongs to, as the beginning of the key; empty where it is none of these.
    [[nodiscard]] static std::string_view run_of(std::string_view key);

    void stored(std::string_view key);
    void removed(std::string_view key);
    void used(ClientId client, std::string_view key);
    void gone(ClientId client, TimePoint now);

    /// Up to `count` keys that are due at `now`, for the caller to remove.
    [[nodiscard]] std::vector<std::string> due(TimePoint now, std::size_t count) const;

    /// When the next run is due.
    [[nodiscard]] std::optional<TimePoint> next() const;

    [[nodiscard]] std::size_t size() const { return runs_.size(); }

private:
    struct Run;
    using Queue = std::list<Run*>;

    struct Hash {
        using is_transparent = void;

        std::size_t operator()(std::string_view text) const {
            return std::hash<std::string_view>{}(text);
        }
    };

    /// It is there as long as it has keys or users, and in due_ when it has keys only.
    struct Run {
        std::string name;
        std::unordered_set<std::string, Hash, std::equal_to<>> keys;
        std::size_t users = 0;
        TimePoint due_at;
        std::optional<Queue::iterator> place;
    };

    void settle(Run& run);

    std::chrono::milliseconds keep_;
    std::size_t uses_max_;
    std::size_t uses_ = 0;  ///< of all clients
    TimePoint now_;         ///< the latest that was told
    std::unordered_map<std::string, Run, Hash, std::equal_to<>> runs_;
    std::unordered_map<ClientId, std::unordered_set<Run*>> runs_of_clients_;
    Queue due_;  ///< in order of due_at
};

}  // namespace ddprun
