#include "rendezvous/connection_source.h"

#include "proto/limits.h"

#include <fcntl.h>

#include <utility>

namespace ddprun {

using boost::asio::ip::tcp;
using boost::system::error_code;

namespace {

UniqueFd spare_descriptor() {
    return UniqueFd{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
}

}  // namespace

ConnectionSource::ConnectionSource(std::vector<tcp::acceptor> acceptors, Handlers handlers)
    : acceptors_(std::move(acceptors)),
      handlers_(std::move(handlers)),
      reserve_(spare_descriptor()) {
    error_code ignored;  // a bound socket has an address
    endpoint_ = acceptors_.front().local_endpoint(ignored);
}

void ConnectionSource::start() {
    for (tcp::acceptor& acceptor : acceptors_) {
        wait(acceptor);
    }
}

void ConnectionSource::close() {
    for (tcp::acceptor& acceptor : acceptors_) {
        error_code ignored;  // closing frees the descriptor whatever it says
        acceptor.close(ignored);
    }
}

void ConnectionSource::wait(tcp::acceptor& acceptor) {
    acceptor.async_wait(
        tcp::acceptor::wait_read,
        [weak = weak_from_this(), &acceptor](const error_code& error) {
            const auto self = weak.lock();
            if (error || self == nullptr || !acceptor.is_open()) {
                return;
            }
            self->accept_some(acceptor);
            if (acceptor.is_open()) {
                self->wait(acceptor);
            }
        }
    );
}

void ConnectionSource::accept_some(tcp::acceptor& acceptor) {
    for (int accepts = 0; accepts < limits::kAcceptsPerTurnMax; ++accepts) {
        auto accepted = accept_from(acceptor);
        if (!accepted) {
            if (accepted.error().code == Errc::connection_lost) {
                continue;
            }
            if (accepted.error().code == Errc::limit_exceeded) {
                turn_away(acceptor);
            }
            return;
        }
        handlers_.accepted(std::move(*accepted));
    }
}

void ConnectionSource::turn_away(tcp::acceptor& acceptor) {
    if (reserve_.valid()) {
        reserve_.reset();
        static_cast<void>(accept_from(acceptor));  // closed at once by its destructor
        reserve_ = spare_descriptor();
    }
    handlers_.turned_away();
}

}  // namespace ddprun
