#include "rendezvous/block_pool.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace ddprun {
namespace {

constexpr std::size_t kBlockBytes = 1'000;

TEST_SUITE_BEGIN("rendezvous/block_pool");

TEST_CASE("blocks are apart from each other, aligned, and hold what is written") {
    BlockPool pool;
    std::vector<unsigned char*> blocks;
    for (int i = 0; i < 300; ++i) {
        blocks.push_back(static_cast<unsigned char*>(pool.allocate(kBlockBytes)));
        std::memset(blocks.back(), i % 251, kBlockBytes);
    }

    for (std::size_t i = 0; i < blocks.size(); ++i) {
        CHECK(reinterpret_cast<std::uintptr_t>(blocks[i]) % alignof(std::max_align_t) == 0);
        CHECK(std::all_of(blocks[i], blocks[i] + kBlockBytes, [&](unsigned char byte) {
            return byte == i % 251;
        }));
        pool.deallocate(blocks[i]);
    }
    CHECK(pool.slabs() == 0);
}

TEST_CASE("a slab goes when its last block does and freed blocks are used again") {
    BlockPool pool;
    void* first = pool.allocate(kBlockBytes);
    std::vector<void*> blocks;
    while (pool.slabs() < 3) {
        blocks.push_back(pool.allocate(kBlockBytes));
    }

    pool.deallocate(first);
    void* again = pool.allocate(kBlockBytes);
    CHECK(pool.slabs() == 3);
    for (void* block : blocks) {
        pool.deallocate(block);
    }
    CHECK(pool.slabs() == 1);
    pool.deallocate(again);

    CHECK(pool.slabs() == 0);
}

TEST_CASE("coming and going in any order gives no block twice and all slabs back") {
    BlockPool pool;
    std::mt19937 rng{7};
    std::set<void*> live;
    for (int i = 0; i < 20'000; ++i) {
        // Grows at first, shrinks at last.
        const bool comes = static_cast<int>(rng() % 20'000) > i;
        if (comes) {
            CHECK(live.insert(pool.allocate(kBlockBytes)).second);
        } else if (!live.empty()) {
            const auto some = std::next(
                live.begin(),
                static_cast<std::ptrdiff_t>(rng() % std::min<std::size_t>(live.size(), 50))
            );
            pool.deallocate(*some);
            live.erase(some);
        }
    }
    for (void* block : live) {
        pool.deallocate(block);
    }

    CHECK(pool.slabs() == 0);
}

TEST_CASE("the pool lives as long as what was made in it") {
    auto pool = std::make_shared<BlockPool>();
    const std::weak_ptr<BlockPool> watch = pool;
    auto text = std::allocate_shared<std::vector<int>>(
        PoolAllocator<std::vector<int>>{std::move(pool)}, 3, 5
    );
    CHECK_FALSE(watch.expired());

    CHECK(text->at(2) == 5);
    text.reset();

    CHECK(watch.expired());
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
