// The only source of chance in a simulation: the same seed gives the same run on every machine.
#pragma once

#include <cstdint>
#include <random>

namespace ddprun::sim {

class Random {
public:
    explicit Random(std::uint64_t seed) : engine_(seed) {}

    /// first ... last, both included.
    std::int64_t between(std::int64_t first, std::int64_t last) {
        const auto span = static_cast<std::uint64_t>(last - first) + 1;
        return first + static_cast<std::int64_t>(engine_() % span);
    }

    bool one_in(std::int64_t count) { return between(1, count) == 1; }

    bool percent(std::int64_t chance) { return between(0, 99) < chance; }

private:
    std::mt19937_64 engine_;
};

}  // namespace ddprun::sim
