#include "rendezvous/listen_socket.h"

#include <boost/asio/ip/v6_only.hpp>
#include <fmt/format.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

namespace ddprun {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

/// What accepted connections inherit. Replies must not wait for acknowledgements; a peer that has
/// vanished without a word must not stay for ever. The server works without either.
void set_inherited_options(int fd) {
    struct Option {
        int level;
        int name;
        int value;
    };

    constexpr std::array<Option, 5> kOptions{{
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 60},
        {IPPROTO_TCP, TCP_KEEPINTVL, 15},
        {IPPROTO_TCP, TCP_KEEPCNT, 4},
    }};
    for (const Option& option : kOptions) {
        static_cast<void>(
            ::setsockopt(fd, option.level, option.name, &option.value, sizeof option.value)
        );
    }
}

Result<tcp::acceptor> listen_at(
    asio::io_context& io_context, const tcp::endpoint& endpoint, bool dual_stack
) {
    const auto failed = [&](int error_number) -> tl::unexpected<Error> {
        Error error = from_errno(error_number, fmt::format("listen on {}", text_of(endpoint)));
        if (error_number == EADDRINUSE) {
            error.code = Errc::refused;
        }
        return fail(std::move(error));
    };
    const int fd =
        ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return failed(errno);
    }
    const int on = 1;
    const int only_v6 = dual_stack ? 0 : 1;
    // SO_REUSEADDR lets a restarted server have its port back while old connections time out.
    bool good = ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0;
    if (endpoint.address().is_v6()) {
        good = good && ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof only_v6) == 0;
    }
    set_inherited_options(fd);
    good = good && ::bind(fd, endpoint.data(), static_cast<socklen_t>(endpoint.size())) == 0 &&
           ::listen(fd, SOMAXCONN) == 0;
    if (!good) {
        const int error_number = errno;
        ::close(fd);
        return failed(error_number);
    }
    tcp::acceptor acceptor{io_context};
    error_code error;
    acceptor.assign(endpoint.protocol(), fd, error);
    if (error) {
        ::close(fd);
        return failed(error.value());
    }
    return acceptor;
}

Result<std::vector<tcp::acceptor>> listen_everywhere(asio::io_context& io_context, Port port) {
    std::vector<tcp::acceptor> acceptors;
    auto dual = listen_at(io_context, {asio::ip::address_v6::any(), port.value()}, true);
    if (!dual && dual.error().code == Errc::refused) {
        return fail(dual.error());
    }
    if (dual) {
        acceptors.push_back(std::move(*dual));
        return acceptors;
    }
    auto v4 = listen_at(io_context, {asio::ip::address_v4::any(), port.value()}, false);
    if (!v4) {
        return fail(v4.error());
    }
    acceptors.push_back(std::move(*v4));
    return acceptors;
}

}  // namespace

std::string text_of(const tcp::endpoint& endpoint) {
    asio::ip::address address = endpoint.address();
    if (address.is_v6() && address.to_v6().is_v4_mapped()) {
        address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
    }
    const std::string text = address.to_string();
    return address.is_v6() ? fmt::format("[{}]:{}", text, endpoint.port())
                           : fmt::format("{}:{}", text, endpoint.port());
}

Result<std::vector<tcp::acceptor>> listen_on(
    asio::io_context& io_context, const std::vector<std::string>& addresses, Port port
) {
    if (addresses.empty()) {
        return listen_everywhere(io_context, port);
    }
    std::vector<tcp::acceptor> acceptors;
    std::uint16_t chosen = port.value();
    for (const std::string& text : addresses) {
        error_code error;
        const asio::ip::address address = asio::ip::make_address(text, error);
        if (error) {
            return fail(
                Errc::invalid_argument, fmt::format("listen on {}: not a numeric address", text)
            );
        }
        auto acceptor = listen_at(io_context, {address, chosen}, false);
        if (!acceptor) {
            return fail(acceptor.error());
        }
        chosen = acceptor->local_endpoint(error).port();
        acceptors.push_back(std::move(*acceptor));
    }
    return acceptors;
}

Result<std::vector<tcp::acceptor>> listen_in_range(
    asio::io_context& io_context, const std::vector<std::string>& addresses, const PortRange& range
) {
    for (std::uint32_t port = range.first.value(); port <= range.last.value(); ++port) {
        auto acceptors = listen_on(io_context, addresses, Port{static_cast<std::uint16_t>(port)});
        if (acceptors || acceptors.error().code != Errc::refused) {
            return acceptors;
        }
    }
    return fail(
        Errc::refused,
        fmt::format(
            "listen on {}: every port from {} to {} is in use, give a larger --port_range",
            addresses.empty() ? "every interface" : addresses.front(),
            range.first,
            range.last
        )
    );
}

Result<std::vector<tcp::acceptor>> adopt_listening(
    asio::io_context& io_context, const std::vector<int>& descriptors
) {
    std::vector<tcp::acceptor> acceptors;
    for (const int fd : descriptors) {
        int listens = 0;
        socklen_t size = sizeof listens;
        sockaddr_storage address{};
        socklen_t address_size = sizeof address;
        // NOLINTNEXTLINE(cppcoreguidelines-pro-type-cstyle-cast): the socket interface's way
        auto* generic = reinterpret_cast<sockaddr*>(&address);
        const bool is_listening =
            ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0 &&
            ::getsockname(fd, generic, &address_size) == 0;
        if (!is_listening || (address.ss_family != AF_INET && address.ss_family != AF_INET6)) {
            return fail(
                Errc::invalid_argument,
                fmt::format("descriptor {} that was handed down is no listening TCP socket", fd)
            );
        }
        static_cast<void>(::fcntl(fd, F_SETFD, FD_CLOEXEC));
        static_cast<void>(::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK));
        set_inherited_options(fd);
        tcp::acceptor acceptor{io_context};
        error_code error;
        acceptor.assign(address.ss_family == AF_INET ? tcp::v4() : tcp::v6(), fd, error);
        if (error) {
            return fail(
                Errc::io_error, fmt::format("take over descriptor {}: {}", fd, error.message())
            );
        }
        acceptors.push_back(std::move(acceptor));
    }
    return acceptors;
}

Result<Accepted> accept_from(tcp::acceptor& acceptor) {
    tcp::endpoint peer;
    auto size = static_cast<socklen_t>(peer.capacity());
    const int fd =
        ::accept4(acceptor.native_handle(), peer.data(), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        switch (errno) {
            case EMFILE:
            case ENFILE:
            case ENOBUFS:
            case ENOMEM:
                return fail(Errc::limit_exceeded, fmt::format("accept: {}", std::strerror(errno)));
            case EINTR:
            case ECONNABORTED:
            case EPROTO: return fail(Errc::connection_lost, "accept: the peer has gone");
            default: return fail(Errc::timed_out, "accept: no connection is waiting");
        }
    }
    peer.resize(size);
    return Accepted{UniqueFd{fd}, peer};
}

void raise_descriptor_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        // Where it is refused the old limit stands, and connections above it are turned away.
        static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
    }
}

}  // namespace ddprun
