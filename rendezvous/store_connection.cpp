#include "rendezvous/store_connection.h"

#include "proto/agent_messages.h"

#include <boost/asio/buffer.hpp>

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

namespace ddprun {

namespace {

using boost::system::error_code;
namespace asio = boost::asio;

constexpr std::size_t kGatherMax = 64;  // pieces of one write, well below IOV_MAX
constexpr std::string_view kHttpAnswer =
    "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    "This port speaks PyTorch's TCPStore protocol, not HTTP.\n";

/// Whether `bytes` begin like an HTTP request: yes, no, or not to be told yet.
std::optional<bool> is_http(std::string_view bytes) {
    constexpr auto kMethods = std::to_array<std::string_view>(
        {"GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "OPTIONS ", "PATCH ", "CONNECT ", "TRACE "}
    );
    bool could_be = false;
    for (const std::string_view method : kMethods) {
        if (bytes.starts_with(method)) {
            return true;
        }
        could_be = could_be || method.starts_with(bytes);
    }
    return could_be ? std::nullopt : std::optional{false};
}

}  // namespace

StoreConnection::StoreConnection(Accepted accepted, ClientId id, StoreConnectionHost& host)
    : socket_(std::move(accepted.socket)),
      id_(id),
      peer_(accepted.peer),
      host_(&host) {}

void StoreConnection::start() {
    host_->set_deadline(*this, StoreConnectionHost::Deadline::handshake);
    wait_readable();
}

void StoreConnection::wait_readable() {
    if (host_ == nullptr || is_reading_ || is_finishing_) {
        return;
    }
    is_reading_ = true;
    auto on_read = [self = shared_from_this()](const error_code& error, std::size_t count) {
        self->is_reading_ = false;
        if (self->host_ == nullptr || self->is_finishing_) {
            return;
        }
        if (error) {
            self->finish();  // a half-close: what is due is written, a wait is over
            return;
        }
        self->on_bytes(count);
    };
    socket_.async_read_some(asio::buffer(first_), std::move(on_read));
}

/// first_ is full: puts it and what follows into the server's buffer; returns how much that is.
std::size_t StoreConnection::fill_up(std::size_t count, bool& is_over) {
    std::string& buffer = host_->read_buffer();
    std::copy_n(first_.begin(), count, buffer.begin());
    error_code error;
    const std::size_t more =
        socket_.read_some(asio::buffer(buffer.data() + count, buffer.size() - count), error);
    is_over = error && error != asio::error::would_block;
    return count + (error ? 0 : more);
}

/// `count` bytes are in first_, and if it is full, perhaps more in the socket.
void StoreConnection::on_bytes(std::size_t count) {
    const std::string& buffer = host_->read_buffer();
    std::size_t turn_bytes = 0;
    turn_requests_ = 0;
    turn_replies_ = 0;
    bool is_over = false;
    bool has_more = count == first_.size();
    std::string_view bytes{first_.data(), count};
    for (int reads = 0; reads < limits::kReadsPerTurnMax; ++reads) {
        if (has_more) {
            bytes = {buffer.data(), fill_up(reads == 0 ? count : 0, is_over)};
            has_more = bytes.size() == buffer.size();
        }
        turn_bytes += bytes.size();
        take(bytes);
        if (host_ == nullptr) {
            return;
        }
        if (is_over && !is_paused_) {  // else the end is read again after what it sent
            finish();
            return;
        }
        if (!has_more || !unsent_.empty() || is_paused_) {
            break;
        }
    }
    StoreCounters& counters = host_->counters();
    counters.turn_bytes_longest = std::max(counters.turn_bytes_longest, turn_bytes);
    read_on();
}

bool StoreConnection::is_full() const {
    return unsent_.size() > host_->options().unsent_bytes_max;
}

/// Reads again: now, or when the client has taken its replies.
void StoreConnection::read_on() {
    is_paused_ = is_paused_ || is_full();
    if (!is_paused_) {
        wait_readable();
    }
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
    flush();
    if (host_ != nullptr) {
        host_->note_memory();
    }
    if (host_ != nullptr && is_paused_) {
        wait_writable();  // the rest has its turn after other clients
    }
}

void StoreConnection::keep_partial(std::string_view rest) {
    partial_.assign(rest);
    host_->counters().partial_bytes += rest.size();
    update_partial_deadlines(!rest.empty());
}

void StoreConnection::update_partial_deadlines(bool is_partial) {
    using enum StoreConnectionHost::Deadline;
    if (!is_validated_) {
        return;  // the handshake's deadline stands
    }
    if (is_partial) {
        host_->set_deadline(*this, progress);
        if (!deadlines[static_cast<std::size_t>(request)].is_set) {
            host_->set_deadline(*this, request);
        }
        return;
    }
    host_->clear_deadline(*this, request);
    if (unsent_.empty()) {
        host_->clear_deadline(*this, progress);
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
            close(parser_.reason());
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

/// Which dialect the first bytes are; true when the store's requests follow.
bool StoreConnection::handle_opening(std::string_view bytes) {
    if (bytes.front() == '\0' && host_->options().serve_store) {
        return is_greeting(bytes);
    }
    if (bytes.front() == kAgentMagic[0] && host_->options().on_agent) {
        host_->hand_over(*this, host_->options().on_agent, bytes);
        return false;
    }
    const std::optional<bool> http = is_http(bytes);
    if (!http) {
        return false;  // more bytes will tell
    }
    if (*http && host_->options().on_http) {
        host_->hand_over(*this, host_->options().on_http, bytes);
        return false;
    }
    if (*http) {
        answer_http();
        return false;
    }
    ++host_->counters().closed_handshake;
    close("neither a store's client nor an agent");
    return false;
}

/// The first bytes are those of a VALIDATE, as far as they go; a wrong one ends the connection at
/// once, whatever might follow it.
bool StoreConnection::is_greeting(std::string_view bytes) {
    std::string greeting;
    encode_request(ValidateRequest{kStoreMagic}, greeting);
    if (bytes.starts_with(greeting) || std::string_view{greeting}.starts_with(bytes)) {
        return true;
    }
    ++host_->counters().closed_handshake;
    close("wrong magic number");
    return false;
}

void StoreConnection::answer_http() {
    ++host_->counters().closed_handshake;
    error_code ignored;  // whoever can't be told has gone
    socket_.write_some(asio::buffer(kHttpAnswer), ignored);
    socket_.shutdown(Socket::shutdown_send, ignored);
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
        close(effects.offence);
        return false;
    }
    if (is_first) {
        is_validated_ = true;
        --host_->counters().unvalidated;
        host_->clear_deadline(*this, StoreConnectionHost::Deadline::handshake);
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
        host_->clear_deadline(*this, StoreConnectionHost::Deadline::progress);
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
        error_code error;
        std::size_t count = 0;
        if (const std::string_view only = unsent_.only_piece(); !only.empty()) {
            count = socket_.write_some(asio::buffer(only), error);
        } else {
            std::vector<asio::const_buffer> buffers;
            for (const std::string_view view : unsent_.front(kGatherMax)) {
                buffers.emplace_back(view.data(), view.size());
            }
            count = socket_.write_some(buffers, error);
        }
        if (error == asio::error::would_block) {
            return false;
        }
        if (error) {
            close({});
            return false;
        }
        unsent_.consume(count);
    }
    return true;
}

void StoreConnection::wait_writable() {
    if (is_writing_) {
        return;
    }
    is_writing_ = true;
    unacknowledged_.reset();  // it may have become more
    if (!deadlines[static_cast<std::size_t>(StoreConnectionHost::Deadline::progress)].is_set) {
        host_->set_deadline(*this, StoreConnectionHost::Deadline::progress);
    }
    socket_.async_wait(Socket::wait_write, [self = shared_from_this()](const error_code& error) {
        self->is_writing_ = false;
        if (!error && self->host_ != nullptr) {
            self->on_writable();
        }
    });
}

bool StoreConnection::has_moved() {
    int bytes = 0;
    if (unsent_.empty() || ::ioctl(socket_.native_handle(), SIOCOUTQ, &bytes) != 0) {
        return false;
    }
    const std::optional<int> before = std::exchange(unacknowledged_, bytes);
    return before && bytes < *before;
}

void StoreConnection::on_writable() {
    host_->set_deadline(*this, StoreConnectionHost::Deadline::progress);
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
    if (host_ != nullptr) {
        read_on();
    }
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
}

void StoreConnection::close(std::string_view reason) {
    if (host_ == nullptr) {
        return;
    }
    StoreConnectionHost& host = *std::exchange(host_, nullptr);
    StoreCounters& counters = host.counters();
    counters.partial_bytes -= partial_.size();
    counters.unsent_bytes -= unsent_counted_;
    error_code ignored;  // closing frees the descriptor whatever it says
    socket_.close(ignored);
    std::string{}.swap(partial_);
    unsent_.clear();
    host.closed(*this, reason);
}

}  // namespace ddprun
