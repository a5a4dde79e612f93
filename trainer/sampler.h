// Which pictures a rank sees, and in which order: exactly the indices of Python's
// torch.utils.data.DistributedSampler, from torch's own permutation. Pure.
//
// An epoch's order is a permutation of the data set, padded from its own beginning (or cut, with
// drop_last) to a multiple of the world size; rank r takes every world_size-th entry from entry r
// on. So the first k steps of all ranks together have consumed the first k x batch x world_size
// entries, whatever the world size: a job that resumes with another one goes on at that entry.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace ddprun::trainer {

/// torch.randperm(count) on the CPU with a generator seeded by `seed`. `count` is at most
/// limits::kSamplesMax, below which torch draws 32 bits a step.
[[nodiscard]] std::vector<std::int64_t> random_permutation(std::int64_t count, std::uint64_t seed);

struct SamplerOptions {
    std::int64_t dataset_size = 0;  ///< at least 1
    std::int32_t world_size = 1;
    std::int32_t rank = 0;
    std::uint64_t seed = 0;
    bool shuffle = true;
    bool drop_last = false;  ///< cut the tail instead of padding it
};

class DistributedSampler {
public:
    explicit DistributedSampler(const SamplerOptions& options);

    /// Entries that each rank takes in a whole epoch.
    [[nodiscard]] std::int64_t samples_per_rank() const { return samples_per_rank_; }

    /// This rank's indices of `epoch` (from 0), after the whole job has `consumed` entries of it.
    /// What is left is padded to a multiple of the world size; none is left from the data set's
    /// size on.
    [[nodiscard]] std::vector<std::int64_t> indices(std::int64_t epoch, std::int64_t consumed = 0)
        const;

private:
    SamplerOptions options_;
    std::int64_t samples_per_rank_;
};

/// The rank's part of an evaluation: every picture on exactly one rank, without padding.
[[nodiscard]] std::vector<std::int64_t> evaluation_indices(
    std::int64_t dataset_size, std::int32_t world_size, std::int32_t rank
);

/// How many batches `samples` make: the last may be smaller, but one picture alone is dropped
/// (batch norm can't train on it) unless `batch_size` is 1.
[[nodiscard]] std::int64_t training_batches(std::int64_t samples, std::int64_t batch_size);

}  // namespace ddprun::trainer
