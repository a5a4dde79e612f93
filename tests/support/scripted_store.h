// A store that misbehaves as a test says: bare sockets on loopback, each connection served by a
// function in a thread of its own, which ends when its descriptor has been shut down.
#pragma once

#include "rendezvous/client.h"

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace ddprun {

class ScriptedStore {
public:
    using Serve = std::function<void(int fd)>;

    /// Listens on `address`, numeric, of either family. `port` 0: a free one.
    explicit ScriptedStore(
        Serve serve, const std::string& address = "127.0.0.1", std::uint16_t port = 0
    );
    ScriptedStore(const ScriptedStore&) = delete;
    ScriptedStore& operator=(const ScriptedStore&) = delete;
    ~ScriptedStore();

    /// For a client of it: time-outs of ten seconds.
    [[nodiscard]] StoreClientOptions options() const;

    /// Ends those that there are; further ones are taken.
    void end_connections();

    /// So far.
    [[nodiscard]] int accepted() const { return accepted_; }

    /// Reads VALIDATE and PING and answers as a store does; false when the client has gone.
    static bool greet(int fd);

    /// Takes in whatever comes, answers nothing.
    static void swallow(int fd);

    /// Exactly these many bytes; empty when the client has gone.
    static std::string receive(int fd, std::size_t count);

    /// False when the client has gone.
    static bool send(int fd, std::string_view bytes);

private:
    void accept_all();

    Serve serve_;
    std::string address_;
    int listening_ = -1;
    std::uint16_t port_ = 0;
    std::atomic<int> accepted_ = 0;
    std::mutex mutex_;
    bool is_ending_ = false;        ///< guarded by mutex_
    std::vector<int> open_;         ///< guarded by mutex_; closed by the destructor
    std::vector<std::thread> all_;  ///< guarded by mutex_
    std::thread accepting_;
};

/// A loopback port at which nobody listens, and nobody else will while this lives.
class ClosedPort {
public:
    ClosedPort();
    ClosedPort(const ClosedPort&) = delete;
    ClosedPort& operator=(const ClosedPort&) = delete;
    ~ClosedPort();

    [[nodiscard]] std::uint16_t number() const { return number_; }

private:
    int fd_ = -1;
    std::uint16_t number_ = 0;
};

}  // namespace ddprun
