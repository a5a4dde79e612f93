// The way to a rendezvous: resolves its name, connects, and tries again with backoff until a
// deadline. While nothing comes of it a line of the log says why, after a moment and then in
// intervals. What is said over the connection is its owner's matter.
//
// Everything happens on the io_context's one thread. Handlers are called from the loop, never from
// inside begin() or retry(), but for on_given_up where the deadline has passed already.
#pragma once

#include "proto/error.h"
#include "proto/log.h"
#include "rendezvous/tcp_link.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ddprun {

class LinkDialer : public std::enable_shared_from_this<LinkDialer> {
public:
    struct Handlers {
        std::function<void(boost::asio::ip::tcp::socket)> on_connected;
        /// The deadline has passed: timed_out, with target, attempts and what the last one met.
        std::function<void(const Error&)> on_given_up;
    };

    LinkDialer(boost::asio::io_context& io_context, TcpLinkOptions options, Log& log);

    /// Before begin().
    void set_handlers(Handlers handlers) { handlers_ = std::move(handlers); }

    /// After a connection that fell silent the network may be cut for a moment: attempts are short
    /// and follow each other without a growing pause, at the address that was reached before.
    struct Haste {
        std::chrono::milliseconds attempt{};
        std::chrono::milliseconds time{};  ///< from begin() on; then as usual
    };

    /// Tries from now on, for at most this time. `trouble` is what ended the connection before.
    void begin(
        std::chrono::milliseconds time,
        std::string trouble = "no answer yet",
        std::optional<Haste> haste = std::nullopt
    );

    /// What had been connected was good for nothing: goes on under the deadline that runs.
    void retry(std::string trouble);

    /// The connection is a good one: there is nothing to tell any more, and from now on the way is
    /// one back.
    void settle();

    /// Tries no more and calls nobody.
    void stop();

    /// host:port, IPv6 in brackets.
    [[nodiscard]] const std::string& target() const { return target_; }

    /// No later than the deadline.
    [[nodiscard]] std::chrono::steady_clock::time_point at_most(std::chrono::milliseconds time
    ) const;

private:
    using Endpoints = std::vector<boost::asio::ip::tcp::endpoint>;

    void attempt();
    enum class Look { first, second };

    void connect(Endpoints endpoints, Look look = Look::first);
    void on_connect(const boost::system::error_code& error);
    void give_up();
    void tell_later(std::chrono::milliseconds delay);
    void cancel();
    [[nodiscard]] bool is_hasty() const;
    [[nodiscard]] bool is_superseded(const std::vector<std::string>& addresses);

    template <class Handler>
    auto guarded(Handler handler) {
        // Handlers of a former attempt are of no interest.
        return [self = shared_from_this(), attempt = attempt_, handler](const auto&... results) {
            if (self->attempt_ == attempt) {
                handler(results...);
            }
        };
    }

    TcpLinkOptions options_;
    Log& log_;
    std::string target_;
    Handlers handlers_;
    boost::asio::ip::tcp::resolver resolver_;
    boost::asio::ip::tcp::socket socket_;
    boost::asio::steady_timer pause_;
    boost::asio::steady_timer attempt_timer_;
    boost::asio::steady_timer telling_timer_;
    std::uint64_t attempt_ = 0;
    std::optional<Haste> haste_;
    std::optional<boost::asio::ip::tcp::endpoint> reached_;  ///< by the last good attempt

    std::chrono::steady_clock::time_point since_;
    std::chrono::steady_clock::time_point deadline_;
    std::chrono::milliseconds backoff_;
    int attempts_ = 0;
    std::string trouble_;
    bool settled_once_ = false;
};

}  // namespace ddprun
