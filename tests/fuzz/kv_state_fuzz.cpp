// Requests of four clients on four keys, and clients that go, into KvState and into KvModel: every
// reply, release and refusal and every counter must be the same, under limits that are met soon.
#include "proto/assert.h"
#include "proto/bytes.h"
#include "proto/limits.h"
#include "rendezvous/kv_state.h"
#include "tests/fuzz/kv_model.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace {

using namespace ddprun;

/// Bytes of the input, zeros after its end.
class Choices {
public:
    explicit Choices(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

    [[nodiscard]] bool is_over() const { return at_ >= bytes_.size(); }

    std::size_t below(std::size_t bound) {
        const std::size_t byte = is_over() ? 0 : bytes_[at_];
        ++at_;
        return byte % bound;
    }

    std::string_view key() {
        constexpr std::array<std::string_view, 4> kKeys{"", "a", "b", "cc"};
        return kKeys[below(kKeys.size())];
    }

    std::string_view value() {
        constexpr std::array<std::string_view, 7> kValues{
            "", "1", "-7", "text", "9223372036854775807", "-9223372036854775808", "01"};
        return kValues[below(kValues.size())];
    }

    std::int64_t number() {
        constexpr std::array<std::int64_t, 6> kNumbers{
            0,
            1,
            -1,
            3,
            std::numeric_limits<std::int64_t>::max(),
            std::numeric_limits<std::int64_t>::min()};
        return kNumbers[below(kNumbers.size())];
    }

    std::vector<std::string_view> keys() {
        std::vector<std::string_view> keys(below(4));
        for (std::string_view& key : keys) {
            key = this->key();
        }
        return keys;
    }

private:
    std::span<const std::uint8_t> bytes_;
    std::size_t at_ = 0;
};

template <class Request>
void choose(Request& request, Choices& choices) {
    if constexpr (requires { request.key; }) {
        request.key = choices.key();
    }
    if constexpr (requires { request.value; }) {
        request.value = choices.value();
    }
    if constexpr (requires { request.expected; }) {
        request.expected = choices.value();
        request.desired = choices.value();
    }
    if constexpr (requires { request.delta; }) {
        request.delta = choices.number();
    }
    if constexpr (requires { request.world_size; }) {
        request.world_size = choices.number();
    }
    if constexpr (requires { request.keys; }) {
        request.keys = choices.keys();
    }
    if constexpr (requires { request.pairs; }) {
        for (const std::string_view key : choices.keys()) {
            request.pairs.emplace_back(key, choices.value());
        }
    }
    if constexpr (requires { request.magic; }) {
        request.magic = choices.below(2) == 0 ? kStoreMagic : 1;
    }
}

template <std::size_t... Index>
StoreRequest make_request(std::size_t kind, std::index_sequence<Index...>) {
    StoreRequest request;
    static_cast<void>(((kind == Index ? (request.emplace<Index>(), true) : false) || ...));
    return request;
}

StoreRequest choose_request(Choices& choices) {
    constexpr std::size_t kKinds = std::variant_size_v<StoreRequest>;
    StoreRequest request = make_request(choices.below(kKinds), std::make_index_sequence<kKinds>{});
    std::visit([&](auto& body) { choose(body, choices); }, request);
    return request;
}

KvLimits tight_limits() {
    KvLimits limits;
    limits.keys_max = 3;
    limits.bytes_max = 60;
    limits.queue_length_max = 2;
    limits.registrations_max = 5;
    return limits;
}

/// Of the reply to LIST_KEYS, which is in any order.
std::vector<std::string> sorted_keys(std::string_view reply) {
    ByteReader reader{reply};
    std::vector<std::string> keys;
    for (std::uint64_t left = reader.u64(); left > 0; --left) {
        keys.emplace_back(reader.string64(limits::kKeyBytesMax));
    }
    DDPRUN_ASSERT(reader.finished());
    std::ranges::sort(keys);
    return keys;
}

void compare(const KvState& state, const KvModel& model) {
    const KvCounters& counters = state.counters();
    DDPRUN_ASSERT(counters.keys == model.keys());
    DDPRUN_ASSERT(counters.bytes == model.bytes());
    DDPRUN_ASSERT(counters.registrations == model.registrations());
    DDPRUN_ASSERT(counters.waiting_clients == model.waiting_clients());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size > 4'096) {
        return 0;
    }
    KvState state{tight_limits()};
    KvModel model{tight_limits()};
    Choices choices{{data, size}};
    constexpr std::uint64_t kClients = 4;
    while (!choices.is_over()) {
        const std::uint64_t client = choices.below(kClients);
        if (choices.below(16) == 15) {
            state.client_gone(ClientId{client}, {});
            model.client_gone(client);
            compare(state, model);
            continue;
        }
        const StoreRequest request = choose_request(choices);
        ReplyBuffer reply;
        KvEffects effects{reply};
        state.apply(ClientId{client}, request, effects);
        const KvModel::Outcome expected = model.apply(client, request);

        DDPRUN_ASSERT(effects.offence.empty() != expected.is_refused);
        if (std::holds_alternative<ListKeysRequest>(request)) {
            DDPRUN_ASSERT(sorted_keys(reply.text()) == sorted_keys(expected.reply));
        } else {
            DDPRUN_ASSERT(reply.text() == expected.reply);
        }
        DDPRUN_ASSERT(std::equal(
            effects.released.begin(),
            effects.released.end(),
            expected.released.begin(),
            expected.released.end(),
            [](ClientId released, std::uint64_t number) { return released.value() == number; }
        ));
        compare(state, model);
    }
    for (std::uint64_t client = 0; client < kClients; ++client) {
        state.client_gone(ClientId{client}, {});
    }
    DDPRUN_ASSERT(state.counters().registrations == 0);
    DDPRUN_ASSERT(state.counters().waiting_clients == 0);
    return 0;
}
