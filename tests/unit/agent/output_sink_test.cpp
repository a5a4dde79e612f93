#include "agent/output_sink.h"

#include "proto/limits.h"

#include <boost/asio/io_context.hpp>
#include <doctest/doctest.h>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <system_error>

namespace ddprun {
namespace {

/// A sink in front of a pipe that holds little, and the pipe's reader.
struct SlowReader {
    SlowReader() : previous(::signal(SIGPIPE, SIG_IGN)) {  // as ddprun has it
        int fds[2];
        REQUIRE(::pipe2(fds, O_CLOEXEC) == 0);
        reading.reset(fds[0]);
        writing.reset(fds[1]);
        REQUIRE(::fcntl(fds[1], F_SETPIPE_SZ, 4096) > 0);
        REQUIRE(::fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0);
        sink = std::make_unique<OutputSink>(io_context, fds[1], [this] { ++told; });
    }

    SlowReader(const SlowReader&) = delete;
    SlowReader& operator=(const SlowReader&) = delete;

    ~SlowReader() { ::signal(SIGPIPE, previous); }

    /// Reads and lets the sink write until nothing more comes.
    std::string read_all() {
        std::string all;
        char bytes[4096];
        for (;;) {
            const ssize_t size = ::read(reading.get(), bytes, sizeof bytes);
            if (size <= 0) {
                return all;
            }
            all.append(bytes, static_cast<std::size_t>(size));
            io_context.poll();
            io_context.restart();
        }
    }

    void (*previous)(int);
    boost::asio::io_context io_context;
    UniqueFd reading;
    UniqueFd writing;
    int told = 0;
    std::unique_ptr<OutputSink> sink;
};

TEST_SUITE_BEGIN("agent/output_sink");

TEST_CASE("what a slow reader takes late is whole, and its end is told though it was never full") {
    SlowReader slow;
    const std::string text(limits::kOutputQueueBytesMax / 2, 'x');

    slow.sink->buffer() += text;
    slow.sink->flush();
    CHECK_FALSE(slow.sink->empty());
    CHECK_FALSE(slow.sink->full());
    CHECK(slow.told == 0);

    CHECK(slow.read_all() == text);
    CHECK(slow.sink->empty());
    CHECK(slow.told == 1);
}

TEST_CASE("a full queue tells when it has room, and when it is empty") {
    SlowReader slow;
    slow.sink->pass(std::string(limits::kOutputQueueBytesMax + 100'000, 'x'));
    REQUIRE(slow.sink->full());

    CHECK(slow.read_all().size() == limits::kOutputQueueBytesMax + 100'000);
    CHECK(slow.sink->empty());
    CHECK(slow.told == 2);
}

TEST_CASE("what is written at once is told to nobody") {
    SlowReader slow;

    slow.sink->pass("line\n");

    CHECK(slow.sink->empty());
    CHECK(slow.told == 0);
    CHECK(slow.read_all() == "line\n");
}

TEST_CASE("a reader that has gone breaks the sink, which says why") {
    SlowReader slow;
    slow.reading.reset();

    slow.sink->pass("line\n");

    CHECK(slow.sink->broken());
    CHECK(slow.sink->reason() == std::errc::broken_pipe);
    CHECK(slow.sink->empty());
}

TEST_CASE("a reader that goes while it is waited for ends the wait") {
    SlowReader slow;
    slow.sink->pass(std::string(100'000, 'x'));
    REQUIRE_FALSE(slow.sink->empty());

    slow.reading.reset();
    slow.io_context.poll();

    CHECK(slow.sink->broken());
    CHECK(slow.told == 1);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
