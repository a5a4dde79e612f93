#include "trainer/sampler.h"

#include "proto/assert.h"
#include "proto/limits.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace ddprun::trainer {

namespace {

std::int64_t round_up_division(std::int64_t dividend, std::int64_t divisor) {
    return (dividend + divisor - 1) / divisor;
}

}  // namespace

std::vector<std::int64_t> random_permutation(std::int64_t count, std::uint64_t seed) {
    DDPRUN_ASSERT(count >= 0 && count <= limits::kSamplesMax);
    // torch's engine is the standard MT19937, and of a seed it takes the lower 32 bits.
    std::mt19937 engine(static_cast<std::uint32_t>(seed));
    std::vector<std::int64_t> permutation(static_cast<std::size_t>(count));
    std::iota(permutation.begin(), permutation.end(), std::int64_t{0});
    // The modulo, the direction and the missing last step are torch's (randperm_cpu).
    for (std::size_t i = 0; i + 1 < permutation.size(); ++i) {
        const std::size_t offset = engine() % (permutation.size() - i);
        std::swap(permutation[i], permutation[i + offset]);
    }
    return permutation;
}

DistributedSampler::DistributedSampler(const SamplerOptions& options) : options_(options) {
    const std::int64_t size = options.dataset_size;
    const std::int64_t world_size = options.world_size;
    DDPRUN_ASSERT(size >= 1 && size <= limits::kSamplesMax);
    DDPRUN_ASSERT(options.rank >= 0 && options.rank < options.world_size);
    const bool cut = options.drop_last && size % world_size != 0;
    // Python takes ceil((size - world_size) / world_size), which is 0 for a size below.
    samples_per_rank_ = cut ? size / world_size : round_up_division(size, world_size);
}

std::vector<std::int64_t> DistributedSampler::indices(std::int64_t epoch, std::int64_t consumed)
    const {
    DDPRUN_ASSERT(consumed >= 0);
    const std::int64_t size = options_.dataset_size;
    const std::int64_t world_size = options_.world_size;
    std::vector<std::int64_t> order;
    if (options_.shuffle) {
        order = random_permutation(size, options_.seed + static_cast<std::uint64_t>(epoch));
    } else {
        order.resize(static_cast<std::size_t>(size));
        std::iota(order.begin(), order.end(), std::int64_t{0});
    }
    const std::int64_t begin = std::min(consumed, size);
    const std::int64_t each = options_.drop_last ? (size - begin) / world_size
                                                 : round_up_division(size - begin, world_size);
    std::vector<std::int64_t> mine;
    mine.reserve(static_cast<std::size_t>(each));
    for (std::int64_t i = 0; i < each; ++i) {
        const std::int64_t entry = begin + i * world_size + options_.rank;
        // Beyond its end the order begins again, as often as it takes.
        mine.push_back(order[static_cast<std::size_t>(entry % size)]);
    }
    return mine;
}

std::vector<std::int64_t> evaluation_indices(
    std::int64_t dataset_size, std::int32_t world_size, std::int32_t rank
) {
    DDPRUN_ASSERT(world_size >= 1 && rank >= 0 && rank < world_size);
    std::vector<std::int64_t> mine;
    for (std::int64_t index = rank; index < dataset_size; index += world_size) {
        mine.push_back(index);
    }
    return mine;
}

std::int64_t training_batches(std::int64_t samples, std::int64_t batch_size) {
    DDPRUN_ASSERT(samples >= 0 && batch_size >= 1);
    const bool lone_picture = samples % batch_size == 1 && batch_size > 1;
    return samples / batch_size + (samples % batch_size != 0 && !lone_picture ? 1 : 0);
}

}  // namespace ddprun::trainer
