#include "trainer/bad_samples.h"

#include <fmt/format.h>

#include <utility>

namespace ddprun::trainer {

BadSamples::BadSamples(std::int64_t allowed, std::function<void(const std::string& line)> warn)
    : allowed_(allowed),
      warn_(std::move(warn)) {}

std::optional<Error> BadSamples::note(std::int64_t index, const Error& error) {
    const std::lock_guard lock(mutex_);
    const auto seen = static_cast<std::int64_t>(seen_.size());
    if (seen_.contains(index)) {
        return std::nullopt;
    }
    if (seen >= allowed_) {
        Error last = error;
        if (allowed_ > 0) {
            last.context += fmt::format(
                "; {} broken picture{} skipped before it are all that --max_bad_samples allows",
                allowed_,
                allowed_ == 1 ? "" : "s"
            );
        } else {
            last.context += "; --max_bad_samples allows none";
        }
        return last;
    }
    seen_.insert(index);
    warn_(fmt::format(
        "skipped a broken picture ({} of at most {}): {}", seen + 1, allowed_, error.context
    ));
    return std::nullopt;
}

std::int64_t BadSamples::count() const {
    const std::lock_guard lock(mutex_);
    return static_cast<std::int64_t>(seen_.size());
}

}  // namespace ddprun::trainer
