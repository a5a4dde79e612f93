// Accepts the connections of a server's listening sockets, some in each turn of the loop. When no
// descriptor is left a connection is turned away with the one that is kept for this: without it the
// connection would stay in the queue and wake the server for ever. One thread, that of the
// io_context. Made by make_shared; no handler is called once its owner has let go.
#pragma once

#include "rendezvous/listen_socket.h"

#include <boost/asio/ip/tcp.hpp>

#include <functional>
#include <memory>
#include <vector>

namespace ddprun {

class ConnectionSource : public std::enable_shared_from_this<ConnectionSource> {
public:
    struct Handlers {
        std::function<void(Accepted)> accepted;
        std::function<void()> turned_away;
    };

    ConnectionSource(std::vector<boost::asio::ip::tcp::acceptor> acceptors, Handlers handlers);

    void start();

    /// Of the first socket.
    [[nodiscard]] const boost::asio::ip::tcp::endpoint& endpoint() const { return endpoint_; }

    void close();

private:
    void wait(boost::asio::ip::tcp::acceptor& acceptor);
    void accept_some(boost::asio::ip::tcp::acceptor& acceptor);
    void turn_away(boost::asio::ip::tcp::acceptor& acceptor);

    std::vector<boost::asio::ip::tcp::acceptor> acceptors_;
    Handlers handlers_;
    boost::asio::ip::tcp::endpoint endpoint_;
    UniqueFd reserve_;
};

}  // namespace ddprun
