#include "rendezvous/reply_buffer.h"

#include "proto/assert.h"
#include "proto/bytes.h"
#include "proto/limits.h"

#include <algorithm>
#include <array>

namespace ddprun {

namespace {

/// Values up to this size are copied into the reply; above it sharing is cheaper.
constexpr std::size_t kShareBytesMin = 4 * limits::kKiB;

/// In a reply that is long already memory counts more than time.
constexpr std::size_t kLongReplyBytes = 256 * limits::kKiB;
constexpr std::size_t kLongShareBytesMin = 128;

/// A piece takes no more text beyond this, so that its written part is freed in time.
constexpr std::size_t kPieceBytesMax = 64 * limits::kKiB;

/// Written pieces are dropped when there are this many.
constexpr std::size_t kWrittenPiecesMax = 64;

/// An idle connection keeps no more than this for its next reply.
constexpr std::size_t kKeptCapacityMax = 256;

}  // namespace

std::string_view ReplyBuffer::view_of(const Piece& piece) {
    if (const auto* text = std::get_if<std::string>(&piece)) {
        return *text;
    }
    return std::get<StoreValue>(piece).view();
}

void ReplyBuffer::bytes(std::string_view text) {
    auto* last = pieces_.empty() ? nullptr : std::get_if<std::string>(&pieces_.back());
    if (last == nullptr || last->size() > kPieceBytesMax) {
        last = &std::get<std::string>(pieces_.emplace_back(std::string{}));
    }
    last->append(text);
    size_ += text.size();
}

void ReplyBuffer::byte(std::uint8_t value) {
    const char character = static_cast<char>(value);
    bytes({&character, 1});
}

void ReplyBuffer::number(std::int64_t value) {
    // Every reply has one: no writer with a string of its own.
    std::array<char, sizeof value> text;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    store_little_endian(static_cast<std::uint64_t>(value), text.data());
    bytes({text.data(), text.size()});
}

void ReplyBuffer::value(const StoreValue& value) {
    const std::size_t size = value.size();
    number(static_cast<std::int64_t>(size));
    if (size >= (size_ > kLongReplyBytes ? kLongShareBytesMin : kShareBytesMin)) {
        value_bytes(value);
    } else if (size > 0) {
        bytes(value.view());
    }
}

void ReplyBuffer::value_bytes(const StoreValue& value) {
    pieces_.emplace_back(value);
    size_ += value.size();
}

std::string_view ReplyBuffer::only_piece() const {
    return pieces_.size() == first_ + 1 ? view_of(pieces_[first_]).substr(offset_)
                                        : std::string_view{};
}

std::vector<std::string_view> ReplyBuffer::front(std::size_t count) const {
    std::vector<std::string_view> views;
    const std::size_t end = std::min(pieces_.size(), first_ + count);
    for (std::size_t i = first_; i < end; ++i) {
        views.push_back(view_of(pieces_[i]).substr(i == first_ ? offset_ : 0));
    }
    return views;
}

void ReplyBuffer::consume(std::size_t count) {
    DDPRUN_ASSERT(count <= size_);
    size_ -= count;
    while (count > 0) {
        const std::size_t left = view_of(pieces_[first_]).size() - offset_;
        if (count < left) {
            offset_ += count;
            break;
        }
        count -= left;
        pieces_[first_].emplace<std::string>();  // lets its memory or shared value go at once
        ++first_;
        offset_ = 0;
    }
    if (size_ == 0) {
        clear();
    } else if (first_ >= kWrittenPiecesMax && 2 * first_ >= pieces_.size()) {
        pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(first_));
        first_ = 0;
    }
}

std::size_t ReplyBuffer::own_bytes() const {
    std::size_t bytes = pieces_.capacity() * sizeof(Piece);
    for (const Piece& piece : pieces_) {
        const auto* text = std::get_if<std::string>(&piece);
        bytes += text == nullptr ? 0 : text->capacity();
    }
    return bytes;
}

std::string ReplyBuffer::text() const {
    std::string all;
    for (const std::string_view view : front(pieces_.size())) {
        all += view;
    }
    return all;
}

void ReplyBuffer::clear() {
    const bool is_small = pieces_.size() == 1 &&
                          std::holds_alternative<std::string>(pieces_.front()) &&
                          std::get<std::string>(pieces_.front()).capacity() <= kKeptCapacityMax;
    if (is_small) {
        std::get<std::string>(pieces_.front()).clear();
    } else {
        std::vector<Piece>{}.swap(pieces_);  // an assignment of {} would keep the memory
    }
    first_ = 0;
    offset_ = 0;
    size_ = 0;
}

}  // namespace ddprun
