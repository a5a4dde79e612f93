// The random numbers of one picture in one epoch: a function of seed, epoch and index alone, so
// that a picture is augmented alike whatever thread, rank or world size reads it, and whenever a
// job resumes.
#pragma once

#include <cstdint>

namespace ddprun::trainer {

/// The SplitMix64 generator: a good mix of any 64 bits in a few operations.
[[nodiscard]] constexpr std::uint64_t mix_bits(std::uint64_t value) {
    value += 0x9e3779b97f4a7c15U;
    value = (value ^ value >> 30U) * 0xbf58476d1ce4e5b9U;
    value = (value ^ value >> 27U) * 0x94d049bb133111ebU;
    return value ^ value >> 31U;
}

class SampleRandom {
public:
    SampleRandom(std::uint64_t seed, std::int64_t epoch, std::int64_t index)
        : state_(mix_bits(
              mix_bits(mix_bits(seed) ^ static_cast<std::uint64_t>(epoch)) ^
              static_cast<std::uint64_t>(index)
          )) {}

    /// From 0 up to but without 1.
    [[nodiscard]] double uniform() {
        constexpr double kUnit = 1.0 / 9'007'199'254'740'992.0;  // 2^-53
        return static_cast<double>(next() >> 11U) * kUnit;
    }

    [[nodiscard]] double uniform(double low, double high) { return low + (high - low) * uniform(); }

    /// From 0 up to but without `bound`, which is at least 1. The bias of the product is below
    /// 2^-32 for any side of a picture.
    [[nodiscard]] int below(int bound) {
        return static_cast<int>((next() >> 32U) * static_cast<std::uint64_t>(bound) >> 32U);
    }

private:
    std::uint64_t next() {
        state_ += 0x9e3779b97f4a7c15U;
        return mix_bits(state_);
    }

    std::uint64_t state_;
};

}  // namespace ddprun::trainer
