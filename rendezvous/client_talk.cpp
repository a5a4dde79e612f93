#include "rendezvous/client_talk.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace ddprun {

namespace {

using std::chrono::milliseconds;

/// A key for an error's text.
std::string shown(std::string_view key) {
    return key.size() > limits::kKeyBytesShownMax
               ? fmt::format("{}...", key.substr(0, limits::kKeyBytesShownMax))
               : std::string{key};
}

/// "a, b, ... (7 more)".
std::string listed(const std::vector<std::string>& keys) {
    std::string text;
    const std::size_t count = std::min(keys.size(), limits::kKeysListedMax);
    for (std::size_t i = 0; i < count; ++i) {
        text += fmt::format("{}{}", i == 0 ? "" : ", ", shown(keys[i]));
    }
    return keys.size() > count ? fmt::format("{} ... ({} more)", text, keys.size() - count) : text;
}

}  // namespace

WaitTimes::WaitTimes(milliseconds the_timeout)
    : timeout(std::max(the_timeout, milliseconds{0})),
      until(after(timeout)),
      end(std::min(until, ClientSocket::Deadline::max() - limits::kCancelTimeout) +
          limits::kCancelTimeout) {}

std::string ClientTalk::with_prefix(std::string_view key) const {
    return fmt::format("{}{}", options().key_prefix, key);
}

ClientTalk::Keys ClientTalk::with_prefix(const Keys& keys) const {
    Keys all;
    all.reserve(keys.size());
    for (const std::string& key : keys) {
        all.push_back(with_prefix(key));
    }
    return all;
}

Result<void> ClientTalk::connect() {
    auto socket = pool_.take(Deadline::max());
    if (!socket) {
        return fail(pool_.in_context("connect", socket.error()));
    }
    pool_.give_back(std::move(*socket));
    return {};
}

std::string ClientTalk::attempt_text(const ClientAttempt& attempt) {
    return attempt.key.empty() ? std::string{attempt.verb}
                               : fmt::format("{} '{}'", attempt.verb, shown(attempt.key));
}

/// With what the caller can't see: a store refuses by closing the connection, without a word.
Error ClientTalk::explained(const ClientAttempt& attempt, const Error& error) const {
    Error whole = pool_.in_context(attempt_text(attempt), error);
    if (error.code == Errc::connection_lost && !attempt.refused.empty()) {
        whole.context += fmt::format(
            "; it has ended, or it refused: a store closes a connection whose request makes no "
            "sense to it ({})",
            attempt.refused
        );
    }
    return whole;
}

Result<std::string> ClientTalk::encoded(const ClientAttempt& attempt, const StoreRequest& request)
    const {
    std::string bytes;
    encode_request(request, bytes);
    const auto decoded = decode_request(bytes);
    if (!decoded || bytes.size() > limits::kRequestBytesMax) {
        return fail(pool_.in_context(
            attempt_text(attempt),
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

Result<std::int64_t> ClientTalk::ask_number(
    const ClientAttempt& attempt, const StoreRequest& request
) {
    return ask<std::int64_t>(attempt, request, [](ClientSocket& socket, Deadline deadline) {
        return socket.read_i64(deadline);
    });
}

Result<void> ClientTalk::tell(const ClientAttempt& attempt, const StoreRequest& request) {
    auto bytes = encoded(attempt, request);
    if (!bytes) {
        return fail(bytes.error());
    }
    encode_request(PingRequest{kPingNonce}, *bytes);
    return converse<void>(attempt, *bytes, after(options().timeout), read_pong);
}

Result<void> ClientTalk::ping() {
    return ask<void>({.verb = "ping"}, PingRequest{kPingNonce}, read_pong);
}

Result<void> ClientTalk::read_pong(ClientSocket& socket, Deadline deadline) {
    const auto answer = socket.read_u32(deadline);
    if (!answer) {
        return fail(answer.error());
    }
    if (*answer != kPingNonce) {
        return fail(Errc::malformed, "wrong answer to PING");
    }
    return {};
}

Result<ClientTalk::Ending> ClientTalk::read_ending(ClientSocket& socket, const WaitTimes& times) {
    const auto answer = socket.read_u8(times.until);
    if (answer) {
        if (*answer != kStopWaiting) {
            return fail(Errc::malformed, "wrong answer to a wait");
        }
        return Ending::arrived;
    }
    if (answer.error().code != Errc::timed_out) {
        return fail(answer.error());
    }
    return cancel(socket, times.end);
}

/// Takes back a wait that has timed out; it may have ended after all.
Result<ClientTalk::Ending> ClientTalk::cancel(ClientSocket& socket, Deadline deadline) {
    const auto no_answer = [](const Error& error) -> Result<Ending> {
        if (error.code == Errc::timed_out) {
            return Ending::no_answer;
        }
        return fail(error);
    };
    std::string bytes;
    encode_request(CancelWaitRequest{}, bytes);
    if (auto sent = socket.send(bytes, deadline); !sent) {
        return no_answer(sent.error());
    }
    auto answer = socket.read_u8(deadline);
    const bool has_ended = answer && *answer == kStopWaiting;
    if (has_ended) {
        answer = socket.read_u8(deadline);
    }
    if (!answer) {
        return no_answer(answer.error());
    }
    if (*answer != kWaitCanceled) {
        return fail(Errc::malformed, "wrong answer to CANCEL_WAIT");
    }
    return has_ended ? Ending::arrived : Ending::canceled;
}

Result<void> ClientTalk::wait_for(
    const ClientAttempt& attempt,
    const StoreRequest& request,
    const WaitTimes& times,
    const Keys& keys
) {
    const auto bytes = encoded(attempt, request);
    if (!bytes) {
        return fail(bytes.error());
    }
    // A call that may not wait at all has the time of a round trip nevertheless.
    const Deadline patience =
        std::max(times.until, std::min(times.end, after(limits::kCancelTimeout)));
    auto socket = pool_.take(patience);
    if (!socket) {
        return fail(pool_.in_context(attempt_text(attempt), socket.error()));
    }
    if (auto sent = socket->send(*bytes, patience); !sent) {
        return fail(explained(attempt, sent.error()));
    }
    const auto ending = read_ending(*socket, times);
    if (!ending) {
        return fail(explained(attempt, ending.error()));
    }
    if (*ending != Ending::no_answer) {
        pool_.give_back(std::move(*socket));  // else what it still answers would mix with the next
    }
    if (*ending == Ending::arrived) {
        return {};
    }
    const Error error{
        Errc::timed_out,
        fmt::format(
            "timed out after {} ms, keys: {}{}",
            times.timeout.count(),
            listed(keys),
            *ending == Ending::no_answer ? "; the server answers nothing at all" : ""
        )};
    return fail(pool_.in_context(attempt.verb, error));
}

}  // namespace ddprun
