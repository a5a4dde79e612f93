// Blocks of one size, many together in slabs of pages of their own, so that the memory of a crowd
// of connections goes back as a whole when the crowd has gone: one by one they would lie between
// small things that live longer, and no page would ever
// be free. Not thread-safe. PoolAllocator shares the pool, which lives as long as anything in it.
#pragma once

#include "proto/assert.h"

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace ddprun {

class BlockPool {
public:
    BlockPool() = default;
    BlockPool(const BlockPool&) = delete;
    BlockPool& operator=(const BlockPool&) = delete;

    ~BlockPool() { DDPRUN_ASSERT(slabs_ == 0); }

    /// Every call with the same size; the block is aligned for any type.
    [[nodiscard]] void* allocate(std::size_t bytes) {
        if (with_room_ == nullptr) {
            add_slab(bytes);
        }
        Slab& slab = *with_room_;
        DDPRUN_ASSERT(slab.block_bytes == sizeof(Head) + rounded(bytes));
        Head* head = slab.free;
        slab.free = head->next_free;
        head->slab = &slab;
        ++slab.used;
        if (slab.free == nullptr) {
            unlink(slab);
        }
        return head + 1;
    }

    void deallocate(void* block) noexcept {
        Head* head = static_cast<Head*>(block) - 1;
        Slab& slab = *head->slab;
        const bool was_full = slab.free == nullptr;
        head->next_free = slab.free;
        slab.free = head;
        if (was_full) {
            link(slab);
        }
        if (--slab.used == 0) {
            unlink(slab);
            --slabs_;
            ::operator delete(&slab);
        }
    }

    [[nodiscard]] std::size_t slabs() const { return slabs_; }

    static constexpr std::size_t kSlabBytes = 64 * 1024;

private:
    struct Slab;

    /// Before each block.
    union alignas(std::max_align_t) Head {
        Slab* slab;       ///< of a block in use
        Head* next_free;  ///< in the same slab
    };

    struct alignas(std::max_align_t) Slab {
        Slab* previous = nullptr;  ///< with room, as `next`
        Slab* next = nullptr;
        Head* free = nullptr;
        std::size_t used = 0;
        std::size_t block_bytes = 0;
    };

    static std::size_t rounded(std::size_t bytes) {
        return (bytes + sizeof(Head) - 1) / sizeof(Head) * sizeof(Head);
    }

    void add_slab(std::size_t bytes) {
        const std::size_t block_bytes = sizeof(Head) + rounded(bytes);
        DDPRUN_ASSERT(sizeof(Slab) + block_bytes <= kSlabBytes);
        auto* memory = static_cast<std::byte*>(::operator new(kSlabBytes));
        auto* slab = new (memory) Slab{};
        slab->block_bytes = block_bytes;
        for (std::size_t at = sizeof(Slab); at + block_bytes <= kSlabBytes; at += block_bytes) {
            auto* head = new (memory + at) Head{};
            head->next_free = slab->free;
            slab->free = head;
        }
        link(*slab);
        ++slabs_;
    }

    void link(Slab& slab) {
        slab.previous = nullptr;
        slab.next = with_room_;
        if (with_room_ != nullptr) {
            with_room_->previous = &slab;
        }
        with_room_ = &slab;
    }

    void unlink(Slab& slab) {
        (slab.previous == nullptr ? with_room_ : slab.previous->next) = slab.next;
        if (slab.next != nullptr) {
            slab.next->previous = slab.previous;
        }
    }

    Slab* with_room_ = nullptr;
    std::size_t slabs_ = 0;
};

/// For std::allocate_shared: an object and its counts are one block.
template <class T>
class PoolAllocator {
public:
    using value_type = T;

    explicit PoolAllocator(std::shared_ptr<BlockPool> pool) : pool_(std::move(pool)) {}

    template <class U>
    explicit PoolAllocator(const PoolAllocator<U>& other) : pool_(other.pool()) {}

    [[nodiscard]] T* allocate(std::size_t count) {
        static_assert(alignof(T) <= alignof(std::max_align_t));
        return static_cast<T*>(pool_->allocate(count * sizeof(T)));
    }

    void deallocate(T* block, std::size_t) noexcept { pool_->deallocate(block); }

    [[nodiscard]] const std::shared_ptr<BlockPool>& pool() const { return pool_; }

    template <class U>
    bool operator==(const PoolAllocator<U>& other) const {
        return pool_ == other.pool();
    }

private:
    std::shared_ptr<BlockPool> pool_;
};

}  // namespace ddprun
