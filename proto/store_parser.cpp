#include "proto/store_parser.h"

#include "proto/bytes.h"
#include "proto/limits.h"

namespace ddprun {

namespace {

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
constexpr std::string_view kLongKey = "a key is longer than the limit";
constexpr std::string_view kLongValue = "a value is longer than the limit";

std::uint64_t number_at(std::string_view bytes, std::size_t at) {
    return load_little_endian<std::uint64_t>(bytes.substr(at, kLengthBytes).data());
}

}  // namespace

StoreParser::Status StoreParser::look(std::string_view bytes) {
    if (layout_ == nullptr) {
        if (bytes.empty()) {
            return Status::incomplete;
        }
        layout_ = layout_of(static_cast<std::uint8_t>(bytes[0]));
        if (layout_ == nullptr) {
            return offend("unknown opcode");
        }
        at_ = 1;
    }
    for (; field_ < layout_->count; ++field_) {
        const Status status = look_field(layout_->fields[field_], bytes);
        if (status != Status::complete) {
            return status;
        }
        in_list_ = false;
    }
    return Status::complete;
}

StoreParser::Status StoreParser::look_field(StoreField field, std::string_view bytes) {
    switch (field) {
        case StoreField::key: return look_text(limits::kKeyBytesMax, kLongKey, bytes);
        case StoreField::value: return look_text(limits::kValueBytesMax, kLongValue, bytes);
        case StoreField::u32: return look_fixed(sizeof(std::uint32_t), bytes);
        case StoreField::i64: return look_fixed(sizeof(std::int64_t), bytes);
        case StoreField::keys: return look_list(false, bytes);
        case StoreField::key_values: return look_list(true, bytes);
    }
    return offend("unknown field");
}

StoreParser::Status StoreParser::look_fixed(std::size_t size, std::string_view bytes) {
    if (bytes.size() - at_ < size) {
        return Status::incomplete;
    }
    at_ += size;
    return Status::complete;
}

StoreParser::Status StoreParser::look_text(
    std::size_t size_max, std::string_view reason, std::string_view bytes
) {
    if (bytes.size() - at_ < kLengthBytes) {
        return Status::incomplete;
    }
    const std::uint64_t size = number_at(bytes, at_);
    if (size > size_max) {
        return offend(reason);
    }
    if (at_ + kLengthBytes + size > limits::kRequestBytesMax) {
        return offend("a request is longer than the limit");
    }
    return look_fixed(kLengthBytes + static_cast<std::size_t>(size), bytes);
}

StoreParser::Status StoreParser::look_list(bool with_values, std::string_view bytes) {
    if (!in_list_) {
        if (bytes.size() - at_ < kLengthBytes) {
            return Status::incomplete;
        }
        const std::uint64_t count = number_at(bytes, at_);
        if (count > limits::kKeysPerRequestMax) {
            return offend("a request has more keys than the limit");
        }
        at_ += kLengthBytes;
        texts_left_ = with_values ? 2 * count : count;
        in_list_ = true;
    }
    for (; texts_left_ > 0; --texts_left_) {
        const bool is_value = with_values && texts_left_ % 2 == 1;
        const Status status = is_value ? look_text(limits::kValueBytesMax, kLongValue, bytes)
                                       : look_text(limits::kKeyBytesMax, kLongKey, bytes);
        if (status != Status::complete) {
            return status;
        }
    }
    return Status::complete;
}

StoreParser::Status StoreParser::offend(std::string_view reason) {
    reason_ = reason;
    return Status::offence;
}

}  // namespace ddprun
