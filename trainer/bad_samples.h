// Broken pictures that a training may skip: each is named once, counted, and one too many ends the
// training. Shared by the threads of a loader and by the loaders of all epochs.
#pragma once

#include "proto/result.h"

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>

namespace ddprun::trainer {

class BadSamples {
public:
    /// `warn` takes a line for the user; it is called by any thread, one at a time.
    BadSamples(std::int64_t allowed, std::function<void(const std::string& line)> warn);

    /// Picture `index` can't be read because of `error`. The error to end with, if it is one more
    /// than is allowed.
    [[nodiscard]] std::optional<Error> note(std::int64_t index, const Error& error);

    /// Different pictures skipped so far.
    [[nodiscard]] std::int64_t count() const;

private:
    const std::int64_t allowed_;
    const std::function<void(const std::string& line)> warn_;
    mutable std::mutex mutex_;
    std::set<std::int64_t> seen_;  ///< guarded by mutex_; at most `allowed_`
};

}  // namespace ddprun::trainer
