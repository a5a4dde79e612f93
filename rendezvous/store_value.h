// A value of the store: immutable bytes, shared by the store and by all replies that carry them,
// never copied on the way. One block of memory holds the count of its holders, the lengths, the
// bytes and the key that they are stored under, since stores of many small values are the rule. One
// thread only: the count isn't atomic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <string_view>
#include <utility>

namespace ddprun {

class StoreValue {
public:
    /// No value, which is not the empty one.
    StoreValue() = default;

    /// `bytes`, then `more`, together less than 4 GiB.
    explicit StoreValue(std::string_view bytes, std::string_view more = {})
        : StoreValue({}, bytes, more) {}

    /// The same, stored under the key `name`.
    [[nodiscard]] static StoreValue named(
        std::string_view name, std::string_view bytes, std::string_view more = {}
    ) {
        return {name, bytes, more};
    }

    StoreValue(const StoreValue& other) noexcept : block_(other.block_) {
        if (block_ != nullptr) {
            ++block_->holders;
        }
    }

    StoreValue(StoreValue&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}

    StoreValue& operator=(const StoreValue& other) noexcept {
        StoreValue copy{other};
        std::swap(block_, copy.block_);
        return *this;
    }

    StoreValue& operator=(StoreValue&& other) noexcept {
        std::swap(block_, other.block_);
        return *this;
    }

    ~StoreValue() {
        if (block_ != nullptr && --block_->holders == 0) {
            ::operator delete(block_);
        }
    }

    [[nodiscard]] bool is_there() const { return block_ != nullptr; }

    /// Empty where there is none.
    [[nodiscard]] std::string_view view() const {
        if (block_ == nullptr) {
            return {};
        }
        return {reinterpret_cast<const char*>(block_ + 1), block_->size};
    }

    [[nodiscard]] std::size_t size() const { return block_ == nullptr ? 0 : block_->size; }

    /// The key that it was stored under; empty for one that wasn't.
    [[nodiscard]] std::string_view name() const {
        if (block_ == nullptr) {
            return {};
        }
        return {reinterpret_cast<const char*>(block_ + 1) + block_->size, block_->name_size};
    }

    [[nodiscard]] std::size_t holders() const { return block_ == nullptr ? 0 : block_->holders; }

private:
    StoreValue(std::string_view name, std::string_view bytes, std::string_view more);

    /// The bytes follow it, then the name.
    struct Block {
        std::uint32_t holders;
        std::uint32_t size;
        std::uint32_t name_size;
    };

    Block* block_ = nullptr;
};

}  // namespace ddprun
