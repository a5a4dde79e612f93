// Listening and accepting with close-on-exec set from the first instant, which Asio doesn't do: a
// worker that inherited a listening socket would keep its port busy after the agent's death.
#pragma once

#include "proto/result.h"
#include "proto/types.h"
#include "rendezvous/unique_fd.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <string>
#include <vector>

namespace ddprun {

/// Ports from `first` to `last`, both included.
struct PortRange {
    Port first;
    Port last;

    friend bool operator==(const PortRange&, const PortRange&) = default;
};

/// One acceptor for each numeric address, all at the same port (0: a free one). No address: every
/// interface, both families where the machine has IPv6. Errors name address and port; Errc::refused
/// is a port that is in use.
[[nodiscard]] Result<std::vector<boost::asio::ip::tcp::acceptor>> listen_on(
    boost::asio::io_context& io_context, const std::vector<std::string>& addresses, Port port
);

/// The same at the first port of the range that is free on all addresses. Errc::refused: none is.
[[nodiscard]] Result<std::vector<boost::asio::ip::tcp::acceptor>> listen_in_range(
    boost::asio::io_context& io_context,
    const std::vector<std::string>& addresses,
    const PortRange& range
);

/// Takes over sockets that listen already, as a service manager hands them down.
[[nodiscard]] Result<std::vector<boost::asio::ip::tcp::acceptor>> adopt_listening(
    boost::asio::io_context& io_context, const std::vector<int>& descriptors
);

/// "ADDRESS:PORT" in numbers, "[ADDRESS]:PORT" for IPv6.
[[nodiscard]] std::string text_of(const boost::asio::ip::tcp::endpoint& endpoint);

struct Accepted {
    UniqueFd socket;
    boost::asio::ip::tcp::endpoint peer;
};

/// The next waiting connection, non-blocking and without delay (TCP_NODELAY). Errc::timed_out: none
/// is waiting; Errc::limit_exceeded: no descriptor is left.
[[nodiscard]] Result<Accepted> accept_from(boost::asio::ip::tcp::acceptor& acceptor);

/// Raises the soft limit of open descriptors to the hard one.
void raise_descriptor_limit();

}  // namespace ddprun
