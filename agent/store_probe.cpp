#include "agent/store_probe.h"

#include "proto/limits.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>

#include <fcntl.h>

#include <chrono>
#include <utility>

namespace ddprun {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

class StoreProbe::Attempts : public std::enable_shared_from_this<Attempts> {
public:
    Attempts(asio::io_context& io_context, std::function<void(Result<void>)> done)
        : io_context_(io_context),
          done_(std::move(done)),
          socket_(io_context),
          deadline_(io_context),
          pause_(io_context) {}

    void start(const std::string& address, Port port) {
        error_code error;
        target_ = tcp::endpoint{asio::ip::make_address(address, error), port.value()};
        name_ = fmt::format("{} port {}", address, port);
        if (error) {
            finish(fail(
                Errc::invalid_argument,
                fmt::format("MASTER_ADDR {} is no address: {}", address, error.message())
            ));
            return;
        }
        deadline_.expires_after(limits::kReachStoreTimeout);
        deadline_.async_wait([self = shared_from_this()](const error_code& cancelled) {
            if (!cancelled) {
                self->give_up();
            }
        });
        attempt();
    }

    void abandon() {
        done_ = nullptr;
        close();
    }

private:
    void attempt() {
        socket_ = tcp::socket{io_context_};
        socket_.async_connect(target_, [self = shared_from_this()](const error_code& error) {
            self->on_connect(error);
        });
        // A socket that a worker inherits would hold the store's connection open.
        static_cast<void>(::fcntl(socket_.native_handle(), F_SETFD, FD_CLOEXEC));
    }

    void on_connect(const error_code& error) {
        if (!done_) {
            return;
        }
        if (!error) {
            finish({});
            return;
        }
        last_trouble_ = error.message();
        pause_.expires_after(limits::kReachStorePause);
        pause_.async_wait([self = shared_from_this()](const error_code& cancelled) {
            if (!cancelled && self->done_) {
                self->attempt();
            }
        });
    }

    void give_up() {
        finish(fail(
            Errc::timed_out,
            fmt::format(
                "connect to the round's store at {} (MASTER_ADDR and MASTER_PORT of the workers): "
                "{} for {} s; look for a firewall between this node and that one",
                name_,
                last_trouble_,
                std::chrono::duration_cast<std::chrono::seconds>(limits::kReachStoreTimeout).count()
            )
        ));
    }

    void finish(Result<void> result) {
        close();
        asio::post(io_context_, [self = shared_from_this(), result = std::move(result)] {
            if (const auto done = std::exchange(self->done_, nullptr)) {
                done(result);
            }
        });
    }

    void close() {
        deadline_.cancel();
        pause_.cancel();
        error_code ignored;  // closing frees the descriptor whatever it says
        socket_.close(ignored);
    }

    asio::io_context& io_context_;
    std::function<void(Result<void>)> done_;
    tcp::socket socket_;
    asio::steady_timer deadline_;
    asio::steady_timer pause_;
    tcp::endpoint target_;
    std::string name_;
    std::string last_trouble_ = "no answer";
};

StoreProbe::StoreProbe(
    asio::io_context& io_context,
    const std::string& address,
    Port port,
    std::function<void(Result<void>)> done
)
    : attempts_(std::make_shared<Attempts>(io_context, std::move(done))) {
    attempts_->start(address, port);
}

StoreProbe::~StoreProbe() {
    attempts_->abandon();
}

}  // namespace ddprun
