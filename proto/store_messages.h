// PyTorch's TCPStore wire dialect (PyTorch 2.4 to 2.15, opcodes 0-18): one struct per request, and
// the bytes of requests and replies. Everything is little-endian; strings are u64 length + bytes.
// The only place that knows opcodes. Requests are decoded as views into the bytes that they came in
// and live no longer than those.
#pragma once

#include "proto/result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ddprun {

/// First request of every connection; its magic tells the dialect from noise.
inline constexpr std::uint32_t kStoreMagic = 0x3C85F7CE;

struct ValidateRequest {
    std::uint32_t magic = 0;
};

struct SetRequest {
    std::string_view key;
    std::string_view value;
};

/// Replies the value that the key has afterwards; `expected` where the key is absent and expected
/// isn't empty.
struct CompareSetRequest {
    std::string_view key;
    std::string_view expected;
    std::string_view desired;
};

struct GetRequest {
    std::string_view key;
};

struct AddRequest {
    std::string_view key;
    std::int64_t delta = 0;
};

struct CheckRequest {
    std::vector<std::string_view> keys;
};

struct WaitRequest {
    std::vector<std::string_view> keys;
};

struct NumKeysRequest {};

struct DeleteKeyRequest {
    std::string_view key;
};

struct AppendRequest {
    std::string_view key;
    std::string_view value;
};

struct MultiGetRequest {
    std::vector<std::string_view> keys;
};

struct MultiSetRequest {
    std::vector<std::pair<std::string_view, std::string_view>> pairs;
};

struct CancelWaitRequest {};

struct PingRequest {
    std::uint32_t nonce = 0;
};

struct QueuePushRequest {
    std::string_view key;
    std::string_view value;
};

struct QueuePopRequest {
    std::string_view key;
};

struct QueueLengthRequest {
    std::string_view key;
};

struct ListKeysRequest {};

struct BarrierRequest {
    std::string_view key;
    std::int64_t world_size = 0;
};

using StoreRequest = std::variant<
    ValidateRequest,
    SetRequest,
    CompareSetRequest,
    GetRequest,
    AddRequest,
    CheckRequest,
    WaitRequest,
    NumKeysRequest,
    DeleteKeyRequest,
    AppendRequest,
    MultiGetRequest,
    MultiSetRequest,
    CancelWaitRequest,
    PingRequest,
    QueuePushRequest,
    QueuePopRequest,
    QueueLengthRequest,
    ListKeysRequest,
    BarrierRequest>;

/// Appends the bytes of a request.
void encode_request(const StoreRequest& request, std::string& out);

/// Decodes the one request that `bytes` are, whole and nothing more, as StoreScanner found it.
[[nodiscard]] Result<StoreRequest> decode_request(std::string_view bytes);

// Answers of CHECK and of the WAIT family.
inline constexpr std::uint8_t kReady = 0;
inline constexpr std::uint8_t kNotReady = 1;
inline constexpr std::uint8_t kStopWaiting = 0;
inline constexpr std::uint8_t kWaitCanceled = 1;

/// What a request's next piece is, so that its end can be found without decoding it.
enum class StoreField : std::uint8_t {
    key,         ///< u64 length of at most limits::kKeyBytesMax, bytes
    value,       ///< u64 length of at most limits::kValueBytesMax, bytes
    u32,         ///< 4 bytes
    i64,         ///< 8 bytes
    keys,        ///< u64 count of at most limits::kKeysPerRequestMax, that many keys
    key_values,  ///< the same count, that many keys each with a value
};

struct StoreLayout {
    StoreField fields[3];
    std::uint8_t count = 0;
};

/// The fields after an opcode; none for an opcode that doesn't exist.
[[nodiscard]] const StoreLayout* layout_of(std::uint8_t opcode);

}  // namespace ddprun
