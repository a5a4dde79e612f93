#include "proto/store_messages.h"

#include "proto/bytes.h"
#include "proto/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <type_traits>

namespace ddprun {

namespace {

using limits::kKeyBytesMax;
using limits::kValueBytesMax;

// Index = opcode: the order of StoreRequest's alternatives is the protocol's numbering.
constexpr std::array<StoreLayout, std::variant_size_v<StoreRequest>> kLayouts{{
    {{StoreField::u32}, 1},                                        // 0 VALIDATE
    {{StoreField::key, StoreField::value}, 2},                     // 1 SET
    {{StoreField::key, StoreField::value, StoreField::value}, 3},  // 2 COMPARE_SET
    {{StoreField::key}, 1},                                        // 3 GET
    {{StoreField::key, StoreField::i64}, 2},                       // 4 ADD
    {{StoreField::keys}, 1},                                       // 5 CHECK
    {{StoreField::keys}, 1},                                       // 6 WAIT
    {{}, 0},                                                       // 7 GETNUMKEYS
    {{StoreField::key}, 1},                                        // 8 DELETE_KEY
    {{StoreField::key, StoreField::value}, 2},                     // 9 APPEND
    {{StoreField::keys}, 1},                                       // 10 MULTI_GET
    {{StoreField::key_values}, 1},                                 // 11 MULTI_SET
    {{}, 0},                                                       // 12 CANCEL_WAIT
    {{StoreField::u32}, 1},                                        // 13 PING
    {{StoreField::key, StoreField::value}, 2},                     // 14 QUEUE_PUSH
    {{StoreField::key}, 1},                                        // 15 QUEUE_POP
    {{StoreField::key}, 1},                                        // 16 QUEUE_LEN
    {{}, 0},                                                       // 17 LIST_KEYS
    {{StoreField::key, StoreField::i64}, 2},                       // 18 BARRIER
}};

// ---- encoding

struct Encoder {
    ByteWriter writer;

    void keys(const std::vector<std::string_view>& list) {
        writer.u64(list.size());
        for (const std::string_view key : list) {
            writer.string64(key);
        }
    }

    void operator()(const ValidateRequest& r) { writer.u32(r.magic); }

    void operator()(const SetRequest& r) { pair(r.key, r.value); }

    void operator()(const CompareSetRequest& r) {
        pair(r.key, r.expected);
        writer.string64(r.desired);
    }

    void operator()(const GetRequest& r) { writer.string64(r.key); }

    void operator()(const AddRequest& r) {
        writer.string64(r.key);
        writer.i64(r.delta);
    }

    void operator()(const CheckRequest& r) { keys(r.keys); }

    void operator()(const WaitRequest& r) { keys(r.keys); }

    void operator()(const NumKeysRequest&) {}

    void operator()(const DeleteKeyRequest& r) { writer.string64(r.key); }

    void operator()(const AppendRequest& r) { pair(r.key, r.value); }

    void operator()(const MultiGetRequest& r) { keys(r.keys); }

    void operator()(const MultiSetRequest& r) {
        writer.u64(r.pairs.size());
        for (const auto& [key, value] : r.pairs) {
            pair(key, value);
        }
    }

    void operator()(const CancelWaitRequest&) {}

    void operator()(const PingRequest& r) { writer.u32(r.nonce); }

    void operator()(const QueuePushRequest& r) { pair(r.key, r.value); }

    void operator()(const QueuePopRequest& r) { writer.string64(r.key); }

    void operator()(const QueueLengthRequest& r) { writer.string64(r.key); }

    void operator()(const ListKeysRequest&) {}

    void operator()(const BarrierRequest& r) {
        writer.string64(r.key);
        writer.i64(r.world_size);
    }

    void pair(std::string_view key, std::string_view value) {
        writer.string64(key);
        writer.string64(value);
    }
};

// ---- decoding

std::string_view read_key(ByteReader& reader) {
    return reader.string64(kKeyBytesMax);
}

std::string_view read_value(ByteReader& reader) {
    return reader.string64(kValueBytesMax);
}

std::uint64_t read_count(ByteReader& reader) {
    const std::uint64_t count = reader.u64();
    if (count > limits::kKeysPerRequestMax) {
        reader.set_failed();
        return 0;
    }
    return count;
}

std::vector<std::string_view> read_keys(ByteReader& reader) {
    std::vector<std::string_view> keys;
    const std::uint64_t count = read_count(reader);
    keys.reserve(std::min<std::size_t>(count, reader.remaining() / sizeof(std::uint64_t)));
    for (std::uint64_t left = count; left > 0 && reader.ok(); --left) {
        keys.push_back(read_key(reader));
    }
    return keys;
}

MultiSetRequest read_pairs(ByteReader& reader) {
    MultiSetRequest request;
    const std::uint64_t count = read_count(reader);
    request.pairs.reserve(
        std::min<std::size_t>(count, reader.remaining() / (2 * sizeof(std::uint64_t)))
    );
    for (std::uint64_t left = count; left > 0 && reader.ok(); --left) {
        const std::string_view key = read_key(reader);
        const std::string_view value = read_value(reader);
        request.pairs.emplace_back(key, value);
    }
    return request;
}

CompareSetRequest read_compare_set(ByteReader& reader) {
    CompareSetRequest request;
    request.key = read_key(reader);
    request.expected = read_value(reader);
    request.desired = read_value(reader);
    return request;
}

/// A request of one key, and one of a key with a value or a number.
template <class Request>
Request read_key_request(ByteReader& reader) {
    Request request;
    request.key = read_key(reader);
    if constexpr (requires { request.value; }) {
        request.value = read_value(reader);
    } else if constexpr (requires { request.delta; }) {
        request.delta = reader.i64();
    } else if constexpr (requires { request.world_size; }) {
        request.world_size = reader.i64();
    }
    return request;
}

StoreRequest read_body(std::uint8_t opcode, ByteReader& reader) {
    switch (opcode) {
        case 0: return ValidateRequest{reader.u32()};
        case 1: return read_key_request<SetRequest>(reader);
        case 2: return read_compare_set(reader);
        case 3: return read_key_request<GetRequest>(reader);
        case 4: return read_key_request<AddRequest>(reader);
        case 5: return CheckRequest{read_keys(reader)};
        case 6: return WaitRequest{read_keys(reader)};
        case 7: return NumKeysRequest{};
        case 8: return read_key_request<DeleteKeyRequest>(reader);
        case 9: return read_key_request<AppendRequest>(reader);
        case 10: return MultiGetRequest{read_keys(reader)};
        case 11: return read_pairs(reader);
        case 12: return CancelWaitRequest{};
        case 13: return PingRequest{reader.u32()};
        case 14: return read_key_request<QueuePushRequest>(reader);
        case 15: return read_key_request<QueuePopRequest>(reader);
        case 16: return read_key_request<QueueLengthRequest>(reader);
        case 17: return ListKeysRequest{};
        case 18: return read_key_request<BarrierRequest>(reader);
        default: reader.set_failed(); return NumKeysRequest{};
    }
}

}  // namespace

const StoreLayout* layout_of(std::uint8_t opcode) {
    return opcode < kLayouts.size() ? &kLayouts[opcode] : nullptr;
}

void encode_request(const StoreRequest& request, std::string& out) {
    Encoder encoder{ByteWriter{out}};
    encoder.writer.u8(static_cast<std::uint8_t>(request.index()));
    std::visit(encoder, request);
}

Result<StoreRequest> decode_request(std::string_view bytes) {
    ByteReader reader{bytes};
    const std::uint8_t opcode = reader.u8();
    StoreRequest request = read_body(opcode, reader);
    if (!reader.finished()) {
        return fail(
            Errc::malformed, fmt::format("store request with opcode {}: malformed", opcode)
        );
    }
    return request;
}

}  // namespace ddprun
