// The ground of a simulation: virtual time, chance, and the story of what happened. One thread;
// what is due at the same millisecond happens in the order in which it was asked for.
#pragma once

#include "proto/types.h"
#include "tests/sim/random.h"

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ddprun::sim {

class World {
public:
    explicit World(std::uint64_t seed) : random(seed) {}

    [[nodiscard]] Stamp now() const { return Stamp{now_}; }

    void after(std::int64_t milliseconds, std::function<void()> what) {
        queue_.emplace(std::pair(now_ + milliseconds, next_++), std::move(what));
    }

    /// False where nothing is due until `end`.
    bool run_one(std::int64_t end) {
        if (queue_.empty() || queue_.begin()->first.first > end || !broken.empty()) {
            return false;
        }
        auto due = queue_.extract(queue_.begin());
        now_ = due.key().first;
        due.mapped()();
        return true;
    }

    template <class... Args>
    void tell(fmt::format_string<Args...> format, Args&&... args) {
        story.push_back(
            fmt::format("{:>8} ms  ", now_) + fmt::format(format, std::forward<Args>(args)...)
        );
    }

    /// An invariant; the first that doesn't hold ends the run.
    template <class... Args>
    void require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
        if (!holds && broken.empty()) {
            broken = fmt::format(format, std::forward<Args>(args)...);
            tell("BROKEN: {}", broken);
        }
    }

    Random random;
    std::vector<std::string> story;
    std::string broken;  ///< the first invariant that didn't hold

private:
    std::int64_t now_ = 0;
    std::uint64_t next_ = 0;
    std::map<std::pair<std::int64_t, std::uint64_t>, std::function<void()>> queue_;
};

}  // namespace ddprun::sim
