#include "rendezvous/tcp_link.h"

#include "proto/agent_codec.h"
#include "proto/limits.h"
#include "rendezvous/link_dialer.h"

#include <boost/asio/buffer.hpp>
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

namespace ddprun {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

namespace {

/// Heartbeats that the network doesn't acknowledge before the connection counts as broken.
constexpr int kUnacknowledgedHeartbeats = 3;

/// So that the silence that the rendezvous sees is hardly longer than what is wrong.
constexpr int kBeatsPerInterval = 4;

constexpr int kAttemptsPerInterval = 8;  ///< at connecting anew after a silence

class Connection : public std::enable_shared_from_this<Connection> {
public:
    Connection(asio::io_context& io_context, TcpLinkOptions options, Log& log)
        : io_context_(io_context),
          connect_timeout_(options.connect_timeout),
          lost_timeout_(options.lost_timeout),
          heartbeat_misses_(options.heartbeat_misses),
          log_(log),
          dialer_(std::make_shared<LinkDialer>(io_context, std::move(options), log)),
          socket_(io_context),
          silent_(io_context),
          timer_(io_context),
          heartbeat_timer_(io_context) {}

    void start(RendezvousLink::Handlers handlers);
    void send(const AgentMessage& message);
    void close(std::function<void()> done);
    void abandon();

private:
    enum class State { connecting, up, closing, over };

    void on_connected(tcp::socket socket);
    void on_given_up(const Error& error);
    void lose(const Error& reason, std::optional<LinkDialer::Haste> haste = std::nullopt);
    void read();
    void on_read(std::size_t size);
    [[nodiscard]] bool take(const ServerMessage& message);
    void on_welcome(const Welcome& welcome);
    void enqueue(const AgentMessage& message);
    void write();
    void on_written(const error_code& error);
    void beat();
    void on_beat(Clock::time_point due);
    void doubt();
    [[nodiscard]] std::chrono::milliseconds patience() const;
    [[nodiscard]] std::chrono::milliseconds time_to_come_back() const;
    void close_socket();
    void close_sockets();
    void finish_close();

    template <class Handler>
    auto guarded(Handler handler) {
        // Handlers of a former connection are of no interest.
        return
            [self = shared_from_this(), connection = connection_, handler](const auto&... results) {
                if (self->connection_ == connection && self->state_ != State::over) {
                    handler(results...);
                }
            };
    }

    asio::io_context& io_context_;
    std::chrono::milliseconds connect_timeout_;
    std::chrono::milliseconds lost_timeout_;
    std::int32_t heartbeat_misses_;
    Log& log_;
    RendezvousLink::Handlers handlers_;
    State state_ = State::connecting;

    std::shared_ptr<LinkDialer> dialer_;
    tcp::socket socket_;
    /// One that fell silent, kept open until the next is welcome: its end could arrive before the
    /// beginning of the other, and would count as ours.
    tcp::socket silent_;
    asio::steady_timer timer_;  ///< for a Welcome, and for the end of close()
    asio::steady_timer heartbeat_timer_;
    std::uint64_t connection_ = 0;

    FrameReader reader_{FrameReader::Start::frames, limits::kServerFrameBytesMax};
    std::array<char, limits::kAgentReadBytes> input_{};
    std::deque<std::string> output_;
    std::size_t output_bytes_ = 0;
    bool writing_ = false;
    std::optional<std::chrono::milliseconds> heartbeat_interval_;
    std::optional<Clock::time_point> unanswered_since_;
    Clock::time_point join_deadline_;
    bool has_begun_ = false;   ///< a round
    bool final_word_ = false;  ///< Refused or EndJob has come
    std::function<void()> closed_;
};

// ---- connecting

void Connection::start(RendezvousLink::Handlers handlers) {
    handlers_ = std::move(handlers);
    join_deadline_ = Clock::now() + connect_timeout_;
    // Weak: the dialer is this connection's own, and may be in the middle of an attempt at its end.
    const std::weak_ptr<Connection> weak = weak_from_this();
    dialer_->set_handlers(
        {[weak](tcp::socket socket) {
             if (const auto self = weak.lock()) {
                 self->on_connected(std::move(socket));
             }
         },
         [weak](const Error& error) {
             if (const auto self = weak.lock()) {
                 self->on_given_up(error);
             }
         }}
    );
    asio::post(io_context_, guarded([this] { dialer_->begin(connect_timeout_); }));
}

void Connection::on_connected(tcp::socket socket) {
    ++connection_;
    socket_ = std::move(socket);
    timer_.expires_at(dialer_->at_most(limits::kJoinMessageTimeout));
    timer_.async_wait(guarded([this](const error_code& expired) {
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
    unanswered_since_.reset();
    writing_ = false;
    output_.clear();
    output_.push_back(agent_opening());
    output_bytes_ = output_.back().size();
    write();
    read();
    const std::string local = socket_.local_endpoint(ignored).address().to_string();
    log_.debug("rendezvous link: connected to {} from {}", dialer_->target(), local);
    const auto handler = handlers_.on_connected;
    if (handler) {
        handler(local);
    }
}

void Connection::on_given_up(const Error& error) {
    state_ = State::over;
    close_sockets();
    const auto handler = std::exchange(handlers_, {}).on_lost;
    if (handler) {
        handler(error);
    }
}

/// Before the first round the job's join time-out runs too.
std::chrono::milliseconds Connection::time_to_come_back() const {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(join_deadline_ - Clock::now());
    return has_begun_ ? lost_timeout_
                      : std::clamp(left, std::chrono::milliseconds(0), lost_timeout_);
}

/// The connection broke after it had been up.
void Connection::lose(const Error& reason, std::optional<LinkDialer::Haste> haste) {
    close_socket();
    if (state_ == State::closing) {
        finish_close();
        return;
    }
    const bool was_welcome = heartbeat_interval_.has_value();
    heartbeat_interval_.reset();
    if (final_word_) {
        state_ = State::over;
    } else {
        state_ = State::connecting;
        if (was_welcome) {
            dialer_->begin(time_to_come_back(), reason.context, haste);
        } else {
            dialer_->retry(reason.context);
        }
        if (state_ == State::over) {
            return;
        }
    }
    log_.debug("rendezvous link: {} lost: {}", dialer_->target(), reason.context);
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
                lose(from_error_code(
                    error, fmt::format("read from the rendezvous at {}", dialer_->target())
                ));
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
    unanswered_since_.reset();
    reader_.push(std::string_view{input_.data(), size});
    const std::uint64_t connection = connection_;
    while (state_ == State::up && connection_ == connection) {
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
                    dialer_->target(),
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
        on_welcome(*welcome);
    }
    if (std::holds_alternative<Refused>(message)) {
        timer_.cancel();
        dialer_->stop();
    }
    has_begun_ = has_begun_ || std::holds_alternative<BeginRound>(message);
    if (message == ServerMessage{Ack{}}) {
        return true;  // the answer to a heartbeat, which is ours
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

void Connection::on_welcome(const Welcome& welcome) {
    timer_.cancel();
    dialer_->settle();
    error_code ignored;
    silent_.close(ignored);
    const bool first = !heartbeat_interval_.has_value();
    heartbeat_interval_ = std::max(welcome.heartbeat_interval, limits::kHeartbeatIntervalMin);
    const auto unacknowledged = *heartbeat_interval_ * kUnacknowledgedHeartbeats;
    const auto milliseconds = static_cast<unsigned int>(unacknowledged.count());
    static_cast<void>(::setsockopt(
        socket_.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds
    ));
    if (first) {
        beat();
    }
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
    const Clock::time_point due = Clock::now() + *heartbeat_interval_ / kBeatsPerInterval;
    heartbeat_timer_.expires_at(due);
    heartbeat_timer_.async_wait(guarded([this, due](const error_code& error) {
        if (!error && state_ == State::up && heartbeat_interval_) {
            on_beat(due);
        }
    }));
}

void Connection::on_beat(Clock::time_point due) {
    const Clock::time_point now = Clock::now();
    if (now - due > *heartbeat_interval_) {
        unanswered_since_.reset();  // it was us who stood still: what came has not been read yet
    }
    if (unanswered_since_ && now - *unanswered_since_ >= patience()) {
        doubt();
        return;
    }
    if (!unanswered_since_) {
        unanswered_since_ = now;
    }
    if (output_.empty()) {  // else what is queued says as much
        enqueue(Heartbeat{});
    }
    beat();
}

std::chrono::milliseconds Connection::patience() const {
    return std::max(*heartbeat_interval_ * heartbeat_misses_ / 2, limits::kLinkDoubtMin);
}

/// Nothing comes any more.
void Connection::doubt() {
    const double seconds = std::chrono::duration<double>(Clock::now() - *unanswered_since_).count();
    const LinkDialer::Haste haste{
        .attempt =
            std::max(*heartbeat_interval_ / kAttemptsPerInterval, limits::kConnectBackoffMin),
        .time = *heartbeat_interval_ * heartbeat_misses_,
    };
    error_code ignored;
    silent_.close(ignored);
    socket_.cancel(ignored);
    silent_ = std::move(socket_);
    socket_ = tcp::socket{io_context_};
    lose(
        Error{Errc::timed_out, fmt::format("no answer to heartbeats for {:.1f} s", seconds)}, haste
    );
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
    timer_.expires_after(limits::kLinkCloseTimeout);
    timer_.async_wait(guarded([this](const error_code& error) {
        if (!error) {
            finish_close();
        }
    }));
    write();
}

void Connection::finish_close() {
    state_ = State::over;
    close_sockets();
    dialer_->stop();
    auto done = std::exchange(closed_, nullptr);
    if (done) {
        asio::post(io_context_, std::move(done));
    }
}

void Connection::abandon() {
    handlers_ = {};
    if (state_ != State::closing) {  // else close() finishes what it began
        state_ = State::over;
        close_sockets();
        dialer_->stop();
    }
}

void Connection::close_sockets() {
    close_socket();
    error_code ignored;
    silent_.close(ignored);
}

void Connection::close_socket() {
    ++connection_;
    timer_.cancel();
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
