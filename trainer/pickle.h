// Python's pickle, as far as torch.save uses it: plain values and references to tensors. The writer
// gives protocol 2 with names that torch.load(weights_only=True) allows. The reader runs nothing:
// classes that it doesn't know stay as their name. Pure; all sizes are bounded (proto/limits.h).
#pragma once

#include "proto/result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ddprun::trainer {

/// A tensor's place: a view into the storage record "data/KEY" of the archive.
struct PickledTensor {
    std::string storage_type;  ///< "FloatStorage", "LongStorage", ...
    std::string key;
    std::int64_t storage_size = 0;  ///< elements
    std::int64_t offset = 0;        ///< elements
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;

    friend bool operator==(const PickledTensor&, const PickledTensor&) = default;
};

struct PickleValue;
struct PickleEntry;

using PickleList = std::vector<PickleValue>;

struct PickleTuple {
    std::vector<PickleValue> items;
};

/// In the order of the file. `ordered` is collections.OrderedDict.
struct PickleDict {
    std::vector<PickleEntry> items;
    bool ordered = false;

    /// The value of a text key, or null.
    [[nodiscard]] const PickleValue* find(std::string_view key) const;
};

/// A class or a function, or an object of one: only its name is kept.
struct PickleGlobal {
    std::string name;  ///< "module.name"
};

struct PickleNone {};

struct PickleValue {
    std::variant<
        PickleNone,
        bool,
        std::int64_t,
        double,
        std::string,
        PickleList,
        PickleTuple,
        PickleDict,
        PickledTensor,
        PickleGlobal>
        value;

    /// The alternative `T`, or null.
    template <class T>
    [[nodiscard]] const T* as() const {
        return std::get_if<T>(&value);
    }
};

/// A key and its value in a dict.
struct PickleEntry {
    PickleValue key;
    PickleValue value;
};

/// The bytes of data.pkl. There must be no PickleGlobal in `value`.
[[nodiscard]] std::string write_pickle(const PickleValue& value);

/// Errors: malformed, limit_exceeded.
[[nodiscard]] Result<PickleValue> read_pickle(std::string_view bytes);

}  // namespace ddprun::trainer
