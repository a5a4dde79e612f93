// Finds where the requests of a byte stream end, whatever pieces they come in, without decoding or
// allocating anything. Remembers how far it has looked, so that a request that trickles in costs
// its length once. A request is decoded (store_messages.h) and applied only when it is whole.
#pragma once

#include "proto/store_messages.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ddprun {

class StoreParser {
public:
    enum class Status : std::uint8_t {
        incomplete,  ///< more bytes are needed
        complete,    ///< the first size() bytes are a whole request
        offence,     ///< not this protocol, or beyond a limit: see reason(); close the connection
    };

    /// `bytes` begin with the first byte of the request and hold at least what earlier calls saw.
    Status look(std::string_view bytes);

    /// Length of the request that look() found complete.
    [[nodiscard]] std::size_t size() const { return at_; }

    [[nodiscard]] std::string_view reason() const { return reason_; }

    /// Ready for the next request.
    void reset() { *this = StoreParser{}; }

private:
    Status look_field(StoreField field, std::string_view bytes);
    Status look_list(bool with_values, std::string_view bytes);
    Status look_fixed(std::size_t size, std::string_view bytes);
    Status look_text(std::size_t size_max, std::string_view reason, std::string_view bytes);
    Status offend(std::string_view reason);

    const StoreLayout* layout_ = nullptr;
    std::size_t at_ = 0;            ///< everything before it has been looked through
    std::size_t field_ = 0;         ///< index in the layout
    bool in_list_ = false;          ///< the count of the present list has been read
    std::uint64_t texts_left_ = 0;  ///< keys and values of the present list
    std::string_view reason_;
};

}  // namespace ddprun
