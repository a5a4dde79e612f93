// Where console output goes: a queue in front of our stdout or stderr that never blocks the agent
// and never changes how other holders of the same terminal or pipe see it. O_NONBLOCK belongs to
// the open file description, which we share with our parent, so it is set only on a description
// of our own (opened through /proc/self/fd); where there is none, writes are small and follow
// poll(2). A reader that has gone ends the output and nothing else.
#pragma once

#include "rendezvous/unique_fd.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>

namespace ddprun {

class OutputSink {
public:
    /// `on_room` is called whenever a full queue has room again, and when one that had to wait is
    /// empty.
    OutputSink(boost::asio::io_context& io_context, int fd, std::function<void()> on_room);
    OutputSink(const OutputSink&) = delete;
    OutputSink& operator=(const OutputSink&) = delete;
    ~OutputSink() = default;

    /// To append to; flush() afterwards.
    [[nodiscard]] std::string& buffer() { return queue_; }

    /// Writes what can be written now; the rest follows by itself.
    void flush();

    /// Appends and flushes, but copies only what can't be written now.
    void pass(std::string_view bytes);

    [[nodiscard]] bool full() const;

    [[nodiscard]] bool empty() const { return written_ == queue_.size(); }

    /// The reader has gone, or writing fails for good; what is appended is dropped.
    [[nodiscard]] bool broken() const { return broken_; }

    /// Why it is broken.
    [[nodiscard]] std::error_code reason() const { return reason_; }

    /// Bytes that the reader has taken so far.
    [[nodiscard]] std::uint64_t taken() const { return taken_; }

    /// Drops what is queued and says how many bytes that were.
    std::size_t drop();

private:
    enum class Way : std::uint8_t { nonblocking, socket, blocking, small_steps };

    void choose_way(int fd);
    [[nodiscard]] long write_once(const char* data, std::size_t size) const;
    void wait_for_room();
    void give_up(int error);
    void compact();

    boost::asio::posix::stream_descriptor poller_;  ///< an epoll set that holds the target
    std::function<void()> on_room_;
    UniqueFd own_;  ///< a description of our own, where there is one
    int fd_;
    Way way_ = Way::small_steps;
    std::string queue_;
    std::size_t written_ = 0;
    std::uint64_t taken_ = 0;
    bool waiting_ = false;
    bool was_full_ = false;
    bool has_waited_ = false;
    bool broken_ = false;
    std::error_code reason_;
};

}  // namespace ddprun
