#include "rendezvous/agent_session.h"

#include "proto/limits.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

#include <fcntl.h>

#include <utility>

namespace ddprun {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

std::string name_of(const asio::ip::tcp::socket& socket) {
    error_code error;
    const auto endpoint = socket.remote_endpoint(error);
    if (error) {
        return "an agent";
    }
    return fmt::format("{}:{}", endpoint.address().to_string(), endpoint.port());
}

}  // namespace

AgentSession::AgentSession(asio::ip::tcp::socket socket, std::weak_ptr<AgentPeerOwner> owner)
    : socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      owner_(std::move(owner)),
      name_(name_of(socket_)),
      reader_(FrameReader::Start::opening, limits::kJoinFrameBytesMax) {
    error_code ignored;
    socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
    static_cast<void>(::fcntl(socket_.native_handle(), F_SETFD, FD_CLOEXEC));
}

void AgentSession::start(std::string first_bytes, std::chrono::milliseconds join_timeout) {
    timer_.expires_after(join_timeout);
    timer_.async_wait([self = shared_from_this()](const error_code& error) {
        if (!error && !self->identity) {
            self->fail_with(Error{Errc::timed_out, "no join came in time"});
        }
    });
    asio::post(socket_.get_executor(), [self = shared_from_this(), bytes = std::move(first_bytes)] {
        self->take_bytes(bytes);
        self->read();
    });
}

void AgentSession::take_bytes(std::string_view bytes) {
    reader_.push(bytes);
    while (!closing_ && !closed_) {
        Result<std::optional<Frame>> frame = reader_.next();
        if (!frame) {
            reject(frame.error());
            return;
        }
        if (!*frame) {
            return;
        }
        const Result<AgentMessage> message = decode_agent_message(**frame);
        if (!message) {
            reject(message.error());
            return;
        }
        const std::shared_ptr<AgentPeerOwner> owner = owner_.lock();
        if (owner == nullptr) {
            shut();
            return;
        }
        owner->on_message(shared_from_this(), *message);
        if (identity) {
            timer_.cancel();
            reader_.set_frame_bytes_max(limits::kAgentFrameBytesMax);
        }
    }
}

void AgentSession::read() {
    if (closed_) {
        return;
    }
    socket_.async_read_some(
        asio::buffer(input_),
        [self = shared_from_this()](const error_code& error, std::size_t size) {
            self->on_read(error, size);
        }
    );
}

void AgentSession::on_read(const error_code& error, std::size_t size) {
    if (closed_) {
        return;
    }
    if (error) {
        fail_with(from_error_code(error, fmt::format("read from {}", name_)));
        return;
    }
    if (!closing_) {  // else: only to see its end
        take_bytes(std::string_view{input_.data(), size});
    }
    read();
}

void AgentSession::reject(const Error& error) {
    send(
        error.code == Errc::version_mismatch ? refused_for_version(error)
                                             : Refused{RefusalReason::malformed, error.context}
    );
    const std::shared_ptr<AgentPeerOwner> owner = owner_.lock();
    close();
    if (owner != nullptr) {
        owner->on_closed(shared_from_this(), error);
    }
}

void AgentSession::send(const ServerMessage& message) {
    if (closing_ || closed_) {
        return;
    }
    std::string bytes;
    encode(message, bytes);
    output_bytes_ += bytes.size();
    if (output_bytes_ > limits::kAgentOutputBytesMax) {
        asio::post(socket_.get_executor(), [self = shared_from_this()] {
            self->fail_with(Error{Errc::limit_exceeded, "it doesn't read what it is sent"});
        });
        return;
    }
    output_.push_back(std::move(bytes));
    write();
}

void AgentSession::write() {
    if (writing_ || closed_) {
        return;
    }
    if (output_.empty()) {
        if (closing_) {
            // The peer reads what was sent and closes; the timer of close() bounds the wait.
            error_code ignored;
            socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
        }
        return;
    }
    writing_ = true;
    asio::async_write(
        socket_,
        asio::buffer(output_.front()),
        [self = shared_from_this()](const error_code& error, std::size_t) {
            self->on_written(error);
        }
    );
}

void AgentSession::on_written(const error_code& error) {
    writing_ = false;
    if (closed_) {
        return;
    }
    if (error) {
        fail_with(from_error_code(error, fmt::format("write to {}", name_)));
        return;
    }
    output_bytes_ -= output_.front().size();
    output_.pop_front();
    write();
}

void AgentSession::close() {
    if (closing_ || closed_) {
        return;
    }
    closing_ = true;
    timer_.expires_after(limits::kLinkCloseTimeout);
    timer_.async_wait([self = shared_from_this()](const error_code& error) {
        if (!error) {
            self->shut();
        }
    });
    write();
}

void AgentSession::fail_with(const Error& reason) {
    if (closed_) {
        return;
    }
    const bool was_closing = closing_;
    shut();
    const std::shared_ptr<AgentPeerOwner> owner = owner_.lock();
    if (owner != nullptr && !was_closing) {
        owner->on_closed(shared_from_this(), reason);
    }
}

void AgentSession::shut() {
    closed_ = true;
    timer_.cancel();
    error_code ignored;
    socket_.close(ignored);
}

}  // namespace ddprun
