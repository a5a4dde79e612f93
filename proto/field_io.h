// Describes a struct's bytes once for both directions: `fields(io, struct)` lists its fields in the
// order of the wire, and `io` is a FieldWriter or a FieldReader. Bounds are those of
// proto/limits.h: the writer cuts texts and lists to them, so that what it writes can be read; the
// reader fails (ok() is false) on what breaks them. Used by the agent protocol and by the stored
// form of the membership.
#pragma once

#include "proto/bytes.h"
#include "proto/types.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace ddprun {

class FieldWriter {
public:
    /// How `fields` takes its struct.
    template <class T>
    using Ref = const T&;

    explicit FieldWriter(std::string& out) : bytes_(out) {}

    void number(bool value) { bytes_.u8(value ? 1 : 0); }

    void number(std::uint16_t value) { bytes_.u16(value); }

    void number(std::int32_t value) { bytes_.i32(value); }

    void number(std::int64_t value) { bytes_.i64(value); }

    void number(std::uint64_t value) { bytes_.u64(value); }

    void number(std::chrono::milliseconds value) { bytes_.i64(value.count()); }

    template <class Tag, class Value>
    void number(const Strong<Tag, Value>& value) {
        number(value.value());
    }

    template <class Enum>
    void choice(Enum value, Enum /*last*/) {
        bytes_.u8(static_cast<std::uint8_t>(value));
    }

    template <class Enum>
    void choice_or(Enum value, Enum last, Enum /*unknown*/) {
        choice(value, last);
    }

    void text(std::string_view value, std::size_t bytes_max) {
        bytes_.string32(value.substr(0, bytes_max));
    }

    template <class Tag>
    void text(const Strong<Tag, std::string>& value, std::size_t bytes_max) {
        text(value.value(), bytes_max);
    }

    /// u8 0 or 1, then the value where it is 1.
    template <class T, class Each>
    void optional(const std::optional<T>& value, Each each) {
        number(value.has_value());
        if (value) {
            each(*this, *value);
        }
    }

    /// u32 count, then the elements; `each(io, element, index)`.
    template <class T, class Each>
    void list(const std::vector<T>& values, std::size_t count_max, Each each) {
        const std::size_t count = std::min(values.size(), count_max);
        bytes_.u32(static_cast<std::uint32_t>(count));
        for (std::size_t i = 0; i < count; ++i) {
            each(*this, values[i], i);
        }
    }

private:
    ByteWriter bytes_;
};

class FieldReader {
public:
    template <class T>
    using Ref = T&;

    explicit FieldReader(std::string_view bytes) : bytes_(bytes) {}

    [[nodiscard]] bool ok() const { return bytes_.ok(); }

    [[nodiscard]] bool finished() const { return bytes_.finished(); }

    void number(bool& value) {
        const std::uint8_t byte = bytes_.u8();
        if (byte > 1) {
            bytes_.set_failed();
        }
        value = byte == 1;
    }

    void number(std::uint16_t& value) { value = bytes_.u16(); }

    void number(std::int32_t& value) { value = bytes_.i32(); }

    void number(std::int64_t& value) { value = bytes_.i64(); }

    void number(std::uint64_t& value) { value = bytes_.u64(); }

    void number(std::chrono::milliseconds& value) {
        value = std::chrono::milliseconds(bytes_.i64());
    }

    template <class Tag, class Value>
    void number(Strong<Tag, Value>& value) {
        Value plain{};
        number(plain);
        value = Strong<Tag, Value>{plain};
    }

    template <class Enum>
    void choice(Enum& value, Enum last) {
        const std::uint8_t byte = bytes_.u8();
        if (byte > static_cast<std::uint8_t>(last)) {
            bytes_.set_failed();
            return;
        }
        value = static_cast<Enum>(byte);
    }

    /// An enumerator of a later version reads as `unknown`.
    template <class Enum>
    void choice_or(Enum& value, Enum last, Enum unknown) {
        const std::uint8_t byte = bytes_.u8();
        value = byte > static_cast<std::uint8_t>(last) ? unknown : static_cast<Enum>(byte);
    }

    void text(std::string& value, std::size_t bytes_max) {
        value = std::string(bytes_.string32(bytes_max));
    }

    template <class Tag>
    void text(Strong<Tag, std::string>& value, std::size_t bytes_max) {
        value = Strong<Tag, std::string>{std::string(bytes_.string32(bytes_max))};
    }

    template <class T, class Each>
    void optional(std::optional<T>& value, Each each) {
        bool present = false;
        number(present);
        value.reset();
        if (present) {
            each(*this, value.emplace());
        }
    }

    template <class T, class Each>
    void list(std::vector<T>& values, std::size_t count_max, Each each) {
        const std::uint32_t count = bytes_.u32();
        if (count > count_max) {
            bytes_.set_failed();
        }
        values.clear();
        // No reserve: only elements that are there are made.
        for (std::uint32_t i = 0; bytes_.ok() && i < count; ++i) {
            each(*this, values.emplace_back(), i);
        }
    }

private:
    ByteReader bytes_;
};

}  // namespace ddprun
