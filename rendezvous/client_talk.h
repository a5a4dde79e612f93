// The conversations of a StoreClient: a request on a connection of its own, its reply, and what
// becomes of the connection. Every step of a call has the call's own deadline, so that none
// outlasts its time-out (a wait: by more than limits::kCancelTimeout), whatever the server does or
// leaves undone. Calls may come from any thread.
#pragma once

#include "proto/limits.h"
#include "proto/result.h"
#include "proto/store_messages.h"
#include "rendezvous/client_pool.h"
#include "rendezvous/client_socket.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

/// What a call attempts, for the text of its error.
struct ClientAttempt {
    std::string_view verb;       ///< "add to"
    std::string_view key{};      ///< empty where it is of no single key
    std::string_view refused{};  ///< why a store may refuse it, by closing the connection
};

/// The times of a call that may wait.
struct WaitTimes {
    std::chrono::milliseconds timeout;
    ClientSocket::Deadline until;  ///< the time-out's end: the server may be waited for
    ClientSocket::Deadline end;    ///< and then be asked for its last word

    explicit WaitTimes(std::chrono::milliseconds timeout);
};

class ClientTalk {
public:
    using Deadline = ClientSocket::Deadline;
    using Keys = std::vector<std::string>;

    template <class T>
    using Read = std::function<Result<T>(ClientSocket&, Deadline)>;

    explicit ClientTalk(StoreClientOptions options) : pool_(std::move(options)) {}

    [[nodiscard]] const StoreClientOptions& options() const { return pool_.options(); }

    [[nodiscard]] std::string with_prefix(std::string_view key) const;
    [[nodiscard]] Keys with_prefix(const Keys& keys) const;

    /// Opens the first connection.
    Result<void> connect();

    /// A request that has a reply, read by `read`. The connection is kept when it went well.
    template <class T>
    Result<T> ask(
        const ClientAttempt& attempt,
        const StoreRequest& request,
        Deadline deadline,
        const Read<T>& read
    ) {
        const auto bytes = encoded(attempt, request);
        if (!bytes) {
            return fail(bytes.error());
        }
        return converse<T>(attempt, *bytes, deadline, read);
    }

    /// The same with the options' time-out.
    template <class T>
    Result<T> ask(const ClientAttempt& attempt, const StoreRequest& request, const Read<T>& read) {
        return ask<T>(attempt, request, after(options().timeout), read);
    }

    Result<std::int64_t> ask_number(const ClientAttempt& attempt, const StoreRequest& request);

    /// A request without a reply: PING behind it tells when it has been applied.
    Result<void> tell(const ClientAttempt& attempt, const StoreRequest& request);

    Result<void> ping();

    /// WAIT or BARRIER: `keys` are for the error's text. Cancels at the time-out.
    Result<void> wait_for(
        const ClientAttempt& attempt,
        const StoreRequest& request,
        const WaitTimes& times,
        const Keys& keys
    );

private:
    static constexpr std::uint32_t kPingNonce = 1;

    static Result<void> read_pong(ClientSocket& socket, Deadline deadline);

    template <class T>
    Result<T> converse(
        const ClientAttempt& attempt, std::string_view bytes, Deadline deadline, const Read<T>& read
    ) {
        auto socket = pool_.take(deadline);
        if (!socket) {
            return fail(pool_.in_context(attempt_text(attempt), socket.error()));
        }
        if (auto sent = socket->send(bytes, deadline); !sent) {
            return fail(explained(attempt, sent.error()));
        }
        auto result = read(*socket, deadline);
        if (!result) {
            return fail(explained(attempt, result.error()));
        }
        pool_.give_back(std::move(*socket));
        return result;
    }

    /// How a wait ended.
    enum class Ending { arrived, canceled, no_answer };

    [[nodiscard]] static std::string attempt_text(const ClientAttempt& attempt);
    [[nodiscard]] Error explained(const ClientAttempt& attempt, const Error& error) const;
    [[nodiscard]] Result<std::string> encoded(
        const ClientAttempt& attempt, const StoreRequest& request
    ) const;
    static Result<Ending> read_ending(ClientSocket& socket, const WaitTimes& times);
    static Result<Ending> cancel(ClientSocket& socket, Deadline deadline);

    ClientPool pool_;
};

}  // namespace ddprun
