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

}  // namespace

KvLimits::KvLimits()
    : keys_max(limits::kStoreKeysMax),
      bytes_max(limits::kStoreBytesMax),
      queue_length_max(limits::kQueueLengthMax),
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
    }
    counters_.foreign_runs = foreign_runs_.size();
}

void KvState::handle(ClientId, const ValidateRequest& request, KvEffects& effects) {
    if (request.magic != kStoreMagic) {
        refuse("wrong magic number", effects);
    }
}

void KvState::handle(ClientId, const SetRequest& request, KvEffects& effects) {
    if (!fits(request.key, request.value.size())) {
        refuse("the store is full", effects);
        return;
    }
    store(request.key, StoreValue{request.value});
    wake_all(request.key, effects);
}

void KvState::handle(ClientId, const CompareSetRequest& request, KvEffects& effects) {
    const StoreValue present = find(request.key);
    const bool is_match =
        present.is_there() ? present.view() == request.expected : request.expected.empty();
    if (!is_match) {
        effects.reply.value(present.is_there() ? present : StoreValue{request.expected});
        if (present.is_there()) {
            wake_all(request.key, effects);
        }
        return;
    }
    if (!fits(request.key, request.desired.size())) {
        refuse("the store is full", effects);
        return;
    }
    const StoreValue desired = StoreValue{request.desired};
    store(request.key, desired);
    effects.reply.value(desired);
    wake_all(request.key, effects);
}

void KvState::handle(ClientId, const GetRequest& request, KvEffects& effects) {
    effects.reply.value(find(request.key));
}

void KvState::handle(ClientId, const AddRequest& request, KvEffects& effects) {
    std::int64_t number = 0;
    const bool is_number = is_counter(request.key, number) || !find(request.key).is_there();
    std::int64_t sum = 0;
    if (!is_number || __builtin_add_overflow(number, request.delta, &sum)) {
        refuse("ADD: the stored text is no number, or the sum is out of range", effects);
        return;
    }
    std::string text = decimal(sum);
    if (!fits(request.key, text.size())) {
        refuse("the store is full", effects);
        return;
    }
    store(request.key, StoreValue{text});
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
    const StoreValue present = find(request.key);
    const std::size_t size = present.size() + request.value.size();
    if (size > limits::kValueBytesMax || !fits(request.key, size)) {
        refuse("APPEND: the value would be longer than the limit", effects);
        return;
    }
    store(request.key, StoreValue{present.view(), request.value});
    wake_all(request.key, effects);
}

void KvState::handle(ClientId, const MultiGetRequest& request, KvEffects& effects) {
    for (const std::string_view key : request.keys) {
        effects.reply.value(find(key));
    }
}

void KvState::handle(ClientId, const MultiSetRequest& request, KvEffects& effects) {
    if (!fits_all(request)) {
        refuse("the store is full", effects);
        return;
    }
    for (const auto& [key, value] : request.pairs) {
        store(key, StoreValue{value});
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

void KvState::handle(ClientId, const QueuePushRequest& request, KvEffects& effects) {
    const auto found = queues_.find(request.key);
    const std::size_t length = found == queues_.end() ? 0 : found->second.size();
    if (length >= limits_.queue_length_max ||
        counters_.bytes + request.key.size() + request.value.size() > limits_.bytes_max) {
        refuse("the queue is full", effects);
        return;
    }
    auto& queue = found == queues_.end() ? queues_[std::string{request.key}] : found->second;
    queue.push_back(StoreValue{request.value});
    counters_.bytes += request.key.size() + request.value.size();
    counters_.queues = queues_.size();
    wake_one(request.key, effects);
}

void KvState::handle(ClientId, const QueuePopRequest& request, KvEffects& effects) {
    const auto found = queues_.find(request.key);
    if (found == queues_.end()) {
        effects.reply.number(0);
        return;
    }
    std::deque<StoreValue>& queue = found->second;
    effects.reply.number(static_cast<std::int64_t>(queue.size()));
    effects.reply.value(queue.front());
    counters_.bytes -= found->first.size() + queue.front().size();
    queue.pop_front();
    if (queue.empty()) {
        queues_.erase(found);
        counters_.queues = queues_.size();
    }
}

void KvState::handle(ClientId, const QueueLengthRequest& request, KvEffects& effects) {
    const auto found = queues_.find(request.key);
    const std::size_t length = found == queues_.end() ? 0 : found->second.size();
    effects.reply.number(static_cast<std::int64_t>(length));
}

void KvState::handle(ClientId, const ListKeysRequest&, KvEffects& effects) {
    std::vector<std::string_view> names;
    names.reserve(keys_.size());
    for (const auto& [key, value] : keys_) {
        names.push_back(key);
    }
    std::ranges::sort(names);
    std::string text;
    ByteWriter writer{text};
    writer.u64(names.size());
    for (const std::string_view name : names) {
        writer.string64(name);
    }
    effects.reply.bytes(text);
}

void KvState::handle(ClientId client, const BarrierRequest& request, KvEffects& effects) {
    if (waits_.contains(client)) {
        refuse("BARRIER while another wait is pending", effects);
        return;
    }
    std::int64_t count = 0;
    const bool is_number = is_counter(request.key, count) || !find(request.key).is_there();
    if (!is_number || __builtin_add_overflow(count, std::int64_t{1}, &count)) {
        refuse("BARRIER: the stored text is no number, or the sum is out of range", effects);
        return;
    }
    std::string text = decimal(count);
    if (!fits(request.key, text.size()) || counters_.registrations >= limits_.registrations_max) {
        refuse("the store is full", effects);
        return;
    }
    store(request.key, StoreValue{text});
    if (count >= request.world_size) {
        wake_all(request.key, effects);
        effects.reply.byte(kStopWaiting);
        return;
    }
    register_wait(client, {request.key});
}

// ---- parts

bool KvState::is_ready(std::string_view key) const {
    return keys_.contains(key) || queues_.contains(key);
}

StoreValue KvState::find(std::string_view key) const {
    const auto found = keys_.find(key);
    return found == keys_.end() ? StoreValue{} : found->second;
}

/// Whether `value_bytes` under `key`, in place of what is there, stay within the store's bounds.
bool KvState::fits(std::string_view key, std::size_t value_bytes) const {
    const auto found = keys_.find(key);
    if (found == keys_.end()) {
        return keys_.size() < limits_.keys_max &&
               counters_.bytes + key.size() + value_bytes <= limits_.bytes_max;
    }
    return counters_.bytes - found->second.size() + value_bytes <= limits_.bytes_max;
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
        const auto found = keys_.find(key);
        const bool is_new = found == keys_.end();
        keys += is_new ? 1 : 0;
        bytes += is_new ? key.size() + size : size;
        bytes -= is_new ? 0 : found->second.size();
    }
    return keys <= limits_.keys_max && bytes <= limits_.bytes_max;
}

void KvState::store(std::string_view key, StoreValue value) {
    const auto found = keys_.find(key);
    if (found == keys_.end()) {
        counters_.bytes += key.size() + value.size();
        const auto added = keys_.emplace(key, std::move(value)).first;
        counters_.keys = keys_.size();
        foreign_runs_.stored(added->first);
        return;
    }
    counters_.bytes += value.size();
    counters_.bytes -= found->second.size();
    found->second = std::move(value);
}

/// Whether there was such a key.
bool KvState::remove(std::string_view key) {
    const auto found = keys_.find(key);
    if (found == keys_.end()) {
        return false;
    }
    foreign_runs_.removed(found->first);
    counters_.bytes -= found->first.size() + found->second.size();
    keys_.erase(found);
    counters_.keys = keys_.size();
    return true;
}

/// Whether a number is stored at the key, as plain decimal text; `number` is left alone if not.
bool KvState::is_counter(std::string_view key, std::int64_t& number) const {
    const auto found = keys_.find(key);
    if (found == keys_.end()) {
        return false;
    }
    const std::string_view text = found->second.view();
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    return error == std::errc{} && stop == end;
}

void KvState::refuse(std::string_view reason, KvEffects& effects) {
    ++counters_.refused;
    effects.offence = reason;
}

}  // namespace ddprun
