#include "tests/support/store_thread.h"

#include "proto/assert.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>

#include <future>
#include <utility>

namespace ddprun {

namespace {

/// What `read` returns in the loop's thread.
template <class Function>
auto in_loop(boost::asio::io_context& io_context, Function read) {
    std::promise<decltype(read())> promise;
    auto result = promise.get_future();
    boost::asio::post(io_context, [&] { promise.set_value(read()); });
    return result.get();
}

}  // namespace

StoreThread::StoreThread() {
    start(Port{0});
}

StoreThread::~StoreThread() {
    stop();
}

void StoreThread::start(Port port) {
    io_context_ = std::make_unique<boost::asio::io_context>(1);
    StoreServerOptions options;
    options.addresses = {"127.0.0.1"};
    options.port = port;
    auto listening = StoreServer::listen(*io_context_, std::move(options), log_);
    DDPRUN_ASSERT(listening.has_value());
    server_ = std::move(*listening);
    port_ = server_->port();
    thread_ = std::thread{[this] {
        const auto work = boost::asio::make_work_guard(*io_context_);
        io_context_->run();
    }};
}

void StoreThread::stop() {
    if (server_ == nullptr) {
        return;
    }
    in_loop(*io_context_, [this] {
        server_.reset();
        return true;
    });
    io_context_->stop();
    thread_.join();
    io_context_.reset();
}

void StoreThread::restart() {
    stop();
    start(port_);
}

StoreClientOptions StoreThread::options() const {
    StoreClientOptions options;
    options.host = "127.0.0.1";
    options.port = port_.value();
    options.timeout = std::chrono::milliseconds{10'000};
    options.connect_timeout = std::chrono::milliseconds{10'000};
    return options;
}

std::unique_ptr<StoreClient> StoreThread::connect() {
    auto client = StoreClient::connect(options());
    DDPRUN_ASSERT(client.has_value());
    return std::move(*client);
}

void StoreThread::wait_for_waiting_clients(std::size_t count) {
    while (in_loop(*io_context_, [this] { return server_->kv_counters().waiting_clients; }) < count
    ) {
        std::this_thread::yield();
    }
}

std::uint64_t StoreThread::accepted() {
    return in_loop(*io_context_, [this] { return server_->counters().accepted; });
}

}  // namespace ddprun
