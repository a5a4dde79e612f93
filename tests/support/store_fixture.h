// A StoreServer and raw clients of it in one thread: whatever a client does, the loop runs only
// while a test waits for something, for a bounded time. So counters can be read at any moment and
// nothing has to be slept for.
#pragma once

#include "proto/log.h"
#include "rendezvous/store_server.h"

#include <boost/asio/io_context.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

/// Keeps the lines.
class CaptureLog final : public Log {
public:
    void write(LogLevel, std::string_view line) override { lines.emplace_back(line); }

    [[nodiscard]] bool enabled(LogLevel level) const override { return level != LogLevel::debug; }

    [[nodiscard]] bool has(std::string_view part) const;

    std::vector<std::string> lines;
};

class StoreFixture {
public:
    /// Listens on 127.0.0.1 unless the options say otherwise.
    explicit StoreFixture(StoreServerOptions options = {});

    /// Runs the loop until `condition` holds; false after half a minute.
    bool run_until(const std::function<bool()>& condition);

    /// Runs what is ready now.
    void run_ready();

    [[nodiscard]] const StoreCounters& counters() const { return server->counters(); }

    CaptureLog log;
    boost::asio::io_context io_context{1};
    std::unique_ptr<StoreServer> server;
};

/// A client made of a bare socket.
class RawClient {
public:
    explicit RawClient(StoreFixture& fixture, int receive_buffer_bytes = 0);
    RawClient(RawClient&& other) noexcept;
    RawClient& operator=(RawClient&&) = delete;
    RawClient(const RawClient&) = delete;
    RawClient& operator=(const RawClient&) = delete;
    ~RawClient();

    /// Everything, with the loop running while the server takes it in; false where the server
    /// doesn't take it.
    bool send(std::string_view bytes);

    /// What the kernel takes at once; returns how much that was.
    std::size_t send_some(std::string_view bytes);

    /// VALIDATE and PING, with the answer awaited: the server knows us then.
    void greet();

    /// `count` bytes, or less when the connection ends or half a minute passes.
    std::string receive(std::size_t count);

    /// send() and receive().
    std::string ask(std::string_view bytes, std::size_t reply_bytes);

    /// The server closes the connection within half a minute; what it sent before is dropped.
    bool is_closed_by_server();

    /// The server has nothing for us, after it has done all that it could.
    bool has_silence();

    void close();
    void close_sending();

private:
    StoreFixture& fixture_;
    int fd_;
};

}  // namespace ddprun
