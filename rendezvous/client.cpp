#include "rendezvous/client.h"

#include "proto/limits.h"
#include "proto/store_messages.h"
#include "rendezvous/client_talk.h"

#include <algorithm>
#include <utility>

namespace ddprun {

namespace {

using Deadline = ClientSocket::Deadline;

// Why a store may refuse a request.
constexpr std::string_view kFull = "the store is full";
constexpr std::string_view kNoNumber = "the value is no decimal number, or the sum is out of range";
constexpr std::string_view kTooLong = "the value would be too long, or the store is full";
constexpr std::string_view kUnknown = "an older store doesn't know it";
constexpr std::string_view kQueue = "the queue is full, or an older store doesn't know it";
constexpr std::string_view kBarrier = "the value is no number, or an older store doesn't know it";

std::vector<std::string_view> views_of(const std::vector<std::string>& texts) {
    return {texts.begin(), texts.end()};
}

}  // namespace

class StoreClient::Implementation : public ClientTalk {
public:
    using ClientTalk::ClientTalk;
    using Values = std::vector<std::string>;

    [[nodiscard]] WaitTimes times_of(Timeout timeout) const {
        return WaitTimes{timeout.value_or(options().timeout)};
    }

    Result<void> wait(std::string_view verb, const Keys& keys, const WaitTimes& times) {
        const Keys names = with_prefix(keys);
        return wait_for({.verb = verb}, WaitRequest{views_of(names)}, times, keys);
    }

    Result<Values> multi_get(const Keys& keys, Timeout timeout) {
        const WaitTimes times = times_of(timeout);
        if (auto arrived = wait("get", keys, times); !arrived) {
            return fail(arrived.error());
        }
        const Keys names = with_prefix(keys);
        return ask<Values>(
            {.verb = "get", .key = keys.size() == 1 ? std::string_view{keys.front()} : ""},
            MultiGetRequest{views_of(names)},
            times.end,
            [&](ClientSocket& socket, Deadline deadline) -> Result<Values> {
                Values values;
                for (std::size_t i = 0; i < keys.size(); ++i) {
                    auto value = socket.read_string(limits::kValueBytesMax, deadline);
                    if (!value) {
                        return fail(value.error());
                    }
                    values.push_back(std::move(*value));
                }
                return values;
            }
        );
    }

    /// The oldest value, if there is one now.
    Result<std::optional<std::string>> queue_pop(std::string_view key, Deadline the_deadline) {
        using Value = std::optional<std::string>;
        const std::string name = with_prefix(key);
        return ask<Value>(
            {"queue_pop from", key, kUnknown},
            QueuePopRequest{name},
            the_deadline,
            [](ClientSocket& socket, Deadline deadline) -> Result<Value> {
                const auto length = socket.read_i64(deadline);
                if (!length) {
                    return fail(length.error());
                }
                if (*length == 0) {
                    return Value{};
                }
                auto value = socket.read_string(limits::kValueBytesMax, deadline);
                if (!value) {
                    return fail(value.error());
                }
                return Value{std::move(*value)};
            }
        );
    }
};

Result<std::unique_ptr<StoreClient>> StoreClient::connect(StoreClientOptions options) {
    auto checked = check_options(std::move(options));
    if (!checked) {
        return fail(checked.error());
    }
    auto implementation = std::make_unique<Implementation>(std::move(*checked));
    if (auto connected = implementation->connect(); !connected) {
        return fail(connected.error());
    }
    return std::unique_ptr<StoreClient>{new StoreClient{std::move(implementation)}};
}

StoreClient::StoreClient(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}

StoreClient::~StoreClient() = default;

const StoreClientOptions& StoreClient::options() const {
    return implementation_->options();
}

Result<void> StoreClient::set(std::string_view key, std::string_view value) {
    const std::string name = implementation_->with_prefix(key);
    return implementation_->tell({"set", key, kFull}, SetRequest{name, value});
}

Result<std::string> StoreClient::get(std::string_view key, Timeout timeout) {
    auto values = implementation_->multi_get({std::string{key}}, timeout);
    if (!values) {
        return fail(values.error());
    }
    return std::move(values->front());
}

Result<std::int64_t> StoreClient::add(std::string_view key, std::int64_t delta) {
    const std::string name = implementation_->with_prefix(key);
    return implementation_->ask_number({"add to", key, kNoNumber}, AddRequest{name, delta});
}

Result<bool> StoreClient::check(const Keys& keys) {
    const Keys names = implementation_->with_prefix(keys);
    return implementation_->ask<bool>(
        {.verb = "check"},
        CheckRequest{views_of(names)},
        [](ClientSocket& socket, Deadline deadline) -> Result<bool> {
            const auto answer = socket.read_u8(deadline);
            if (!answer) {
                return fail(answer.error());
            }
            return *answer == kReady;
        }
    );
}

Result<void> StoreClient::wait(const Keys& keys, Timeout timeout) {
    return implementation_->wait("wait", keys, implementation_->times_of(timeout));
}

Result<std::string> StoreClient::compare_set(
    std::string_view key, std::string_view expected, std::string_view desired
) {
    const std::string name = implementation_->with_prefix(key);
    return implementation_->ask<std::string>(
        {"compare_set", key, kFull},
        CompareSetRequest{name, expected, desired},
        [](ClientSocket& socket, Deadline deadline) {
            return socket.read_string(limits::kValueBytesMax, deadline);
        }
    );
}

Result<std::vector<std::string>> StoreClient::multi_get(const Keys& keys, Timeout timeout) {
    return implementation_->multi_get(keys, timeout);
}

Result<void> StoreClient::multi_set(const KeyValues& pairs) {
    Keys names;
    MultiSetRequest request;
    names.reserve(pairs.size());  // the request holds views of them
    for (const auto& [key, value] : pairs) {
        names.push_back(implementation_->with_prefix(key));
        request.pairs.emplace_back(names.back(), value);
    }
    return implementation_->tell({.verb = "multi_set", .refused = kFull}, request);
}

Result<void> StoreClient::append(std::string_view key, std::string_view value) {
    const std::string name = implementation_->with_prefix(key);
    return implementation_->tell({"append to", key, kTooLong}, AppendRequest{name, value});
}

Result<bool> StoreClient::remove(std::string_view key) {
    const std::string name = implementation_->with_prefix(key);
    const auto removed = implementation_->ask_number({"remove", key}, DeleteKeyRequest{name});
    if (!removed) {
        return fail(removed.error());
    }
    return *removed > 0;
}

Result<std::int64_t> StoreClient::num_keys() {
    return implementation_->ask_number({.verb = "num_keys"}, NumKeysRequest{});
}

Result<StoreClient::Keys> StoreClient::list_keys() {
    const std::string& prefix = implementation_->options().key_prefix;
    return implementation_->ask<Keys>(
        {.verb = "list_keys", .refused = kUnknown},
        ListKeysRequest{},
        [&](ClientSocket& socket, Deadline deadline) -> Result<Keys> {
            const auto count = socket.read_i64(deadline);
            if (!count) {
                return fail(count.error());
            }
            Keys keys;
            for (std::int64_t left = *count; left > 0; --left) {
                if (ClientSocket::Clock::now() >= deadline) {
                    return fail(Errc::timed_out, "the keys don't end in time");
                }
                auto key = socket.read_string(limits::kKeyBytesMax, deadline);
                if (!key) {
                    return fail(key.error());
                }
                if (key->starts_with(prefix)) {
                    keys.push_back(key->substr(prefix.size()));
                }
            }
            std::ranges::sort(keys);  // the server's order is none
            return keys;
        }
    );
}

Result<void> StoreClient::queue_push(std::string_view key, std::string_view value) {
    const std::string name = implementation_->with_prefix(key);
    return implementation_->tell({"queue_push to", key, kQueue}, QueuePushRequest{name, value});
}

Result<std::string> StoreClient::queue_pop(std::string_view key, Timeout timeout) {
    const WaitTimes times = implementation_->times_of(timeout);
    while (true) {
        if (auto arrived = implementation_->wait("queue_pop", {std::string{key}}, times);
            !arrived) {
            return fail(arrived.error());
        }
        auto value = implementation_->queue_pop(key, times.end);
        if (!value) {
            return fail(value.error());
        }
        if (*value) {
            return std::move(**value);
        }
        // Another consumer was faster.
    }
}

Result<std::optional<std::string>> StoreClient::try_queue_pop(std::string_view key) {
    return implementation_->queue_pop(key, after(options().timeout));
}

Result<std::int64_t> StoreClient::queue_len(std::string_view key) {
    const std::string name = implementation_->with_prefix(key);
    return implementation_->ask_number({"queue_len of", key, kUnknown}, QueueLengthRequest{name});
}

Result<void> StoreClient::barrier(std::string_view key, std::int64_t world_size, Timeout timeout) {
    const std::string name = implementation_->with_prefix(key);
    return implementation_->wait_for(
        {"barrier", key, kBarrier},
        BarrierRequest{name, world_size},
        implementation_->times_of(timeout),
        {std::string{key}}
    );
}

Result<void> StoreClient::ping() {
    return implementation_->ping();
}

}  // namespace ddprun
