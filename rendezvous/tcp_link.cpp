#include "rendezvous/tcp_link.h"

#include "proto/agent_codec.h"
#include "proto/limits.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace ddprun {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

namespace {

/// Heartbeats that the network doesn't acknowledge before the connection counts as broken.
constexpr int kUnacknowledgedHeartbeats = 3;

class Connection : public std::enable_shared_from_this<Connection> {
public:
    Connection(asio::io_context& io_context, TcpLinkOptions options, Log& log)
        : io_context_(io_context),
          options_(std::move(options)),
          log_(log),
          target_(
              options_.host.find(':') == std::string::npos
                  ? fmt::format("{}:{}", options_.host, options_.port)
                  : fmt::format("[{}]:{}", options_.host, options_.port)
          ),
          resolver_(io_context),
          socket_(io_context),
          retry_timer_(io_context),
          attempt_timer_(io_context),
          heartbeat_timer_(io_context),
          telling_timer_(io_context) {}

    void start(RendezvousLink::Handlers handlers);
    void send(const AgentMessage& message);
    void close(std::function<void()> done);
    void abandon();

private:
    enum class State { connecting, up, closing, over };

    void begin_trying(std::chrono::milliseconds time);
    void resolve();
    void connect(std::vector<tcp::endpoint> endpoints);
    void on_connect(const error_code& error);
    void attempt_failed(const std::string& why);
    void retry();
    void give_up();
    void tell_later(std::chrono::milliseconds delay);
    [[nodiscard]] bool is_superseded(const std::vector<std::string>& addresses);
    void lose(const Error& reason);
    void read();
    void on_read(std::size_t size);
    [[nodiscard]] bool take(const ServerMessage& message);
    void enqueue(const AgentMessage& message);
    void write();
    void on_written(const error_code& error);
    void beat();
    void close_socket();
    void finish_close();

    template <class Handler>
    auto guarded(Handler handler) {
        // Handlers of a former connection or attempt are of no interest.
        return [self = shared_from_this(), attempt = attempt_, handler](const auto&... results) {
            if (self->attempt_ == attempt && self->state_ != State::over) {
                handler(results...);
            }
        };
    }

    asio::io_context& io_context_;
    TcpLinkOptions options_;
    Log& log_;
    std::string target_;
    RendezvousLink::Handlers handlers_;
    State state_ = State::connecting;

    tcp::resolver resolver_;
    tcp::socket socket_;
    asio::steady_timer retry_timer_;
    asio::steady_timer attempt_timer_;
    asio::steady_timer heartbeat_timer_;
    asio::steady_timer telling_timer_;
    std::uint64_t attempt_ = 0;

    Clock::time_point trying_since_;
    Clock::time_point deadline_;
    int attempts_ = 0;
    std::chrono::milliseconds backoff_ = limits::kConnectBackoffMin;
    std::string last_trouble_ = "no attempt was over";
    bool was_up_ = false;

    FrameReader reader_{FrameReader::Start::frames, limits::kServerFrameBytesMax};
    std::array<char, limits::kAgentReadBytes> input_{};
    std::deque<std::string> output_;
    std::size_t output_bytes_ = 0;
    bool writing_ = false;
    std::optional<std::chrono::milliseconds> heartbeat_interval_;
    bool final_word_ = false;  ///< Refused or EndJob has come
    std::function<void()> closed_;
};

// ---- connecting

void Connection::start(RendezvousLink::Handlers handlers) {
    handlers_ = std::move(handlers);
    asio::post(io_context_, guarded([this] { begin_trying(options_.connect_timeout); }));
}

void Connection::begin_trying(std::chrono::milliseconds time) {
    state_ = State::connecting;
    trying_since_ = Clock::now();
    deadline_ = trying_since_ + time;
    attempts_ = 0;
    backoff_ = limits::kConnectBackoffMin;
    tell_later(limits::kConnectTellingDelay);
    resolve();
}

void Connection::tell_later(std::chrono::milliseconds delay) {
    telling_timer_.expires_after(delay);
    // Not guarded: it lasts longer than an attempt.
    telling_timer_.async_wait([self = shared_from_this()](const error_code& error) {
        if (error || self->state_ == State::over || self->state_ == State::closing) {
            return;
        }
        self->log_.info(
            "{} the rendezvous at {}: {}, trying on",
            self->was_up_ ? "connecting again to" : "connecting to",
            self->target_,
            self->last_trouble_
        );
        self->tell_later(limits::kConnectTellingInterval);
    });
}

bool Connection::is_superseded(const std::vector<std::string>& addresses) {
    if (was_up_ || !options_.superseded || !options_.superseded(addresses)) {
        return false;
    }
    handlers_ = {};
    state_ = State::over;
    close_socket();
    telling_timer_.cancel();
    return true;
}

void Connection::resolve() {
    ++attempt_;
    ++attempts_;
    attempt_timer_.expires_at(std::min(deadline_, Clock::now() + limits::kConnectAttemptTimeout));
    attempt_timer_.async_wait(guarded([this](const error_code& error) {
        if (!error) {
            attempt_failed("no answer");
        }
    }));
    error_code not_numeric;
    const auto address = asio::ip::make_address(options_.host, not_numeric);
    if (!not_numeric) {
        if (is_superseded({address.to_string()})) {
            return;
        }
        connect({tcp::endpoint{address, options_.port.value()}});
        return;
    }
    // Asio looks names up on a thread of its own.
    resolver_.async_resolve(
        options_.host,
        std::to_string(options_.port.value()),
        tcp::resolver::numeric_service,
        guarded([this](const error_code& error, const tcp::resolver::results_type& results) {
            std::vector<tcp::endpoint> endpoints;
            std::vector<std::string> addresses;
            for (const auto& result : results) {
                endpoints.push_back(result.endpoint());
                addresses.push_back(result.endpoint().address().to_string());
            }
            if (is_superseded(addresses)) {
                return;
            }
            if (error) {
                attempt_failed(fmt::format("resolve {}: {}", options_.host, error.message()));
                return;
            }
            connect(std::move(endpoints));
        })
    );
}

void Connection::connect(std::vector<tcp::endpoint> endpoints) {
    const auto kept = std::make_shared<std::vector<tcp::endpoint>>(std::move(endpoints));
    asio::async_connect(
        socket_,
        *kept,
        [](const error_code& /*error*/, const tcp::endpoint& /*next*/) { return true; },
        guarded([this, kept](const error_code& error, const tcp::endpoint& /*endpoint*/) {
            on_connect(error);
        })
    );
}

void Connection::on_connect(const error_code& error) {
    if (error) {
        attempt_failed(error.message());
        return;
    }
    error_code failed;
    const tcp::endpoint local = socket_.local_endpoint(failed);
    const tcp::endpoint remote = failed ? tcp::endpoint{} : socket_.remote_endpoint(failed);
    // A free local port of the same machine can be the target itself: TCP then connects to itself.
    if (failed || local == remote) {
        attempt_failed("nobody listens there");
        return;
    }
    attempt_timer_.expires_at(std::min(deadline_, Clock::now() + limits::kJoinMessageTimeout));
    attempt_timer_.async_wait(guarded([this](const error_code& expired) {
        if (!expired) {
            lose(Error{Errc::timed_out, "what listens there doesn't answer"});
        }
    }));
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    static_cast<void>(::fcntl(socket_.native_handle(), F_SETFD, FD_CLOEXEC));
    state_ = State::up;
    reader_ = FrameReader{FrameReader::Start::frames, limits::kServerFrameBytesMax};
    heartbeat_interval_.reset();
    writing_ = false;
    output_.clear();
    output_.push_back(agent_opening());
    output_bytes_ = output_.back().size();
    write();
    read();
    log_.debug("rendezvous link: connected to {} from {}", target_, local.address().to_string());
    const auto handler = handlers_.on_connected;
    if (handler) {
        handler(local.address().to_string());
    }
}

void Connection::attempt_failed(const std::string& why) {
    last_trouble_ = why;
    close_socket();
    retry();
}

void Connection::retry() {
    state_ = State::connecting;
    const Clock::time_point now = Clock::now();
    if (now >= deadline_) {
        give_up();
        return;
    }
    retry_timer_.expires_at(std::min(deadline_, now + backoff_));
    backoff_ = std::min(2 * backoff_, limits::kConnectBackoffMax);
    retry_timer_.async_wait(guarded([this](const error_code& error) {
        if (error) {
            return;
        }
        if (Clock::now() >= deadline_) {
            give_up();
        } else {
            resolve();
        }
    }));
}

void Connection::give_up() {
    const double seconds = std::chrono::duration<double>(Clock::now() - trying_since_).count();
    const Error error{
        Errc::timed_out,
        fmt::format(
            "{} the rendezvous at {}: {} ({} attempts in {:.1f} s)",
            was_up_ ? "connect again to" : "connect to",
            target_,
            last_trouble_,
            attempts_,
            seconds
        )};
    state_ = State::over;
    close_socket();
    telling_timer_.cancel();
    const auto handler = std::exchange(handlers_, {}).on_lost;
    if (handler) {
        handler(error);
    }
}

/// The connection broke after it had been up.
void Connection::lose(const Error& reason) {
    close_socket();
    if (state_ == State::closing) {
        finish_close();
        return;
    }
    const bool was_welcome = heartbeat_interval_.has_value();
    heartbeat_interval_.reset();
    last_trouble_ = reason.context;
    if (final_word_) {
        state_ = State::over;
    } else if (was_welcome) {
        begin_trying(options_.lost_timeout);
    } else {
        retry();
        if (state_ == State::over) {
            return;
        }
    }
    log_.debug("rendezvous link: {} lost: {}", target_, reason.context);
    const auto handler = handlers_.on_disconnected;
    if (handler) {
        handler(reason);
    }
}

// ---- messages in

void Connection::read() {
    socket_.async_read_some(
        asio::buffer(input_), guarded([this](const error_code& error, std::size_t size) {
            if (error) {
                lose(from_error_code(error, fmt::format("read from the rendezvous at {}", target_))
                );
            } else {
                on_read(size);
            }
        })
    );
}

void Connection::on_read(std::size_t size) {
    if (state_ == State::closing) {
        read();
        return;
    }
    reader_.push(std::string_view{input_.data(), size});
    const std::uint64_t attempt = attempt_;
    while (state_ == State::up && attempt_ == attempt) {
        Result<std::optional<Frame>> frame = reader_.next();
        if (frame && !*frame) {
            break;
        }
        const Result<ServerMessage> message =
            frame ? decode_server_message(**frame) : Result<ServerMessage>(fail(frame.error()));
        if (!message) {
            lose(Error{
                Errc::malformed,
                fmt::format(
                    "what answers at {} is no rendezvous of this version of ddprun: {}",
                    target_,
                    message.error().context
                )});
            return;
        }
        if (!take(*message)) {
            return;
        }
    }
    if (state_ == State::up || state_ == State::closing) {
        read();
    }
}

/// False where the handler has closed the link for good.
bool Connection::take(const ServerMessage& message) {
    if (const auto* welcome = std::get_if<Welcome>(&message)) {
        was_up_ = true;
        attempt_timer_.cancel();
        telling_timer_.cancel();
        const bool first = !heartbeat_interval_.has_value();
        heartbeat_interval_ = std::max(welcome->heartbeat_interval, limits::kHeartbeatIntervalMin);
        const auto patience = *heartbeat_interval_ * kUnacknowledgedHeartbeats;
        const auto milliseconds = static_cast<unsigned int>(patience.count());
        static_cast<void>(::setsockopt(
            socket_.native_handle(),
            IPPROTO_TCP,
            TCP_USER_TIMEOUT,
            &milliseconds,
            sizeof milliseconds
        ));
        if (first) {
            beat();
        }
    }
    if (std::holds_alternative<Refused>(message)) {
        attempt_timer_.cancel();
        telling_timer_.cancel();
    }
    final_word_ = final_word_ || std::holds_alternative<Refused>(message) ||
                  std::holds_alternative<EndJob>(message);
    // A copy: the handler may close the link.
    const auto handler = handlers_.on_message;
    if (handler) {
        handler(message);
    }
    return state_ != State::over;
}

// ---- messages out

void Connection::send(const AgentMessage& message) {
    if (state_ == State::up) {
        enqueue(message);
    }
}

void Connection::enqueue(const AgentMessage& message) {
    std::string bytes;
    encode(message, bytes);
    output_bytes_ += bytes.size();
    if (output_bytes_ > limits::kAgentOutputBytesMax) {
        // The rendezvous doesn't read: begin anew, reports that it lacks are sent again.
        error_code ignored;
        socket_.shutdown(tcp::socket::shutdown_both, ignored);
        return;
    }
    output_.push_back(std::move(bytes));
    write();
}

void Connection::write() {
    if (writing_) {
        return;
    }
    if (output_.empty()) {
        if (state_ == State::closing) {
            // The host reads what was sent and closes; the timer of close() bounds the wait.
            error_code ignored;
            socket_.shutdown(tcp::socket::shutdown_send, ignored);
        }
        return;
    }
    writing_ = true;
    asio::async_write(
        socket_,
        asio::buffer(output_.front()),
        guarded([this](const error_code& error, std::size_t) { on_written(error); })
    );
}

void Connection::on_written(const error_code& error) {
    writing_ = false;
    if (error) {
        if (state_ == State::closing) {
            finish_close();
        }
        return;  // the read sees it too, with what was received before
    }
    output_bytes_ -= output_.front().size();
    output_.pop_front();
    write();
}

void Connection::beat() {
    heartbeat_timer_.expires_after(*heartbeat_interval_);
    heartbeat_timer_.async_wait(guarded([this](const error_code& error) {
        if (error || state_ != State::up || !heartbeat_interval_) {
            return;
        }
        if (output_.empty()) {  // else what is queued says as much
            enqueue(Heartbeat{});
        }
        beat();
    }));
}

// ---- the end

void Connection::close(std::function<void()> done) {
    handlers_ = {};
    closed_ = std::move(done);
    if (state_ != State::up) {
        finish_close();
        return;
    }
    state_ = State::closing;
    attempt_timer_.expires_after(limits::kLinkCloseTimeout);
    attempt_timer_.async_wait(guarded([this](const error_code& error) {
        if (!error) {
            finish_close();
        }
    }));
    write();
}

void Connection::finish_close() {
    state_ = State::over;
    close_socket();
    telling_timer_.cancel();
    auto done = std::exchange(closed_, nullptr);
    if (done) {
        asio::post(io_context_, std::move(done));
    }
}

void Connection::abandon() {
    handlers_ = {};
    if (state_ != State::closing) {  // else close() finishes what it began
        state_ = State::over;
        close_socket();
        telling_timer_.cancel();
    }
}

void Connection::close_socket() {
    ++attempt_;
    resolver_.cancel();
    retry_timer_.cancel();
    attempt_timer_.cancel();
    heartbeat_timer_.cancel();
    error_code ignored;
    socket_.close(ignored);
    writing_ = false;
}

class TcpLink final : public RendezvousLink {
public:
    explicit TcpLink(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}

    ~TcpLink() override { connection_->abandon(); }

    void start(Handlers handlers) override { connection_->start(std::move(handlers)); }

    void send(const AgentMessage& message) override { connection_->send(message); }

    void close(std::function<void()> done) override { connection_->close(std::move(done)); }

private:
    std::shared_ptr<Connection> connection_;
};

}  // namespace

std::unique_ptr<RendezvousLink> make_tcp_link(
    asio::io_context& io_context, TcpLinkOptions options, Log& log
) {
    return std::make_unique<TcpLink>(
        std::make_shared<Connection>(io_context, std::move(options), log)
    );
}

}  // namespace ddprun
