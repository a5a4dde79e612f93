// Little-endian reader and writer over byte buffers, the base of both codecs. Both have a sticky
// error: do all the steps, check once. Nothing is allocated from an announced length before that
// many bytes are there.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace ddprun {

/// The little-endian number that begins at `bytes`.
template <class Unsigned>
[[nodiscard]] Unsigned load_little_endian(const char* bytes) {
    static_assert(std::is_unsigned_v<Unsigned>);
    Unsigned value = 0;
    if constexpr (std::endian::native == std::endian::little) {
        std::memcpy(&value, bytes, sizeof value);
    } else {
        for (std::size_t i = 0; i < sizeof value; ++i) {
            const auto byte = static_cast<std::uint8_t>(bytes[i]);
            value = static_cast<Unsigned>(value | (static_cast<Unsigned>(byte) << (8 * i)));
        }
    }
    return value;
}

/// Writes sizeof(Unsigned) bytes.
template <class Unsigned>
void store_little_endian(Unsigned value, char* bytes) {
    static_assert(std::is_unsigned_v<Unsigned>);
    if constexpr (std::endian::native == std::endian::little) {
        std::memcpy(bytes, &value, sizeof value);
    } else {
        for (std::size_t i = 0; i < sizeof value; ++i) {
            bytes[i] = static_cast<char>(static_cast<std::uint8_t>(value >> (8 * i)));
        }
    }
}

/// Appends to a string that it doesn't own.
class ByteWriter {
public:
    explicit ByteWriter(std::string& out) : out_(out) {}

    void u8(std::uint8_t value) { out_.push_back(static_cast<char>(value)); }

    void u16(std::uint16_t value) { integer(value); }

    void u32(std::uint32_t value) { integer(value); }

    void u64(std::uint64_t value) { integer(value); }

    void i32(std::int32_t value) { integer(static_cast<std::uint32_t>(value)); }

    void i64(std::int64_t value) { integer(static_cast<std::uint64_t>(value)); }

    void raw(std::string_view bytes) { out_.append(bytes); }

    /// u64 length, then the bytes (the string of the store's dialect).
    void string64(std::string_view bytes) {
        u64(bytes.size());
        raw(bytes);
    }

    /// u32 length, then the bytes (the string of the agent protocol).
    void string32(std::string_view bytes) {
        u32(static_cast<std::uint32_t>(bytes.size()));
        raw(bytes);
    }

private:
    template <class Unsigned>
    void integer(Unsigned value) {
        char bytes[sizeof(Unsigned)];
        store_little_endian(value, bytes);
        out_.append(bytes, sizeof bytes);
    }

    std::string& out_;
};

/// Reads from a view that must outlive it. After the first step that doesn't fit, `ok()` is false
/// and every further step gives zero or empty.
class ByteReader {
public:
    explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

    [[nodiscard]] bool ok() const { return ok_; }

    [[nodiscard]] std::size_t remaining() const { return rest_.size(); }

    /// ok, and nothing left over.
    [[nodiscard]] bool finished() const { return ok_ && rest_.empty(); }

    std::uint8_t u8() { return integer<std::uint8_t>(); }

    std::uint16_t u16() { return integer<std::uint16_t>(); }

    std::uint32_t u32() { return integer<std::uint32_t>(); }

    std::uint64_t u64() { return integer<std::uint64_t>(); }

    std::int32_t i32() { return static_cast<std::int32_t>(u32()); }

    std::int64_t i64() { return static_cast<std::int64_t>(u64()); }

    std::string_view raw(std::uint64_t size) {
        if (!ok_ || size > rest_.size()) {
            set_failed();
            return {};
        }
        const std::string_view bytes = rest_.substr(0, static_cast<std::size_t>(size));
        rest_.remove_prefix(bytes.size());
        return bytes;
    }

    /// u64 length of at most `bytes_max`, then the bytes.
    std::string_view string64(std::size_t bytes_max) { return bounded(u64(), bytes_max); }

    /// u32 length of at most `bytes_max`, then the bytes.
    std::string_view string32(std::size_t bytes_max) { return bounded(u32(), bytes_max); }

    /// For a value that was read but makes no sense.
    void set_failed() {
        ok_ = false;
        rest_ = {};
    }

private:
    std::string_view bounded(std::uint64_t size, std::size_t bytes_max) {
        if (size > bytes_max) {
            set_failed();
        }
        return raw(size);
    }

    template <class Unsigned>
    Unsigned integer() {
        if (rest_.size() < sizeof(Unsigned)) {
            set_failed();
            return 0;
        }
        const auto value = load_little_endian<Unsigned>(rest_.data());
        rest_.remove_prefix(sizeof(Unsigned));
        return value;
    }

    std::string_view rest_;
    bool ok_ = true;
};

}  // namespace ddprun
