#include "rendezvous/store_connection.h"

#include "rendezvous/opening.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

namespace ddprun {

using Kind = DeadlineQueues::Kind;

namespace {

constexpr std::size_t kGatherMax = 64;  // pieces of one write, well below IOV_MAX
constexpr std::string_view kHttpAnswer =
    "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    "This port speaks PyTorch's TCPStore protocol, not HTTP.\n";

/// Sends what the socket takes of the first pieces; what send() returns.
ssize_t send_front(int fd, const ReplyBuffer& replies) {
    if (const std::string_view only = replies.only_piece(); !only.empty()) {
        return ::send(fd, only.data(), only.size(), MSG_NOSIGNAL);
    }
    std::array<iovec, kGatherMax> pieces{};
    msghdr message{};
    message.msg_iov = pieces.data();
    for (const std::string_view view : replies.front(kGatherMax)) {
        // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): iovec is for reading, too
        pieces[message.msg_iovlen++] = {const_cast<char*>(view.data()), view.size()};
    }
    return ::sendmsg(fd, &message, MSG_NOSIGNAL);
}

}  // namespace

StoreConnection::StoreConnection(Accepted accepted, ClientId id, StoreConnectionHost& host)
    : socket_(std::move(accepted.socket)),
      id_(id),
      peer_(accepted.peer),
      host_(&host) {}

void StoreConnection::start() {
    host_->deadlines().set(*this, Kind::handshake);
    wanted_.to_read = true;
    if (!host_->readiness().add(socket_.get(), *this, wanted_)) {
        close("the kernel has no room to watch one more socket");
    }
}

void StoreConnection::on_ready(Ready ready) {
    if (ready.to_write && is_writing_) {
        on_writable();
    }
    if (ready.to_read && host_ != nullptr && wanted_.to_read) {
        on_readable();
    }
    want();
}

/// Asks to be told of what is due now, where that isn't what it was. One of both is due while it is
/// open, so that an end is noticed.
void StoreConnection::want() {
    if (host_ == nullptr) {
        return;
    }
    const Ready due{!is_paused_ && !is_finishing_, is_writing_};
    if (due != wanted_) {
        wanted_ = due;
        host_->readiness().change(socket_.get(), *this, due);
    }
}

/// Reads once: if there is more it comes back after others had their turn.
void StoreConnection::on_readable() {
    const std::span<char> buffer = host_->read_buffer();
    const ssize_t count = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (count <= 0) {
        finish();  // a half-close: what is due is written, a wait is over
        return;
    }
    turn_requests_ = 0;
    turn_replies_ = 0;
    const auto bytes = static_cast<std::size_t>(count);
    StoreCounters& counters = host_->counters();
    counters.turn_bytes_longest = std::max(counters.turn_bytes_longest, bytes);
    take({buffer.data(), bytes});
}

bool StoreConnection::is_full() const {
    return unsent_.size() > host_->options().unsent_bytes_max;
}

void StoreConnection::take(std::string_view bytes) {
    if (partial_.empty()) {
        const std::size_t used = handle_requests(bytes);
        if (host_ == nullptr) {
            return;
        }
        keep_partial(bytes.substr(used));
    } else {
        host_->counters().partial_bytes += bytes.size();
        partial_.append(bytes);
        const std::size_t used = handle_requests(partial_);
        if (host_ == nullptr) {
            return;
        }
        if (used > 0) {
            host_->counters().partial_bytes -= partial_.size();
            std::string rest;
            rest.swap(partial_);  // an assignment would keep the memory of the longest request
            keep_partial(std::string_view{rest}.substr(used));
        } else {
            update_partial_deadlines(true);
        }
    }
    if (holds_too_much()) {
        ++host_->counters().closed_offence;
        close_offender("too much memory for requests that aren't whole");
        return;
    }
    flush();
    if (host_ != nullptr) {
        host_->note_memory();
    }
    if (host_ == nullptr) {
        return;
    }
    is_paused_ = is_paused_ || is_full();
    if (is_paused_) {
        wait_writable();  // the rest has its turn after other clients, or when it has read
    }
}

void StoreConnection::keep_partial(std::string_view rest) {
    partial_.assign(rest);
    host_->counters().partial_bytes += rest.size();
    update_partial_deadlines(!rest.empty());
}

/// All clients together do, and this one has a greater share of it than most.
bool StoreConnection::holds_too_much() const {
    const StoreCounters& counters = host_->counters();
    const std::size_t bytes_max = host_->options().partial_bytes_max;
    return counters.partial_bytes > bytes_max && partial_.size() > bytes_max / counters.connections;
}

void StoreConnection::update_partial_deadlines(bool is_partial) {
    if (!is_validated_) {
        return;  // the handshake's deadline stands
    }
    if (is_partial) {
        expect_progress();
        if (!has_deadline(Kind::request)) {
            host_->deadlines().set(*this, Kind::request);
        }
        return;
    }
    host_->deadlines().clear(*this, Kind::request);
    if (unsent_.empty()) {
        host_->deadlines().clear(*this, Kind::progress);
    }
}

/// Handles all whole requests at the front; returns how many bytes they were.
std::size_t StoreConnection::handle_requests(std::string_view bytes) {
    std::size_t used = 0;
    if (bytes.empty()) {
        return used;
    }
    if (!is_validated_ && !handle_opening(bytes)) {
        return 0;
    }
    while (used < bytes.size()) {
        const std::string_view rest = bytes.substr(used);
        const StoreParser::Status status = parser_.look(rest);
        if (status == StoreParser::Status::incomplete) {
            break;
        }
        if (status == StoreParser::Status::offence) {
            ++host_->counters().closed_offence;
            close_offender(parser_.reason());
            return used;
        }
        const std::size_t size = parser_.size();
        const std::size_t unsent_before = unsent_.size();
        parser_.reset();
        if (!handle_request(rest.substr(0, size))) {
            return used;
        }
        used += size;
        ++turn_requests_;
        turn_replies_ += unsent_.size() - unsent_before;
        if (is_full() || turn_requests_ >= limits::kRequestsPerTurnMax ||
            turn_replies_ >= limits::kReplyBytesPerTurnMax) {
            is_paused_ = true;  // the client reads first, or others are served; the rest is kept
            break;
        }
    }
    StoreCounters& counters = host_->counters();
    counters.turn_requests_most = std::max(counters.turn_requests_most, turn_requests_);
    counters.turn_replies_longest = std::max(counters.turn_replies_longest, turn_replies_);
    return used;
}

/// Which dialect the first bytes are; true when the store's requests follow. What isn't served here
/// is a stranger's.
bool StoreConnection::handle_opening(std::string_view bytes) {
    const StoreServerOptions& options = host_->options();
    const Opening opening = opening_of(bytes);
    if (opening == Opening::incomplete) {
        return false;
    }
    if (opening == Opening::store && options.serve_store) {
        return true;
    }
    if (opening == Opening::agent && options.on_agent) {
        host_->hand_over(*this, options.on_agent, bytes);
    } else if (opening == Opening::http && options.on_http) {
        host_->hand_over(*this, options.on_http, bytes);
    } else if (opening == Opening::http) {
        answer_http();
    } else {
        ++host_->counters().closed_handshake;
        const bool is_client = opening == Opening::wrong_magic && options.serve_store;
        close(is_client ? "wrong magic number" : "neither a store's client nor an agent");
    }
    return false;
}

void StoreConnection::answer_http() {
    ++host_->counters().closed_handshake;
    // Whoever can't be told has gone.
    static_cast<void>(::send(socket_.get(), kHttpAnswer.data(), kHttpAnswer.size(), MSG_NOSIGNAL));
    static_cast<void>(::shutdown(socket_.get(), SHUT_WR));
    close("an HTTP request at the store's port");
}

bool StoreConnection::handle_request(std::string_view request) {
    KvEffects effects{unsent_};
    const bool is_first = !is_validated_;
    if (is_first && request.front() != '\0') {
        ++host_->counters().closed_handshake;
        close("the first request is no VALIDATE");
        return false;
    }
    host_->apply(id_, request, effects);
    if (!effects.offence.empty()) {
        ++(is_first ? host_->counters().closed_handshake : host_->counters().closed_offence);
        close_offender(effects.offence);
        return false;
    }
    if (is_first) {
        is_validated_ = true;
        --host_->counters().unvalidated;
        host_->deadlines().clear(*this, Kind::handshake);
    }
    return true;
}

void StoreConnection::release() {
    unsent_.byte(kStopWaiting);
}

void StoreConnection::flush() {
    if (host_ == nullptr) {
        return;
    }
    const bool is_all_written = !is_writing_ && write_some();
    if (host_ == nullptr) {
        return;
    }
    count_unsent();
    if (!is_all_written) {
        wait_writable();
        return;
    }
    if (is_finishing_) {
        close({});
    } else if (partial_.empty()) {
        host_->deadlines().clear(*this, Kind::progress);
    }
}

void StoreConnection::count_unsent() {
    host_->counters().unsent_bytes += unsent_.size();
    host_->counters().unsent_bytes -= unsent_counted_;
    unsent_counted_ = unsent_.size();
}

/// Writes as much as the socket takes; true when nothing is left.
bool StoreConnection::write_some() {
    while (!unsent_.empty()) {
        const ssize_t count = send_front(socket_.get(), unsent_);
        if (count < 0 && errno == EAGAIN) {
            return false;
        }
        if (count < 0 && errno != EINTR) {
            close({});
            return false;
        }
        unsent_.consume(count < 0 ? 0 : static_cast<std::size_t>(count));
    }
    return true;
}

void StoreConnection::wait_writable() {
    if (is_writing_) {
        return;
    }
    is_writing_ = true;
    unacknowledged_.reset();  // it may have become more
    if (!has_deadline(Kind::progress)) {
        expect_progress();
    }
    want();
}

void StoreConnection::expect_progress() {
    looks_ = 0;
    host_->deadlines().set(*this, Kind::progress);
}

bool StoreConnection::is_going_on() {
    const int looks = has_moved() ? 0 : looks_ + 1;
    if (looks >= limits::kProgressLooks) {
        return false;
    }
    expect_progress();
    looks_ = looks;
    return true;
}

/// The client has taken some of its replies since the last look: a slow one takes long to make so
/// much room in the kernel's buffer that we can write again.
bool StoreConnection::has_moved() {
    int bytes = 0;
    if (unsent_.empty() || ::ioctl(socket_.get(), SIOCOUTQ, &bytes) != 0) {
        return false;
    }
    const std::optional<int> before = std::exchange(unacknowledged_, bytes);
    return before && bytes < *before;
}

void StoreConnection::on_writable() {
    is_writing_ = false;
    expect_progress();
    flush();
    if (host_ != nullptr) {
        host_->note_memory();
    }
    if (host_ == nullptr || !is_paused_ || is_full()) {
        return;
    }
    is_paused_ = false;
    turn_requests_ = 0;
    turn_replies_ = 0;
    take({});  // requests that were kept while the client didn't read go first
}

/// The requests before the offence were good: their replies go first, as far as the socket takes
/// them.
void StoreConnection::close_offender(std::string_view reason) {
    static_cast<void>(write_some());
    close(reason);
}

Accepted StoreConnection::take_socket() {
    host_->readiness().remove(socket_.get(), *this);
    return {std::move(socket_), peer_};
}

void StoreConnection::finish() {
    if (host_ == nullptr) {
        return;
    }
    is_finishing_ = true;
    if (unsent_.empty()) {
        close({});
        return;
    }
    flush();
    want();
}

void StoreConnection::close(std::string_view reason) {
    if (host_ == nullptr) {
        return;
    }
    StoreConnectionHost& host = *std::exchange(host_, nullptr);
    StoreCounters& counters = host.counters();
    counters.partial_bytes -= partial_.size();
    counters.unsent_bytes -= unsent_counted_;
    if (socket_.valid()) {
        host.readiness().remove(socket_.get(), *this);
        socket_.reset();
    }
    std::string{}.swap(partial_);
    unsent_.clear();
    host.closed(*this, reason);
}

}  // namespace ddprun
