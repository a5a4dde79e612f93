// The keys of a store, each with its value: a table of pointers, each to one block of memory that
// holds the key and the value together. A key costs about 40 bytes besides its own and its value's.
// Pure. In no order.
#pragma once

#include "rendezvous/store_value.h"

#include <boost/unordered/unordered_flat_set.hpp>

#include <cstddef>
#include <functional>
#include <string_view>
#include <utility>

namespace ddprun {

class KeyTable {
public:
    /// The value of the key, to read or to be replaced by one of the same name; null where there
    /// is none. Valid until the next add() or erase().
    [[nodiscard]] StoreValue* find(std::string_view key) const {
        const auto found = slots_.find(key);
        return found == slots_.end() ? nullptr : &found->value;
    }

    /// `value` is named() by its key, which isn't there.
    void add(StoreValue value) { slots_.insert(Slot{std::move(value)}); }

    /// `key` is there, and may be the name of its own value.
    void erase(std::string_view key) {
        slots_.erase(slots_.find(key));
        if (slots_.bucket_count() > kKeptBucketsMax &&
            slots_.size() < slots_.bucket_count() / kSparseness) {
            slots_.rehash(0);
        }
    }

    [[nodiscard]] std::size_t size() const { return slots_.size(); }

    /// Calls `use` with every key.
    template <class Use>
    void for_each_key(Use use) const {
        for (const Slot& slot : slots_) {
            use(slot.value.name());
        }
    }

private:
    static constexpr std::size_t kKeptBucketsMax = 1'024;
    static constexpr std::size_t kSparseness = 8;

    struct Slot {
        mutable StoreValue value;  ///< a value in its place has the same name
    };

    struct Hash {
        using is_transparent = void;
        using is_avalanching = void;  // of libstdc++'s hash: no more mixing is needed

        std::size_t operator()(std::string_view text) const {
            return std::hash<std::string_view>{}(text);
        }

        std::size_t operator()(const Slot& slot) const { return (*this)(slot.value.name()); }
    };

    struct Equal {
        using is_transparent = void;

        bool operator()(const Slot& slot, std::string_view text) const {
            return slot.value.name() == text;
        }

        bool operator()(std::string_view text, const Slot& slot) const {
            return slot.value.name() == text;
        }

        bool operator()(const Slot& left, const Slot& right) const {
            return left.value.name() == right.value.name();
        }
    };

    boost::unordered_flat_set<Slot, Hash, Equal> slots_;
};

}  // namespace ddprun
