// Made-up pictures, a function of seed and index alone: noise whose strength varies with the label,
// so that training has something to learn and measures the same work as real data that is cached.
#pragma once

#include "trainer/data.h"

#include <cstdint>
#include <memory>

namespace ddprun::trainer {

struct SyntheticOptions {
    std::int64_t size = 1;
    std::int64_t num_classes = 1;
    ImageShape shape;
    std::uint64_t seed = 0;
};

[[nodiscard]] std::unique_ptr<Dataset> make_synthetic(const SyntheticOptions& options);

}  // namespace ddprun::trainer
