// How many lines of one kind a log takes: whoever can make us write a line for each of his
// connections must not fill a disk. Pure: the caller's time is the only clock.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

namespace ddprun {

class LineLimit {
public:
    using TimePoint = std::chrono::steady_clock::time_point;

    /// At most `lines` in `time`.
    LineLimit(std::size_t lines, std::chrono::milliseconds time) : lines_(lines), time_(time) {}

    /// Nothing: this line is left out, and rest() is due at due(). Else how many were, since the
    /// last one that was not.
    [[nodiscard]] std::optional<std::size_t> let_through(TimePoint now) {
        if (!since_ || now - *since_ >= time_) {
            since_ = now;
            written_ = 0;
        }
        if (written_ >= lines_) {
            ++left_out_;
            return std::nullopt;
        }
        ++written_;
        return std::exchange(left_out_, 0);
    }

    /// How many lines were left out and not told yet, which is told by this.
    [[nodiscard]] std::size_t rest() { return std::exchange(left_out_, 0); }

    /// When the next line will be let through: the time to tell the rest if none comes.
    [[nodiscard]] TimePoint due() const { return since_.value_or(TimePoint{}) + time_; }

private:
    std::size_t lines_;
    std::chrono::milliseconds time_;
    std::optional<TimePoint> since_;
    std::size_t written_ = 0;
    std::size_t left_out_ = 0;
};

}  // namespace ddprun
