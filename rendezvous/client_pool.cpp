#include "rendezvous/client_pool.h"

#include "proto/limits.h"
#include "proto/store_messages.h"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace ddprun {

namespace {

using Clock = ClientSocket::Clock;
using std::chrono::milliseconds;

/// Also with a scope, "fe80::1%eth0".
bool is_ipv6(std::string_view text) {
    in6_addr address{};
    const std::string digits{text.substr(0, text.find('%'))};
    return ::inet_pton(AF_INET6, digits.c_str(), &address) == 1;
}

tl::unexpected<Error> unusable(const StoreClientOptions& options, std::string_view why) {
    return fail(
        Errc::invalid_argument,
        fmt::format("connect to a store at host '{}', port {}: {}", options.host, options.port, why)
    );
}

}  // namespace

ClientSocket::Deadline after(milliseconds timeout) {
    const ClientSocket::Deadline now = Clock::now();
    const auto room = std::chrono::duration_cast<milliseconds>(ClientSocket::Deadline::max() - now);
    return timeout >= room ? ClientSocket::Deadline::max()
                           : now + std::max(timeout, milliseconds{0});
}

Result<StoreClientOptions> check_options(StoreClientOptions options) {
    std::string& host = options.host;
    if (options.port == 0) {
        return unusable(options, "no server has port 0; give the one that it listens on");
    }
    if (host.empty()) {
        return unusable(options, "the host is empty; give a name or an address");
    }
    if (host.find('\0') != std::string::npos) {
        return unusable(options, "a zero byte in the host");
    }
    if (host.front() == '[' || host.back() == ']') {
        const bool is_bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
        if (!is_bracketed || !is_ipv6(std::string_view{host}.substr(1, host.size() - 2))) {
            return unusable(options, "brackets belong around an IPv6 address, as in [::1]");
        }
        host = host.substr(1, host.size() - 2);
    }
    return options;
}

ClientPool::ClientPool(StoreClientOptions options)
    : options_(std::move(options)),
      look_up_(options_.host, options_.port),
      random_(static_cast<std::minstd_rand::result_type>(::getpid())) {}

Error ClientPool::in_context(std::string_view what, const Error& error) const {
    const bool needs_brackets = is_ipv6(options_.host);
    return Error{
        error.code,
        fmt::format(
            "store {}{}{}:{}: {}: {}",
            needs_brackets ? "[" : "",
            options_.host,
            needs_brackets ? "]" : "",
            options_.port,
            what,
            error.context
        )};
}

Result<ClientSocket> ClientPool::take(Deadline deadline) {
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
    return open(std::min(deadline, after(options_.connect_timeout)));
}

void ClientPool::give_back(ClientSocket socket) {
    const std::lock_guard lock{mutex_};
    if (idle_.size() < limits::kIdleConnectionsMax) {
        idle_.push_back(std::move(socket));
    }
}

Result<ClientSocket> ClientPool::open(Deadline deadline) {
    const Deadline begin = Clock::now();
    milliseconds delay = limits::kConnectBackoffMin;
    Error why;
    for (int attempts = 1;; ++attempts) {
        const bool has_time = Clock::now() < deadline;
        auto socket = open_once(deadline);
        if (socket) {
            return socket;
        }
        if (socket.error().code == Errc::malformed) {
            return socket;  // trying again doesn't make it a store
        }
        if (has_time || attempts == 1) {
            why = socket.error();  // of one without time it would only be that it had none
        }
        const Deadline now = Clock::now();
        if (now >= deadline) {
            const auto elapsed = std::chrono::duration_cast<milliseconds>(now - begin);
            why.context = fmt::format(
                "{} ({} attempt{} in {} ms; is the server up and reachable?)",
                why.context,
                attempts,
                attempts == 1 ? "" : "s",
                elapsed.count()
            );
            return fail(std::move(why));
        }
        // Half of what is left at most: a server that comes up late is still found, since an
        // attempt at the very deadline would have no time for its greeting.
        const auto left = std::chrono::ceil<milliseconds>(deadline - now);
        const milliseconds half = std::max(left / 2, limits::kConnectBackoffMin);
        std::this_thread::sleep_for(std::min({jittered(delay), half, left}));
        delay = std::min(delay * 2, limits::kConnectBackoffMax);
    }
}

Result<ClientSocket> ClientPool::open_once(Deadline deadline) {
    const Deadline attempt = std::min(deadline, after(limits::kConnectAttemptTimeout));
    const auto addresses = look_up_.find(attempt);
    if (!addresses) {
        return fail(addresses.error());
    }
    auto socket = ClientSocket::connect(*addresses, attempt);
    if (!socket) {
        return fail(Error{
            socket.error().code, fmt::format("open a connection: {}", socket.error().context)});
    }
    const auto in_greeting = [](const Error& error) {
        return fail(Error{error.code, fmt::format("greeting: {}", error.context)});
    };
    const auto nonce = static_cast<std::uint32_t>(::getpid());
    std::string hello;
    encode_request(ValidateRequest{kStoreMagic}, hello);
    encode_request(PingRequest{nonce}, hello);
    if (auto sent = socket->send(hello, deadline); !sent) {
        return in_greeting(sent.error());
    }
    const auto answer = socket->read_u32(deadline);
    if (!answer) {
        return in_greeting(answer.error());
    }
    if (*answer != nonce) {
        return in_greeting(Error{Errc::malformed, "no TCPStore answers there"});
    }
    return socket;
}

/// Between half of `delay` and all of it, so that many ranks don't come in step.
milliseconds ClientPool::jittered(milliseconds delay) {
    const std::lock_guard lock{mutex_};
    std::uniform_int_distribution<milliseconds::rep> half{delay.count() / 2, delay.count()};
    return milliseconds{half(random_)};
}

}  // namespace ddprun
