// A StoreServer that runs in a thread of its own, for tests of blocking clients.
#pragma once

#include "proto/log.h"
#include "rendezvous/client.h"
#include "rendezvous/store_server.h"

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <memory>
#include <thread>

namespace ddprun {

class StoreThread {
public:
    StoreThread();
    StoreThread(const StoreThread&) = delete;
    StoreThread& operator=(const StoreThread&) = delete;
    ~StoreThread();

    /// A client of this server; connecting must succeed.
    std::unique_ptr<StoreClient> connect();

    /// For a client of this server.
    [[nodiscard]] StoreClientOptions options() const;

    /// Ends the server. options() stay as they were.
    void stop();

    /// Another server with an empty keyspace at the same port.
    void restart();

    /// Returns when that many clients wait for keys.
    void wait_for_waiting_clients(std::size_t count);

    /// Connections so far.
    std::uint64_t accepted();

private:
    void start(Port port);

    NullLog log_;
    std::unique_ptr<boost::asio::io_context> io_context_;
    std::unique_ptr<StoreServer> server_;
    std::thread thread_;
    Port port_{0};
};

}  // namespace ddprun
