#include "rendezvous/kv_state.h"

#include "proto/assert.h"
#include "proto/bytes.h"
#include "proto/limits.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <map>

namespace ddprun {

namespace {

std::string decimal(std::int64_t number) {
    std::array<char, std::numeric_limits<std::int64_t>::digits10 + 2> text{};
    const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number);
    DDPRUN_ASSERT(error == std::errc{});
    return {text.data(), end};
}

/// The number that a value is, as plain decimal text; 0 where there is no value, none where the
/// text is no such number.
std::optional<std::int64_t> counter_of(const StoreValue* value) {
    std::int64_t number = 0;
    if (value == nullptr) {
        return number;
    }
    const std::string_view text = value->view();
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    return error == std::errc{} && stop == end ? std::optional{number} : std::nullopt;
}

}  // namespace

KvLimits::KvLimits()
    : keys_max(limits::kStoreKeysMax),
      bytes_max(limits::kStoreBytesMax),
      queue_length_max(limits::kQueueLengthMax),
      listed_bytes_max(limits::kListedBytesMax),
      registrations_max(limits::kRegistrationsMax),
      foreign_run_timeout(limits::kForeignRunTimeout) {}

// ---- requests

void KvState::apply(ClientId client, const StoreRequest& request, KvEffects& effects) {
    ++counters_.requests;
    std::visit([&](const auto& body) { handle(client, body, effects); }, request);
    if (foreign_runs_.size() > 0) {
        note_uses(client, request);
    }
}

/// All keys that the request names are in use by the client.
void KvState::note_uses(ClientId client, const StoreRequest& request) {
    std::visit(
        [&](const auto& body) {
            if constexpr (requires { body.key; }) {
                foreign_runs_.used(client, body.key);
            } else if constexpr (requires { body.keys; }) {
                for (const std::string_view key : body.keys) {
                    foreign_runs_.used(client, key);
                }
            } else if constexpr (requires { body.pairs; }) {
                for (const auto& [key, value] : body.pairs) {
                    foreign_runs_.used(client, key);
                }
            }
        },
        request
    );
    counters_.foreign_runs = foreign_runs_.size();
}

void KvState::expire(ForeignRuns::TimePoint now) {
    for (const std::string& key : foreign_runs_.due(now, limits::kKeysRemovedPerTurnMax)) {
        counters_.expired_keys += remove(key) ? 1 : 0;
        remove_queue(key);
    }
    counters_.foreign_runs = foreign_runs_.size();
}

void KvState::handle(ClientId, const ValidateRequest& request, KvEffects& effects) {
    if (request.magic != kStoreMagic) {
        refuse("wrong magic number", effects);
    }
}

void KvState::handle(ClientId, const SetRequest& request, KvEffects& effects) {
    StoreValue* present = keys_.find(request.key);
    if (!fits(request.key, present, request.value.size())) {
        refuse("the store is full", effects);
        return;
    }
    store(present, StoreValue::named(request.key, request.value));
    wake_all(request.key, effects);
}

void KvState::handle(ClientId, const CompareSetRequest& request, KvEffects& effects) {
    StoreValue* present = keys_.find(request.key);
    const bool is_match =
        present == nullptr ? request.expected.empty() : present->view() == request.expected;
    if (!is_match) {
        effects.reply.value(present == nullptr ? StoreValue{request.expected} : *present);
        if (present != nullptr) {
            wake_all(request.key, effects);
        }
        return;
    }
    if (!fits(request.key, present, request.desired.size())) {
        refuse("the store is full", effects);
        return;
    }
    const StoreValue desired = StoreValue::named(request.key, request.desired);
    store(present, desired);
    effects.reply.value(desired);
    wake_all(request.key, effects);
}

void KvState::handle(ClientId, const GetRequest& request, KvEffects& effects) {
    reply_value(request.key, effects);
}

void KvState::handle(ClientId, const AddRequest& request, KvEffects& effects) {
    StoreValue* present = keys_.find(request.key);
    const std::optional<std::int64_t> number = counter_of(present);
    std::int64_t sum = 0;
    if (!number || __builtin_add_overflow(*number, request.delta, &sum)) {
        refuse("ADD: the stored text is no number, or the sum is out of range", effects);
        return;
    }
    const std::string text = decimal(sum);
    if (!fits(request.key, present, text.size())) {
        refuse("the store is full", effects);
        return;
    }
    store(present, StoreValue::named(request.key, text));
    effects.reply.number(sum);
    wake_all(request.key, effects);
}

void KvState::handle(ClientId, const CheckRequest& request, KvEffects& effects) {
    const bool all = std::ranges::all_of(request.keys, [&](auto key) { return is_ready(key); });
    effects.reply.byte(all ? kReady : kNotReady);
}

void KvState::handle(ClientId client, const WaitRequest& request, KvEffects& effects) {
    if (waits_.contains(client)) {
        refuse("WAIT while another wait is pending", effects);
        return;
    }
    std::vector<std::string_view> missing;
    for (const std::string_view key : request.keys) {
        if (!is_ready(key)) {
            missing.push_back(key);
        }
    }
    if (missing.empty()) {
        effects.reply.byte(kStopWaiting);
        return;
    }
    if (counters_.registrations + missing.size() > limits_.registrations_max) {
        refuse("too many keys are waited for", effects);
        return;
    }
    register_wait(client, missing);
}

void KvState::handle(ClientId, const NumKeysRequest&, KvEffects& effects) {
    effects.reply.number(static_cast<std::int64_t>(keys_.size()));
}

void KvState::handle(ClientId, const DeleteKeyRequest& request, KvEffects& effects) {
    effects.reply.number(remove(request.key) ? 1 : 0);
}

void KvState::handle(ClientId, const AppendRequest& request, KvEffects& effects) {
    StoreValue* present = keys_.find(request.key);
    const std::string_view before = present == nullptr ? std::string_view{} : present->view();
    const std::size_t size = before.size() + request.value.size();
    if (size > limits::kValueBytesMax || !fits(request.key, present, size)) {
        refuse("APPEND: the value would be longer than the limit", effects);
        return;
    }
    store(present, StoreValue::named(request.key, before, request.value));
    wake_all(request.key, effects);
}

void KvState::handle(ClientId, const MultiGetRequest& request, KvEffects& effects) {
    for (const std::string_view key : request.keys) {
        reply_value(key, effects);
    }
}

void KvState::handle(ClientId, const MultiSetRequest& request, KvEffects& effects) {
    if (!fits_all(request)) {
        refuse("the store is full", effects);
        return;
    }
    for (const auto& [key, value] : request.pairs) {
        store(keys_.find(key), StoreValue::named(key, value));
    }
    for (const auto& [key, value] : request.pairs) {
        wake_all(key, effects);
    }
}

void KvState::handle(ClientId client, const CancelWaitRequest&, KvEffects& effects) {
    end_wait(client);
    effects.reply.byte(kWaitCanceled);
}

void KvState::handle(ClientId, const PingRequest& request, KvEffects& effects) {
    std::string text;
    ByteWriter{text}.u32(request.nonce);
    effects.reply.bytes(text);
}

/// All who ask before a key comes or goes share one text.
void KvState::handle(ClientId, const ListKeysRequest&, KvEffects& effects) {
    if (!listing_.is_there()) {
        std::size_t bytes = sizeof(std::uint64_t);
        keys_.for_each_key([&](auto key) { bytes += sizeof(std::uint64_t) + key.size(); });
        if (bytes > limits_.listed_bytes_max) {
            refuse("LIST_KEYS: the list would be longer than the limit", effects);
            return;
        }
        std::string text;
        text.reserve(bytes);
        ByteWriter writer{text};
        writer.u64(keys_.size());
        keys_.for_each_key([&](auto key) { writer.string64(key); });
        listing_ = StoreValue{text};
    }
    effects.reply.value_bytes(listing_);
}

void KvState::handle(ClientId client, const BarrierRequest& request, KvEffects& effects) {
    if (waits_.contains(client)) {
        refuse("BARRIER while another wait is pending", effects);
        return;
    }
    StoreValue* present = keys_.find(request.key);
    const std::optional<std::int64_t> number = counter_of(present);
    std::int64_t count = 0;
    if (!number || __builtin_add_overflow(*number, std::int64_t{1}, &count)) {
        refuse("BARRIER: the stored text is no number, or the sum is out of range", effects);
        return;
    }
    const std::string text = decimal(count);
    if (!fits(request.key, present, text.size()) ||
        counters_.registrations >= limits_.registrations_max) {
        refuse("the store is full", effects);
        return;
    }
    store(present, StoreValue::named(request.key, text));
    if (count >= request.world_size) {
        wake_all(request.key, effects);
        effects.reply.byte(kStopWaiting);
        return;
    }
    register_wait(client, {request.key});
}

// ---- parts

bool KvState::is_ready(std::string_view key) const {
    return keys_.find(key) != nullptr || queues_.contains(key);
}

void KvState::reply_value(std::string_view key, KvEffects& effects) const {
    const StoreValue* present = keys_.find(key);
    effects.reply.value(present == nullptr ? StoreValue{} : *present);
}

/// Whether `value_bytes` under `key`, in place of what is there, stay within the store's bounds.
bool KvState::fits(std::string_view key, const StoreValue* present, std::size_t value_bytes) const {
    if (present == nullptr) {
        return keys_.size() < limits_.keys_max &&
               counters_.bytes + key.size() + value_bytes <= limits_.bytes_max;
    }
    return counters_.bytes - present->size() + value_bytes <= limits_.bytes_max;
}

bool KvState::fits_all(const MultiSetRequest& request) const {
    std::size_t keys = keys_.size() + request.pairs.size();
    std::size_t bytes = counters_.bytes;
    for (const auto& [key, value] : request.pairs) {
        bytes += key.size() + value.size();
    }
    if (keys <= limits_.keys_max && bytes <= limits_.bytes_max) {
        return true;  // even if it replaced nothing
    }
    std::map<std::string_view, std::size_t> sizes;  // of the last value of each key
    for (const auto& [key, value] : request.pairs) {
        sizes[key] = value.size();
    }
    keys = keys_.size();
    bytes = counters_.bytes;
    for (const auto& [key, size] : sizes) {
        const StoreValue* present = keys_.find(key);
        keys += present == nullptr ? 1 : 0;
        bytes += present == nullptr ? key.size() + size : size;
        bytes -= present == nullptr ? 0 : present->size();
    }
    return keys <= limits_.keys_max && bytes <= limits_.bytes_max;
}

/// `present` is what find() gives for the value's name.
void KvState::store(StoreValue* present, StoreValue value) {
    counters_.bytes += value.size();
    if (present != nullptr) {
        counters_.bytes -= present->size();
        *present = std::move(value);
        return;
    }
    listing_ = {};
    counters_.bytes += value.name().size();
    foreign_runs_.stored(value.name());
    keys_.add(std::move(value));
    counters_.keys = keys_.size();
}

/// Whether there was such a key.
bool KvState::remove(std::string_view key) {
    const StoreValue* present = keys_.find(key);
    if (present == nullptr) {
        return false;
    }
    listing_ = {};
    counters_.bytes -= key.size() + present->size();
    keys_.erase(key);
    counters_.keys = keys_.size();
    note_gone(key);
    return true;
}

/// A key and a queue may have one name.
void KvState::note_gone(std::string_view key) {
    if (!is_ready(key)) {
        foreign_runs_.removed(key);
    }
}

void KvState::refuse(std::string_view reason, KvEffects& effects) {
    ++counters_.refused;
    effects.offence = reason;
}

}  // namespace ddprun
