// Bytes on their way to one client, in pieces: small things are copied together, large values are
// shared with the store and with other clients. Pure; the shell writes front() and tells how much
// went by consume().
#pragma once

#include "rendezvous/store_value.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ddprun {

class ReplyBuffer {
public:
    void bytes(std::string_view text);
    void byte(std::uint8_t value);
    /// 8 bytes, little-endian.
    void number(std::int64_t value);
    /// u64 length, then the value; none counts as empty.
    void value(const StoreValue& value);

    [[nodiscard]] std::size_t size() const { return size_; }

    /// The value's bytes alone, shared whatever their number.
    void value_bytes(const StoreValue& value);

    /// Memory of this buffer alone, without the shared values.
    [[nodiscard]] std::size_t own_bytes() const;

    [[nodiscard]] bool empty() const { return size_ == 0; }

    /// The first `count` pieces at most, as they have to be written; valid until the next change.
    [[nodiscard]] std::vector<std::string_view> front(std::size_t count) const;

    /// The only piece, where there is one: spares front()'s vector in the usual case.
    [[nodiscard]] std::string_view only_piece() const;

    /// The first `count` bytes have been written.
    void consume(std::size_t count);

    /// Everything, in one string; for tests.
    [[nodiscard]] std::string text() const;

    void clear();

private:
    using Piece = std::variant<std::string, StoreValue>;

    [[nodiscard]] static std::string_view view_of(const Piece& piece);

    std::vector<Piece> pieces_;
    std::size_t first_ = 0;   ///< index of the first piece that isn't consumed
    std::size_t offset_ = 0;  ///< consumed bytes of that piece
    std::size_t size_ = 0;
};

}  // namespace ddprun
