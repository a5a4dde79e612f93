#include "rendezvous/client.h"

#include "proto/limits.h"
#include "proto/store_messages.h"
#include "rendezvous/client_socket.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

namespace ddprun {

namespace {

using Clock = ClientSocket::Clock;
using Deadline = ClientSocket::Deadline;
using std::chrono::milliseconds;

/// Deadline of `timeout` from now, safe for any number of milliseconds.
Deadline after(milliseconds timeout) {
    const Deadline now = Clock::now();
    const auto room = std::chrono::duration_cast<milliseconds>(Deadline::max() - now);
    return timeout >= room ? Deadline::max() : now + timeout;
}

/// "/a, /b, ... (7 more)" for an error text.
std::string listed(const std::vector<std::string>& keys) {
    std::string text;
    const std::size_t shown = std::min(keys.size(), limits::kKeysListedMax);
    for (std::size_t i = 0; i < shown; ++i) {
        text += fmt::format("{}{}", i == 0 ? "" : ", ", keys[i]);
    }
    return keys.size() > shown ? fmt::format("{} ... ({} more)", text, keys.size() - shown) : text;
}

std::vector<std::string_view> views_of(const std::vector<std::string>& texts) {
    return {texts.begin(), texts.end()};
}

}  // namespace

class StoreClient::Implementation {
public:
    explicit Implementation(StoreClientOptions options)
        : options_(std::move(options)),
          look_up_(options_.host, options_.port),
          random_(static_cast<std::minstd_rand::result_type>(::getpid())) {}

    [[nodiscard]] const StoreClientOptions& options() const { return options_; }

    [[nodiscard]] std::string with_prefix(std::string_view key) const {
        return fmt::format("{}{}", options_.key_prefix, key);
    }

    [[nodiscard]] StoreClient::Keys with_prefix(const StoreClient::Keys& keys) const {
        StoreClient::Keys all;
        all.reserve(keys.size());
        for (const std::string& key : keys) {
            all.push_back(with_prefix(key));
        }
        return all;
    }

    [[nodiscard]] milliseconds or_default(StoreClient::Timeout timeout) const {
        return std::max(timeout.value_or(options_.timeout), milliseconds{0});
    }

    Result<void> connect_first() {
        auto socket = open(after(options_.connect_timeout));
        if (!socket) {
            return fail(socket.error());
        }
        give_back(std::move(*socket));
        return {};
    }

    /// Runs `talk` on a connection of its own; the connection is kept when it went well.
    template <class T>
    Result<T> call(
        std::string_view what, const std::function<Result<T>(ClientSocket&, Deadline)>& talk
    ) {
        auto socket = take_connection();
        if (!socket) {
            return fail(socket.error());
        }
        auto result = talk(*socket, after(options_.timeout));
        if (!result) {
            return fail(in_context(what, result.error()));
        }
        give_back(std::move(*socket));
        return result;
    }

    /// A request that has a reply, read by `read`.
    template <class T>
    Result<T> ask(
        std::string_view what,
        const StoreRequest& request,
        const std::function<Result<T>(ClientSocket&, Deadline)>& read
    ) {
        const auto bytes = encoded(what, request);
        if (!bytes) {
            return fail(bytes.error());
        }
        return call<T>(what, [&](ClientSocket& socket, Deadline deadline) -> Result<T> {
            if (auto sent = socket.send(*bytes, deadline); !sent) {
                return fail(sent.error());
            }
            return read(socket, deadline);
        });
    }

    Result<std::int64_t> ask_number(std::string_view what, const StoreRequest& request) {
        return ask<std::int64_t>(what, request, [](ClientSocket& socket, Deadline deadline) {
            return socket.read_i64(deadline);
        });
    }

    /// A request without a reply: PING behind it tells when it has been applied.
    Result<void> tell(std::string_view what, const StoreRequest& request);

    /// WAIT or BARRIER: `keys` are for the error's text. Cancels at the time-out.
    Result<void> wait_for(
        std::string_view what,
        const StoreRequest& request,
        milliseconds timeout,
        const StoreClient::Keys& keys
    );

private:
    Result<ClientSocket> open(Deadline deadline);
    Result<ClientSocket> open_once(Deadline deadline);
    Result<ClientSocket> take_connection();
    void give_back(ClientSocket socket);
    milliseconds jittered(milliseconds delay);
    Result<bool> cancel(ClientSocket& socket);
    [[nodiscard]] Result<std::string> encoded(std::string_view what, const StoreRequest& request)
        const;

    [[nodiscard]] Error in_context(std::string_view what, const Error& error) const {
        return Error{
            error.code,
            fmt::format("store {}:{}: {}: {}", options_.host, options_.port, what, error.context)};
    }

    StoreClientOptions options_;
    HostLookUp look_up_;
    std::mutex mutex_;  ///< guards idle_ and random_; never held during I/O
    std::vector<ClientSocket> idle_;
    std::minstd_rand random_;
};

// ---- connections

Result<ClientSocket> StoreClient::Implementation::open(Deadline deadline) {
    milliseconds delay = limits::kConnectBackoffMin;
    for (int attempts = 1;; ++attempts) {
        auto socket = open_once(deadline);
        if (socket) {
            return socket;
        }
        if (socket.error().code == Errc::malformed) {
            return socket;  // trying again doesn't make it a store
        }
        const milliseconds pause = jittered(delay);
        if (deadline - Clock::now() <= pause) {
            Error error = socket.error();
            error.context = fmt::format(
                "{} ({} attempts in {} ms; is the server up and reachable?)",
                error.context,
                attempts,
                options_.connect_timeout.count()
            );
            return fail(std::move(error));
        }
        std::this_thread::sleep_for(pause);
        delay = std::min(delay * 2, limits::kConnectBackoffMax);
    }
}

Result<ClientSocket> StoreClient::Implementation::open_once(Deadline deadline) {
    const Deadline attempt = std::min(deadline, after(limits::kConnectAttemptTimeout));
    const auto addresses = look_up_.find(attempt);
    if (!addresses) {
        return fail(in_context("connect", addresses.error()));
    }
    auto socket = ClientSocket::connect(*addresses, attempt);
    if (!socket) {
        return fail(in_context("open a connection", socket.error()));
    }
    const auto nonce = static_cast<std::uint32_t>(::getpid());
    std::string hello;
    encode_request(ValidateRequest{kStoreMagic}, hello);
    encode_request(PingRequest{nonce}, hello);
    if (auto sent = socket->send(hello, deadline); !sent) {
        return fail(in_context("greeting", sent.error()));
    }
    const auto answer = socket->read_u32(deadline);
    if (!answer) {
        return fail(in_context("greeting", answer.error()));
    }
    if (*answer != nonce) {
        return fail(in_context("greeting", Error{Errc::malformed, "no TCPStore answers there"}));
    }
    return socket;
}

/// Between half of `delay` and all of it, so that many ranks don't come in step.
milliseconds StoreClient::Implementation::jittered(milliseconds delay) {
    const std::lock_guard lock{mutex_};
    std::uniform_int_distribution<milliseconds::rep> half{delay.count() / 2, delay.count()};
    return milliseconds{half(random_)};
}

Result<ClientSocket> StoreClient::Implementation::take_connection() {
    while (true) {
        std::optional<ClientSocket> socket;
        {
            const std::lock_guard lock{mutex_};
            if (idle_.empty()) {
                break;
            }
            socket.emplace(std::move(idle_.back()));
            idle_.pop_back();
        }
        if (socket->is_idle()) {
            return std::move(*socket);
        }
    }
    return open(after(options_.connect_timeout));
}

void StoreClient::Implementation::give_back(ClientSocket socket) {
    const std::lock_guard lock{mutex_};
    if (idle_.size() < limits::kIdleConnectionsMax) {
        idle_.push_back(std::move(socket));
    }
}

// ---- conversations

Result<std::string> StoreClient::Implementation::encoded(
    std::string_view what, const StoreRequest& request
) const {
    std::string bytes;
    encode_request(request, bytes);
    const auto decoded = decode_request(bytes);
    if (!decoded || bytes.size() > limits::kRequestBytesMax) {
        return fail(in_context(
            what,
            Error{
                Errc::limit_exceeded,
                fmt::format(
                    "a key above {} bytes, a value above {}, more than {} keys, or above {} bytes "
                    "in all",
                    limits::kKeyBytesMax,
                    limits::kValueBytesMax,
                    limits::kKeysPerRequestMax,
                    limits::kRequestBytesMax
                )}
        ));
    }
    return bytes;
}

Result<void> StoreClient::Implementation::tell(std::string_view what, const StoreRequest& request) {
    auto bytes = encoded(what, request);
    if (!bytes) {
        return fail(bytes.error());
    }
    constexpr std::uint32_t kNonce = 1;
    encode_request(PingRequest{kNonce}, *bytes);
    return call<void>(what, [&](ClientSocket& socket, Deadline deadline) -> Result<void> {
        if (auto sent = socket.send(*bytes, deadline); !sent) {
            return sent;
        }
        const auto answer = socket.read_u32(deadline);
        if (!answer) {
            return fail(answer.error());
        }
        if (*answer != kNonce) {
            return fail(Errc::malformed, "wrong answer to PING");
        }
        return {};
    });
}

/// Takes back a wait that has timed out; true when it had ended after all.
Result<bool> StoreClient::Implementation::cancel(ClientSocket& socket) {
    const Deadline deadline = after(limits::kCancelTimeout);
    std::string bytes;
    encode_request(CancelWaitRequest{}, bytes);
    if (auto sent = socket.send(bytes, deadline); !sent) {
        return fail(sent.error());
    }
    auto answer = socket.read_u8(deadline);
    const bool has_ended = answer && *answer == kStopWaiting;
    if (has_ended) {
        answer = socket.read_u8(deadline);
    }
    if (!answer) {
        return fail(answer.error());
    }
    if (*answer != kWaitCanceled) {
        return fail(Errc::malformed, "wrong answer to CANCEL_WAIT");
    }
    return has_ended;
}

Result<void> StoreClient::Implementation::wait_for(
    std::string_view what,
    const StoreRequest& request,
    milliseconds timeout,
    const StoreClient::Keys& keys
) {
    const auto bytes = encoded(what, request);
    if (!bytes) {
        return fail(bytes.error());
    }
    bool has_arrived = false;
    auto talked = call<void>(what, [&](ClientSocket& socket, Deadline deadline) -> Result<void> {
        const Deadline until = after(timeout);
        if (auto sent = socket.send(*bytes, deadline); !sent) {
            return sent;
        }
        const auto answer = socket.read_u8(until);
        if (answer) {
            has_arrived = *answer == kStopWaiting;
            if (!has_arrived) {
                return fail(Errc::malformed, "wrong answer to a wait");
            }
            return {};
        }
        if (answer.error().code != Errc::timed_out) {
            return fail(answer.error());
        }
        const auto ended = cancel(socket);
        if (!ended) {
            return fail(ended.error());
        }
        has_arrived = *ended;
        return {};
    });
    if (talked && !has_arrived) {
        const std::string text =
            fmt::format("timed out after {} ms, keys: {}", timeout.count(), listed(keys));
        return fail(in_context(what, Error{Errc::timed_out, text}));
    }
    return talked;
}

// ---- the calls

Result<std::unique_ptr<StoreClient>> StoreClient::connect(StoreClientOptions options) {
    auto implementation = std::make_unique<Implementation>(std::move(options));
    if (auto connected = implementation->connect_first(); !connected) {
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
    return implementation_->tell("set", SetRequest{name, value});
}

Result<std::string> StoreClient::get(std::string_view key, Timeout timeout) {
    auto values = multi_get({std::string{key}}, timeout);
    if (!values) {
        return fail(values.error());
    }
    return std::move(values->front());
}

Result<std::int64_t> StoreClient::add(std::string_view key, std::int64_t delta) {
    const std::string name = implementation_->with_prefix(key);
    return implementation_->ask_number("add", AddRequest{name, delta});
}

Result<bool> StoreClient::check(const Keys& keys) {
    const Keys names = implementation_->with_prefix(keys);
    return implementation_->ask<bool>(
        "check",
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
    const Keys names = implementation_->with_prefix(keys);
    return implementation_->wait_for(
        "wait", WaitRequest{views_of(names)}, implementation_->or_default(timeout), keys
    );
}

Result<std::string> StoreClient::compare_set(
    std::string_view key, std::string_view expected, std::string_view desired
) {
    const std::string name = implementation_->with_prefix(key);
    return implementation_->ask<std::string>(
        "compare_set",
        CompareSetRequest{name, expected, desired},
        [](ClientSocket& socket, Deadline deadline) {
            return socket.read_string(limits::kValueBytesMax, deadline);
        }
    );
}

Result<std::vector<std::string>> StoreClient::multi_get(const Keys& keys, Timeout timeout) {
    using Values = std::vector<std::string>;
    if (auto arrived = wait(keys, timeout); !arrived) {
        return fail(arrived.error());
    }
    const Keys names = implementation_->with_prefix(keys);
    return implementation_->ask<Values>(
        "get",
        MultiGetRequest{views_of(names)},
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

Result<void> StoreClient::multi_set(const KeyValues& pairs) {
    Keys names;
    MultiSetRequest request;
    names.reserve(pairs.size());  // the request holds views of them
    for (const auto& [key, value] : pairs) {
        names.push_back(implementation_->with_prefix(key));
        request.pairs.emplace_back(names.back(), value);
    }
    return implementation_->tell("multi_set", request);
}

Result<void> StoreClient::append(std::string_view key, std::string_view value) {
    const std::string name = implementation_->with_prefix(key);
    return implementation_->tell("append", AppendRequest{name, value});
}

Result<bool> StoreClient::remove(std::string_view key) {
    const std::string name = implementation_->with_prefix(key);
    const auto removed = implementation_->ask_number("remove", DeleteKeyRequest{name});
    if (!removed) {
        return fail(removed.error());
    }
    return *removed > 0;
}

Result<std::int64_t> StoreClient::num_keys() {
    return implementation_->ask_number("num_keys", NumKeysRequest{});
}

Result<StoreClient::Keys> StoreClient::list_keys() {
    const std::string& prefix = implementation_->options().key_prefix;
    return implementation_->ask<Keys>(
        "list_keys",
        ListKeysRequest{},
        [&](ClientSocket& socket, Deadline deadline) -> Result<Keys> {
            const auto count = socket.read_i64(deadline);
            if (!count) {
                return fail(count.error());
            }
            Keys keys;
            for (std::int64_t left = *count; left > 0; --left) {
                auto key = socket.read_string(limits::kKeyBytesMax, deadline);
                if (!key) {
                    return fail(key.error());
                }
                if (key->starts_with(prefix)) {
                    keys.push_back(key->substr(prefix.size()));
                }
            }
            return keys;
        }
    );
}

Result<void> StoreClient::queue_push(std::string_view key, std::string_view value) {
    const std::string name = implementation_->with_prefix(key);
    return implementation_->tell("queue_push", QueuePushRequest{name, value});
}

Result<std::string> StoreClient::queue_pop(std::string_view key, Timeout timeout) {
    const Deadline deadline = after(implementation_->or_default(timeout));
    while (true) {
        const milliseconds left{milliseconds_until(deadline)};
        if (auto arrived = wait({std::string{key}}, left); !arrived) {
            return fail(arrived.error());
        }
        auto value = try_queue_pop(key);
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
    using Value = std::optional<std::string>;
    const std::string name = implementation_->with_prefix(key);
    return implementation_->ask<Value>(
        "queue_pop",
        QueuePopRequest{name},
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

Result<std::int64_t> StoreClient::queue_len(std::string_view key) {
    const std::string name = implementation_->with_prefix(key);
    return implementation_->ask_number("queue_len", QueueLengthRequest{name});
}

Result<void> StoreClient::barrier(std::string_view key, std::int64_t world_size, Timeout timeout) {
    const std::string name = implementation_->with_prefix(key);
    return implementation_->wait_for(
        "barrier",
        BarrierRequest{name, world_size},
        implementation_->or_default(timeout),
        {std::string{key}}
    );
}

Result<void> StoreClient::ping() {
    constexpr std::uint32_t kNonce = 2;
    return implementation_->ask<void>(
        "ping",
        PingRequest{kNonce},
        [](ClientSocket& socket, Deadline deadline) -> Result<void> {
            const auto answer = socket.read_u32(deadline);
            if (!answer) {
                return fail(answer.error());
            }
            if (*answer != kNonce) {
                return fail(Errc::malformed, "wrong answer to PING");
            }
            return {};
        }
    );
}

}  // namespace ddprun
