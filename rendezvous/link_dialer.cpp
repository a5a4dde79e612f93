#include "rendezvous/link_dialer.h"

#include "proto/limits.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ddprun {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

LinkDialer::LinkDialer(asio::io_context& io_context, TcpLinkOptions options, Log& log)
    : options_(std::move(options)),
      log_(log),
      target_(
          options_.host.find(':') == std::string::npos
              ? fmt::format("{}:{}", options_.host, options_.port)
              : fmt::format("[{}]:{}", options_.host, options_.port)
      ),
      resolver_(io_context),
      socket_(io_context),
      pause_(io_context),
      attempt_timer_(io_context),
      telling_timer_(io_context),
      backoff_(limits::kConnectBackoffMin) {}

void LinkDialer::begin(
    std::chrono::milliseconds time, std::string trouble, std::optional<Haste> haste
) {
    cancel();
    trouble_ = std::move(trouble);
    haste_ = haste;
    since_ = Clock::now();
    deadline_ = since_ + time;
    attempts_ = 0;
    backoff_ = limits::kConnectBackoffMin;
    tell_later(limits::kConnectTellingDelay);
    attempt();
}

void LinkDialer::retry(std::string trouble) {
    cancel();
    trouble_ = std::move(trouble);
    const Clock::time_point now = Clock::now();
    if (now >= deadline_) {
        give_up();
        return;
    }
    pause_.expires_at(std::min(deadline_, now + backoff_));
    backoff_ = std::min(2 * backoff_, is_hasty() ? haste_->attempt : limits::kConnectBackoffMax);
    pause_.async_wait(guarded([this](const error_code& error) {
        if (error) {
            return;
        }
        if (Clock::now() >= deadline_) {
            give_up();
        } else {
            attempt();
        }
    }));
}

void LinkDialer::settle() {
    settled_once_ = true;
    telling_timer_.cancel();
}

void LinkDialer::stop() {
    handlers_ = {};
    cancel();
    telling_timer_.cancel();
}

Clock::time_point LinkDialer::at_most(std::chrono::milliseconds time) const {
    return std::min(deadline_, Clock::now() + time);
}

/// Ends the attempt that runs.
void LinkDialer::cancel() {
    ++attempt_;
    resolver_.cancel();
    pause_.cancel();
    attempt_timer_.cancel();
    error_code ignored;
    socket_.close(ignored);
}

void LinkDialer::attempt() {
    ++attempt_;
    ++attempts_;
    const bool is_hasty = this->is_hasty();
    attempt_timer_.expires_at(at_most(is_hasty ? haste_->attempt : limits::kConnectAttemptTimeout));
    attempt_timer_.async_wait(guarded([this](const error_code& error) {
        if (!error) {
            retry("no answer");
        }
    }));
    if (is_hasty && reached_) {
        connect({*reached_});
        return;
    }
    error_code not_numeric;
    const auto address = asio::ip::make_address(options_.host, not_numeric);
    if (!not_numeric) {
        if (!is_superseded({address.to_string()})) {
            connect({tcp::endpoint{address, options_.port.value()}});
        }
        return;
    }
    // Asio looks names up on a thread of its own.
    resolver_.async_resolve(
        options_.host,
        std::to_string(options_.port.value()),
        tcp::resolver::numeric_service,
        guarded([this](const error_code& error, const tcp::resolver::results_type& results) {
            Endpoints endpoints;
            std::vector<std::string> addresses;
            for (const auto& result : results) {
                endpoints.push_back(result.endpoint());
                addresses.push_back(result.endpoint().address().to_string());
            }
            if (is_superseded(addresses)) {
                return;
            }
            if (error) {
                retry(fmt::format("resolve {}: {}", options_.host, error.message()));
                return;
            }
            connect(std::move(endpoints));
        })
    );
}

bool LinkDialer::is_hasty() const {
    return haste_ && Clock::now() < since_ + haste_->time;
}

bool LinkDialer::is_superseded(const std::vector<std::string>& addresses) {
    if (settled_once_ || !options_.superseded || !options_.superseded(addresses)) {
        return false;
    }
    stop();
    return true;
}

void LinkDialer::connect(Endpoints endpoints, Look look) {
    const auto kept = std::make_shared<Endpoints>(std::move(endpoints));
    const auto was_refused = std::make_shared<bool>(false);
    asio::async_connect(
        socket_,
        *kept,
        [was_refused](const error_code& error, const tcp::endpoint& /*next*/) {
            *was_refused = *was_refused || error == asio::error::connection_refused;
            return true;
        },
        guarded([this, kept, was_refused, look](
                    const error_code& error, const tcp::endpoint& /*endpoint*/
                ) {
            // The host may have come up between the attempts at its first and its second address.
            // Now that it is there the first one counts, as it does for whoever asks later: by our
            // address this node is known.
            if (!error && *was_refused && look == Look::first) {
                error_code ignored;
                socket_.close(ignored);
                connect(*kept, Look::second);
                return;
            }
            on_connect(error);
        })
    );
}

void LinkDialer::on_connect(const error_code& error) {
    if (error) {
        retry(error.message());
        return;
    }
    error_code failed;
    const tcp::endpoint local = socket_.local_endpoint(failed);
    const tcp::endpoint remote = failed ? tcp::endpoint{} : socket_.remote_endpoint(failed);
    // A free local port of the same machine can be the target itself: TCP then connects to itself.
    if (failed || local == remote) {
        retry("nobody listens there");
        return;
    }
    attempt_timer_.cancel();
    reached_ = remote;
    trouble_ = "what listens there has not answered yet";
    const auto handler = handlers_.on_connected;
    if (handler) {
        handler(std::move(socket_));
    }
}

void LinkDialer::give_up() {
    const double seconds = std::chrono::duration<double>(Clock::now() - since_).count();
    const Error error{
        Errc::timed_out,
        fmt::format(
            "{} the rendezvous at {}: {} ({} {} in {:.1f} s)",
            settled_once_ ? "connect again to" : "connect to",
            target_,
            trouble_,
            attempts_,
            attempts_ == 1 ? "attempt" : "attempts",
            seconds
        )};
    const auto handler = handlers_.on_given_up;
    stop();
    if (handler) {
        handler(error);
    }
}

void LinkDialer::tell_later(std::chrono::milliseconds delay) {
    telling_timer_.expires_after(delay);
    // Not guarded: it lasts longer than an attempt.
    telling_timer_.async_wait([self = shared_from_this()](const error_code& error) {
        if (error) {
            return;
        }
        self->log_.info(
            "{} the rendezvous at {}: {}, trying on",
            self->settled_once_ ? "connecting again to" : "connecting to",
            self->target_,
            self->trouble_
        );
        self->tell_later(limits::kConnectTellingInterval);
    });
}

}  // namespace ddprun
