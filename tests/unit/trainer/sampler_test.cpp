#include "trainer/sampler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

namespace ddprun::trainer {
namespace {

using Indices = std::vector<std::int64_t>;

/// FNV-1a over whole numbers instead of bytes.
std::uint64_t hash_of(const std::vector<Indices>& per_rank) {
    std::uint64_t hash = 0xcbf29ce484222325U;
    for (const Indices& indices : per_rank) {
        for (const std::int64_t index : indices) {
            hash = (hash ^ static_cast<std::uint64_t>(index)) * 0x100000001b3U;
        }
    }
    return hash;
}

struct PythonRow {
    std::int64_t size;
    std::int32_t world_size;
    std::uint64_t seed;
    std::int64_t epoch;
    bool drop_last;
    bool shuffle;
    std::int64_t samples_per_rank;
    std::uint64_t hash;  ///< of the indices of rank 0, then rank 1, ...
};

// Made by torch.utils.data.DistributedSampler of PyTorch 2.15.
constexpr PythonRow kPythonRows[] = {
    {10, 1, 0U, 0, false, true, 10, 0x5fb755c895d353d6U},
    {10, 2, 0U, 0, false, true, 5, 0x9199ccc189731e1eU},
    {10, 3, 0U, 0, false, true, 4, 0xb42459e8cc12c15dU},
    {10, 3, 0U, 0, true, true, 3, 0xb2f8267ef73f4500U},
    {10, 3, 0U, 1, false, true, 4, 0xf05a3462dda80d05U},
    {1, 1, 0U, 0, false, true, 1, 0xaf63bd4c8601b7dfU},
    {1, 4, 0U, 0, false, true, 1, 0x4d25767f9dce13f5U},
    {2, 7, 5U, 0, false, true, 1, 0xb63e07b4dd1b0537U},
    {3, 8, 5U, 2, false, true, 1, 0xb8f0694a46c89800U},
    {3, 8, 5U, 2, true, true, 0, 0xcbf29ce484222325U},
    {7, 7, 1U, 1, true, true, 1, 0x9dc621de47ec9894U},
    {10, 4, 0U, 0, false, false, 3, 0x52b2cccc3517d9d9U},
    {10, 4, 0U, 0, true, false, 2, 0x8259b0999b822d55U},
    {100, 8, 42U, 3, false, true, 13, 0xc3380d84dd5a9bf9U},
    {100, 8, 42U, 3, true, true, 12, 0x75972c31d38760a1U},
    {1000, 3, 123U, 7, false, true, 334, 0x35c83fd7d42ec17cU},
    {60000, 2, 0U, 0, false, true, 30000, 0x2b6c219f8e663eefU},
    {60000, 7, 0U, 5, true, true, 8571, 0x1cbc3adc29f30a67U},
    {60000, 16, 4294967295U, 1, false, true, 3750, 0xbba537855125522bU},
    {60000, 4, 4294967301U, 0, false, true, 15000, 0xc0f173b57db847fbU},
    {1000, 2, 9223372036854775808U, 2, false, true, 500, 0x7ac43a8302e003f1U},
    {1281167, 8, 0U, 0, false, true, 160146, 0xa97f406bc7cc7b77U},
};

TEST_SUITE_BEGIN("trainer/sampler");

TEST_CASE("indices are those of Python's DistributedSampler") {
    for (const PythonRow& row : kPythonRows) {
        CAPTURE(row.size);
        CAPTURE(row.world_size);
        CAPTURE(row.seed);
        CAPTURE(row.epoch);
        CAPTURE(row.drop_last);
        std::vector<Indices> per_rank;
        for (std::int32_t rank = 0; rank < row.world_size; ++rank) {
            const DistributedSampler sampler(
                {row.size, row.world_size, rank, row.seed, row.shuffle, row.drop_last}
            );
            CHECK(sampler.samples_per_rank() == row.samples_per_rank);
            per_rank.push_back(sampler.indices(row.epoch));
            CHECK(static_cast<std::int64_t>(per_rank.back().size()) == row.samples_per_rank);
        }

        CHECK(hash_of(per_rank) == row.hash);
    }
}

TEST_CASE("a permutation is torch.randperm's") {
    CHECK(random_permutation(10, 0) == Indices{4, 1, 7, 5, 3, 9, 0, 8, 6, 2});
    CHECK(random_permutation(10, 5) == Indices{1, 4, 9, 6, 3, 5, 0, 2, 8, 7});
    CHECK(random_permutation(10, ~0ULL) == Indices{1, 4, 6, 2, 0, 5, 8, 7, 9, 3});
    CHECK(random_permutation(1, 3) == Indices{0});
    CHECK(random_permutation(0, 3).empty());
}

TEST_CASE("a seed counts in its lower 32 bits as torch takes it") {
    CHECK(random_permutation(50, 0x100000007U) == random_permutation(50, 7));
}

TEST_CASE("a resume in mid-epoch gives the rest of the same indices") {
    for (const bool drop_last : {false, true}) {
        const DistributedSampler sampler({103, 4, 2, 9, true, drop_last});
        const Indices whole = sampler.indices(3);
        for (std::size_t taken = 0; taken <= whole.size(); ++taken) {
            const Indices rest = sampler.indices(3, static_cast<std::int64_t>(taken) * 4);

            CHECK(rest == Indices(whole.begin() + static_cast<std::ptrdiff_t>(taken), whole.end()));
        }
    }
}

TEST_CASE("with another world size the job goes on at the first picture that nobody has seen") {
    constexpr std::int64_t kSize = 100;
    std::multiset<std::int64_t> seen;
    for (std::int32_t rank = 0; rank < 4; ++rank) {
        const Indices whole = DistributedSampler({kSize, 4, rank, 1}).indices(0);
        seen.insert(whole.begin(), whole.begin() + 10);
    }
    for (std::int32_t rank = 0; rank < 3; ++rank) {
        const Indices rest = DistributedSampler({kSize, 3, rank, 1}).indices(0, 40);
        seen.insert(rest.begin(), rest.end());
    }

    CHECK(seen.size() == kSize);
    CHECK(std::set<std::int64_t>(seen.begin(), seen.end()).size() == kSize);
}

TEST_CASE("nothing is left of an epoch that was consumed to its end or into its padding") {
    const DistributedSampler sampler({10, 4, 0, 0});

    CHECK(sampler.indices(0, 10).empty());
    CHECK(sampler.indices(0, 12).empty());
    CHECK(sampler.indices(0, 9).size() == 1);
}

TEST_CASE("an evaluation sees every picture exactly once, whatever the world size") {
    for (std::int32_t world_size = 1; world_size <= 7; ++world_size) {
        Indices all;
        for (std::int32_t rank = 0; rank < world_size; ++rank) {
            const Indices mine = evaluation_indices(5, world_size, rank);
            all.insert(all.end(), mine.begin(), mine.end());
        }
        std::sort(all.begin(), all.end());

        CHECK(all == Indices{0, 1, 2, 3, 4});
    }
}

TEST_CASE("the last partial batch counts, but not one picture alone") {
    CHECK(training_batches(64, 32) == 2);
    CHECK(training_batches(66, 32) == 3);
    CHECK(training_batches(65, 32) == 2);
    CHECK(training_batches(1, 32) == 0);
    CHECK(training_batches(2, 32) == 1);
    CHECK(training_batches(0, 32) == 0);
    CHECK(training_batches(5, 1) == 5);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
