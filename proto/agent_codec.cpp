#include "proto/agent_codec.h"

#include "proto/agent_fields.h"
#include "proto/assert.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

namespace ddprun {

namespace {

constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kOpeningBytes = sizeof(kAgentMagic) + 2;
constexpr std::string_view kMagic{kAgentMagic, sizeof(kAgentMagic)};

// A message's type is its place in the variant, from 1; those of the rendezvous have the top bit.
constexpr std::uint8_t kAgentTypesBase = 0x01;
constexpr std::uint8_t kServerTypesBase = 0x81;

// Joined by index, so that a new alternative has to be added at the end.
static_assert(std::is_same_v<std::variant_alternative_t<0, AgentMessage>, Join>);
static_assert(std::is_same_v<std::variant_alternative_t<8, AgentMessage>, Leave>);
static_assert(std::is_same_v<std::variant_alternative_t<1, ServerMessage>, Refused>);
static_assert(std::is_same_v<std::variant_alternative_t<7, ServerMessage>, EndJob>);

template <class Variant>
void encode_frame(const Variant& message, std::uint8_t types_base, std::string& out) {
    const std::size_t begin = out.size();
    ByteWriter bytes(out);
    bytes.u32(0);
    bytes.u8(static_cast<std::uint8_t>(types_base + message.index()));
    FieldWriter io(out);
    std::visit([&io](const auto& each) { fields(io, each); }, message);

    const std::size_t length = out.size() - begin - kLengthBytes;
    DDPRUN_ASSERT(length <= limits::kServerFrameBytesMax);
    std::string length_bytes;
    ByteWriter(length_bytes).u32(static_cast<std::uint32_t>(length));
    std::copy(
        length_bytes.begin(), length_bytes.end(), out.begin() + static_cast<std::ptrdiff_t>(begin)
    );
}

template <class Variant, std::size_t index>
bool decode_alternative(FieldReader& io, Variant& message) {
    std::variant_alternative_t<index, Variant> value;
    fields(io, value);
    message = std::move(value);
    return io.finished();
}

template <class Variant, std::size_t... indices>
bool decode_index(std::size_t index, FieldReader& io, Variant& message, std::index_sequence<indices...>) {
    bool decoded = false;
    static_cast<void>((
        (index == indices && (decoded = decode_alternative<Variant, indices>(io, message), true)) ||
        ...
    ));
    return decoded;
}

template <class Variant>
Result<Variant> decode_frame(const Frame& frame, std::uint8_t types_base, const char* sender) {
    constexpr std::size_t kTypes = std::variant_size_v<Variant>;
    if (frame.type < types_base || frame.type >= types_base + kTypes) {
        return fail(
            Errc::malformed,
            fmt::format("a frame of unknown type {:#04x} from {}", frame.type, sender)
        );
    }
    Variant message;
    FieldReader io(frame.payload);
    const std::size_t index = frame.type - std::size_t{types_base};
    if (!decode_index(index, io, message, std::make_index_sequence<kTypes>{})) {
        return fail(
            Errc::malformed,
            fmt::format("a damaged frame of type {:#04x} from {}", frame.type, sender)
        );
    }
    return message;
}

}  // namespace

std::string agent_opening() {
    std::string bytes{kMagic};
    ByteWriter(bytes).u16(kAgentProtocolVersion);
    return bytes;
}

void encode(const AgentMessage& message, std::string& out) {
    encode_frame(message, kAgentTypesBase, out);
}

void encode(const ServerMessage& message, std::string& out) {
    encode_frame(message, kServerTypesBase, out);
}

Result<AgentMessage> decode_agent_message(const Frame& frame) {
    return decode_frame<AgentMessage>(frame, kAgentTypesBase, "an agent");
}

Result<ServerMessage> decode_server_message(const Frame& frame) {
    return decode_frame<ServerMessage>(frame, kServerTypesBase, "the rendezvous");
}

Refused refused_for_version(const Error& error) {
    return Refused{
        RefusalReason::version,
        error.context + "; install the same version of ddprun on all nodes"};
}

FrameReader::FrameReader(Start start, std::size_t frame_bytes_max)
    : opening_taken_(start == Start::frames),
      frame_bytes_max_(frame_bytes_max) {}

void FrameReader::push(std::string_view bytes) {
    if (consumed_ > 0) {
        buffer_.erase(0, consumed_);
        consumed_ = 0;
    }
    buffer_.append(bytes);
}

Result<bool> FrameReader::take_opening() {
    const std::string_view bytes{buffer_};
    const std::string_view magic = bytes.substr(0, kMagic.size());
    if (magic != kMagic.substr(0, magic.size())) {
        return fail(Errc::malformed, "a connection that doesn't begin as the agent protocol does");
    }
    if (bytes.size() < kOpeningBytes) {
        return false;
    }
    ByteReader reader(bytes.substr(kMagic.size()));
    const std::uint16_t version = reader.u16();
    if (version != kAgentProtocolVersion) {
        return fail(
            Errc::version_mismatch,
            fmt::format(
                "this node speaks version {} of the agent protocol, the rendezvous (ddprun {}) "
                "version {}",
                version,
                DDPRUN_VERSION,
                kAgentProtocolVersion
            )
        );
    }
    consumed_ = kOpeningBytes;
    opening_taken_ = true;
    return true;
}

Result<std::optional<Frame>> FrameReader::next() {
    if (!opening_taken_) {
        const Result<bool> taken = take_opening();
        if (!taken) {
            return fail(taken.error());
        }
        if (!*taken) {
            return std::optional<Frame>{};
        }
    }
    const std::string_view bytes = std::string_view{buffer_}.substr(consumed_);
    if (bytes.size() < kLengthBytes) {
        return std::optional<Frame>{};
    }
    ByteReader reader(bytes);
    const std::uint32_t length = reader.u32();
    if (length == 0) {
        return fail(Errc::malformed, "an empty frame");
    }
    if (length > frame_bytes_max_) {
        return fail(
            Errc::limit_exceeded,
            fmt::format("a frame of {} bytes, the bound is {}", length, frame_bytes_max_)
        );
    }
    if (reader.remaining() < length) {
        return std::optional<Frame>{};
    }
    Frame frame;
    frame.type = reader.u8();
    frame.payload = std::string(reader.raw(length - 1));
    consumed_ += kLengthBytes + length;
    return std::optional<Frame>{std::move(frame)};
}

}  // namespace ddprun
