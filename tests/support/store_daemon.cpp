// The store alone, for tests with foreign clients: prints "listening on ADDRESS:PORT", then serves
// until its standard input ends or it is told to stop, so that it can't outlive its test.
#include "proto/log.h"
#include "rendezvous/store_server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <utility>

namespace {

class StderrLog final : public ddprun::Log {
public:
    void write(ddprun::LogLevel, std::string_view line) override {
        fmt::print(stderr, "{}\n", line);
    }

    [[nodiscard]] bool enabled(ddprun::LogLevel level) const override {
        return level != ddprun::LogLevel::debug;
    }
};

}  // namespace

int main() {
    boost::asio::io_context io_context{1};
    StderrLog log;
    ddprun::StoreServerOptions options;
    options.addresses = {"127.0.0.1"};
    auto server = ddprun::StoreServer::listen(io_context, std::move(options), log);
    if (!server) {
        log.error("{}", server.error().context);
        return 1;
    }
    fmt::print("listening on {}:{}\n", (*server)->address(), (*server)->port());
    std::fflush(stdout);
    const auto stop = [&](const auto&...) { io_context.stop(); };
    boost::asio::signal_set signals{io_context, SIGINT, SIGTERM};
    signals.async_wait(stop);
    boost::asio::posix::stream_descriptor input{io_context, ::dup(STDIN_FILENO)};
    input.async_wait(boost::asio::posix::stream_descriptor::wait_read, stop);
    io_context.run();
    return 0;
}
