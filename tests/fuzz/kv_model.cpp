#include "tests/fuzz/kv_model.h"

#include "proto/bytes.h"
#include "proto/limits.h"

#include <algorithm>
#include <string_view>

namespace ddprun {

namespace {

void put_number(std::string& out, std::int64_t number) {
    ByteWriter{out}.i64(number);
}

void put_value(std::string& out, std::string_view value) {
    ByteWriter{out}.string64(value);
}

void put_byte(std::string& out, std::uint8_t byte) {
    ByteWriter{out}.u8(byte);
}

/// Digits with at most one minus in front, within 64 bits.
bool is_plain_number(const std::string& text, std::int64_t& number) {
    const std::string digits = text.starts_with("-") ? text.substr(1) : text;
    if (digits.empty() || digits.size() > 19 ||
        digits.find_first_not_of("0123456789") != std::string::npos) {
        return false;
    }
    __extension__ __int128 sum = 0;
    for (const char digit : digits) {
        sum = 10 * sum + (digit - '0');
    }
    sum = text.starts_with("-") ? -sum : sum;
    number = static_cast<std::int64_t>(sum);
    return sum == number;
}

}  // namespace

std::size_t KvModel::bytes_of(const Keys& keys, const Queues& queues) {
    std::size_t bytes = 0;
    for (const auto& [key, value] : keys) {
        bytes += key.size() + value.size();
    }
    for (const auto& [key, queue] : queues) {
        for (const std::string& value : queue) {
            bytes += key.size() + value.size();
        }
    }
    return bytes;
}

std::size_t KvModel::waiting_clients() const {
    std::set<std::uint64_t> clients;
    for (const auto& [client, key] : registrations_) {
        clients.insert(client);
    }
    return clients.size();
}

bool KvModel::is_ready(const std::string& key) const {
    return keys_.contains(key) || queues_.contains(key);
}

bool KvModel::is_waiting(std::uint64_t client) const {
    return std::any_of(registrations_.begin(), registrations_.end(), [&](const auto& entry) {
        return entry.first == client;
    });
}

/// Makes these the contents, unless they are beyond the limits.
bool KvModel::change(Keys keys, Queues queues, Outcome& outcome) {
    if (keys.size() > limits_.keys_max || bytes_of(keys, queues) > limits_.bytes_max) {
        outcome.is_refused = true;
        return false;
    }
    keys_ = std::move(keys);
    queues_ = std::move(queues);
    return true;
}

bool KvModel::add(const std::string& key, std::int64_t delta, std::int64_t& sum, Outcome& outcome) {
    std::int64_t number = 0;
    if (keys_.contains(key) && !is_plain_number(keys_[key], number)) {
        outcome.is_refused = true;
        return false;
    }
    __extension__ const __int128 exact = static_cast<__int128>(number) + delta;
    sum = static_cast<std::int64_t>(exact);
    if (exact != sum) {
        outcome.is_refused = true;
        return false;
    }
    Keys keys = keys_;
    keys[key] = std::to_string(sum);
    return change(std::move(keys), queues_, outcome);
}

void KvModel::wait(std::uint64_t client, const std::vector<std::string>& keys, Outcome& outcome) {
    if (registrations_.size() + keys.size() > limits_.registrations_max) {
        outcome.is_refused = true;
        return;
    }
    for (const std::string& key : keys) {
        registrations_.emplace_back(client, key);
    }
}

void KvModel::wake(const std::string& key, bool one_only, Outcome& outcome) {
    for (std::size_t i = 0; i < registrations_.size();) {
        if (registrations_[i].second != key) {
            ++i;
            continue;
        }
        const std::uint64_t client = registrations_[i].first;
        registrations_.erase(registrations_.begin() + static_cast<std::ptrdiff_t>(i));
        if (!is_waiting(client)) {
            outcome.released.push_back(client);
            if (one_only) {
                return;
            }
        }
    }
}

KvModel::Outcome KvModel::apply(std::uint64_t client, const StoreRequest& request) {
    Outcome outcome;
    std::visit([&](const auto& body) { on(client, body, outcome); }, request);
    return outcome;
}

void KvModel::client_gone(std::uint64_t client) {
    std::erase_if(registrations_, [&](const auto& entry) { return entry.first == client; });
}

void KvModel::on(std::uint64_t, const ValidateRequest& request, Outcome& outcome) {
    outcome.is_refused = request.magic != kStoreMagic;
}

void KvModel::on(std::uint64_t, const SetRequest& request, Outcome& outcome) {
    Keys keys = keys_;
    keys[std::string{request.key}] = request.value;
    if (change(std::move(keys), queues_, outcome)) {
        wake(std::string{request.key}, false, outcome);
    }
}

void KvModel::on(std::uint64_t, const CompareSetRequest& request, Outcome& outcome) {
    const std::string key{request.key};
    const bool is_there = keys_.contains(key);
    const std::string present = is_there ? keys_[key] : "";
    if (present != request.expected) {
        put_value(outcome.reply, is_there ? present : request.expected);
    } else {
        Keys keys = keys_;
        keys[key] = request.desired;
        if (!change(std::move(keys), queues_, outcome)) {
            return;
        }
        put_value(outcome.reply, request.desired);
    }
    if (keys_.contains(key)) {
        wake(key, false, outcome);
    }
}

void KvModel::on(std::uint64_t, const GetRequest& request, Outcome& outcome) {
    const auto found = keys_.find(std::string{request.key});
    put_value(outcome.reply, found == keys_.end() ? "" : found->second);
}

void KvModel::on(std::uint64_t, const AddRequest& request, Outcome& outcome) {
    const std::string key{request.key};
    std::int64_t sum = 0;
    if (add(key, request.delta, sum, outcome)) {
        put_number(outcome.reply, sum);
        wake(key, false, outcome);
    }
}

void KvModel::on(std::uint64_t, const CheckRequest& request, Outcome& outcome) {
    bool all = true;
    for (const std::string_view key : request.keys) {
        all = all && is_ready(std::string{key});
    }
    put_byte(outcome.reply, all ? kReady : kNotReady);
}

void KvModel::on(std::uint64_t client, const WaitRequest& request, Outcome& outcome) {
    if (is_waiting(client)) {
        outcome.is_refused = true;
        return;
    }
    std::vector<std::string> missing;
    for (const std::string_view key : request.keys) {
        if (!is_ready(std::string{key})) {
            missing.emplace_back(key);
        }
    }
    if (missing.empty()) {
        put_byte(outcome.reply, kStopWaiting);
    } else {
        wait(client, missing, outcome);
    }
}

void KvModel::on(std::uint64_t, const NumKeysRequest&, Outcome& outcome) {
    put_number(outcome.reply, static_cast<std::int64_t>(keys_.size()));
}

void KvModel::on(std::uint64_t, const DeleteKeyRequest& request, Outcome& outcome) {
    put_number(outcome.reply, static_cast<std::int64_t>(keys_.erase(std::string{request.key})));
}

void KvModel::on(std::uint64_t, const AppendRequest& request, Outcome& outcome) {
    Keys keys = keys_;
    keys[std::string{request.key}] += request.value;
    if (change(std::move(keys), queues_, outcome)) {
        wake(std::string{request.key}, false, outcome);
    }
}

void KvModel::on(std::uint64_t client, const MultiGetRequest& request, Outcome& outcome) {
    for (const std::string_view key : request.keys) {
        on(client, GetRequest{key}, outcome);
    }
}

void KvModel::on(std::uint64_t, const MultiSetRequest& request, Outcome& outcome) {
    Keys keys = keys_;
    for (const auto& [key, value] : request.pairs) {
        keys[std::string{key}] = value;
    }
    if (!change(std::move(keys), queues_, outcome)) {
        return;
    }
    for (const auto& [key, value] : request.pairs) {
        wake(std::string{key}, false, outcome);
    }
}

void KvModel::on(std::uint64_t client, const CancelWaitRequest&, Outcome& outcome) {
    client_gone(client);
    put_byte(outcome.reply, kWaitCanceled);
}

void KvModel::on(std::uint64_t, const PingRequest& request, Outcome& outcome) {
    ByteWriter{outcome.reply}.u32(request.nonce);
}

void KvModel::on(std::uint64_t, const QueuePushRequest& request, Outcome& outcome) {
    const std::string key{request.key};
    Queues queues = queues_;
    queues[key].emplace_back(request.value);
    if (queues[key].size() > limits_.queue_length_max) {
        outcome.is_refused = true;
    } else if (change(keys_, std::move(queues), outcome)) {
        wake(key, true, outcome);
    }
}

void KvModel::on(std::uint64_t, const QueuePopRequest& request, Outcome& outcome) {
    const auto found = queues_.find(std::string{request.key});
    if (found == queues_.end()) {
        put_number(outcome.reply, 0);
        return;
    }
    put_number(outcome.reply, static_cast<std::int64_t>(found->second.size()));
    put_value(outcome.reply, found->second.front());
    found->second.pop_front();
    if (found->second.empty()) {
        queues_.erase(found);
    }
}

void KvModel::on(std::uint64_t, const QueueLengthRequest& request, Outcome& outcome) {
    const auto found = queues_.find(std::string{request.key});
    const std::size_t length = found == queues_.end() ? 0 : found->second.size();
    put_number(outcome.reply, static_cast<std::int64_t>(length));
}

void KvModel::on(std::uint64_t, const ListKeysRequest&, Outcome& outcome) {
    put_number(outcome.reply, static_cast<std::int64_t>(keys_.size()));
    for (const auto& [key, value] : keys_) {
        put_value(outcome.reply, key);
    }
}

void KvModel::on(std::uint64_t client, const BarrierRequest& request, Outcome& outcome) {
    const std::string key{request.key};
    std::int64_t count = 0;
    if (is_waiting(client) || registrations_.size() >= limits_.registrations_max) {
        outcome.is_refused = true;
    } else if (add(key, 1, count, outcome)) {
        if (count >= request.world_size) {
            wake(key, false, outcome);
            put_byte(outcome.reply, kStopWaiting);
        } else {
            wait(client, {key}, outcome);
        }
    }
}

}  // namespace ddprun
