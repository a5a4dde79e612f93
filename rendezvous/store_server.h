// The store on a TCP port: an Asio shell around KvState, one per worker round or daemon, any number
// in a process. One port, three dialects, told apart by the first bytes: TCPStore clients are
// served here, agents (kAgentMagic) are handed over to whoever wants them, an HTTP request gets a
// short answer, everything else is closed. A connection that sends garbage, stalls in the middle of
// a request, doesn't read or floods is closed alone, with a logged reason.
//
// Everything happens on the io_context's one thread. Sockets are watched by a Readiness. Input goes
// through one buffer of the server and is kept only while a request is partial. Deadlines of a kind
// are all equally long, so each kind is a queue in order of time and one timer serves them all.
// Destroying the server closes everything at once; stop() first writes what is due.
#pragma once

#include "proto/limits.h"
#include "proto/log.h"
#include "proto/result.h"
#include "proto/types.h"
#include "rendezvous/kv_state.h"
#include "rendezvous/listen_socket.h"
#include "rendezvous/store_deadlines.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ddprun {

struct StoreServerOptions {
    using Handover = std::function<void(boost::asio::ip::tcp::socket, std::string first_bytes)>;

    /// Numeric addresses to listen on, all at the same port. Empty: every interface, both families.
    std::vector<std::string> addresses;
    Port port{0};
    std::optional<PortRange> port_range{};  ///< where `port` is 0: which ports may be taken
    std::vector<int> listening{};  ///< sockets that listen already, instead of addresses and port
    bool serve_store = true;       ///< false: an endpoint for agents only
    /// Gets each connection that begins with the agent protocol's magic, with the bytes read so
    /// far.
    Handover on_agent;
    /// Gets each connection that begins with an HTTP method; absent: a short answer says what this
    /// port is.
    Handover on_http;
    StoreDeadlines deadlines;
    KvLimits kv_limits;
    std::size_t connections_max = limits::kStoreConnectionsMax;
    std::size_t unvalidated_max = limits::kUnvalidatedConnectionsMax;
    /// Of all clients together; above it those that hold more than their share are closed.
    std::size_t partial_bytes_max = limits::kPartialBytesMax;
    std::size_t unsent_bytes_max = limits::kUnsentBytesMax;
};

struct StoreCounters {
    std::size_t connections = 0;
    std::size_t unvalidated = 0;
    std::size_t partial_bytes = 0;  ///< of requests that aren't whole yet
    std::size_t unsent_bytes = 0;   ///< of replies that clients haven't taken
    std::uint64_t accepted = 0;
    std::uint64_t closed_handshake = 0;  ///< too slow to say what they are, or not this protocol
    std::uint64_t closed_offence = 0;    ///< beyond a limit, malformed or senseless requests
    std::uint64_t closed_stalled = 0;    ///< no progress in a request or a reply
    std::uint64_t refused_full = 0;      ///< too many connections
    std::uint64_t handed_over = 0;       ///< agents, and HTTP clients where somebody wants them
    std::size_t turn_requests_most = 0;  ///< of one client in one turn of the loop
    std::size_t turn_bytes_longest =
        0;  ///< most bytes handled for one client in one turn of the loop
    std::size_t turn_replies_longest = 0;  ///< most bytes of replies made in one such turn
};

class StoreServer {
public:
    /// Binds and listens. Errors name address and port; a port in use says so.
    [[nodiscard]] static Result<std::unique_ptr<StoreServer>> listen(
        boost::asio::io_context& io_context, StoreServerOptions options, Log& log
    );

    StoreServer(const StoreServer&) = delete;
    StoreServer& operator=(const StoreServer&) = delete;
    ~StoreServer();

    [[nodiscard]] Port port() const;

    /// Numeric address of the first listening socket, in brackets for IPv6.
    [[nodiscard]] std::string address() const;

    [[nodiscard]] const StoreCounters& counters() const;
    [[nodiscard]] const KvCounters& kv_counters() const;

    /// For a server whose port is a store of one round after another: closes all store clients and
    /// forgets all keys; from now on only clients from these addresses get in.
    void begin_round(std::vector<std::string> addresses);

    /// Listens no more; closes clients that wait, writes the replies that are due (within
    /// deadlines.stop), then calls `done` from the loop: no connection is left.
    void stop(std::function<void()> done);

    class Implementation;

private:
    explicit StoreServer(std::shared_ptr<Implementation> implementation);

    std::shared_ptr<Implementation> implementation_;
};

}  // namespace ddprun
