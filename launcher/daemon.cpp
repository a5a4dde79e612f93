#include "launcher/daemon.h"

#include "agent/agent_setup.h"
#include "launcher/counters_line.h"
#include "launcher/machine.h"
#include "launcher/port_holder.h"
#include "launcher/spdlog_log.h"
#include "proto/exit_codes.h"
#include "rendezvous/host.h"
#include "rendezvous/store_server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddprun::launcher {

namespace {

namespace asio = boost::asio;

int give_up(const Error& error, int status) {
    fmt::print(stderr, "ddprund: {}\n", error.context);
    return status;
}

/// Sockets from a service manager, as systemd hands them down: from descriptor 3 on.
std::vector<int> handed_down() {
    constexpr int kFirst = 3;
    constexpr int kMost = 16;
    const char* owner = std::getenv("LISTEN_PID");
    const char* count = std::getenv("LISTEN_FDS");
    std::vector<int> descriptors;
    if (owner != nullptr && count != nullptr && std::to_string(::getpid()) == owner) {
        const int number = std::min(std::atoi(count), kMost);
        for (int i = 0; i < number; ++i) {
            descriptors.push_back(kFirst + i);
        }
    }
    return descriptors;
}

Result<StoreServerOptions> sockets_of(const DaemonCommand& command) {
    StoreServerOptions options;
    options.listening = handed_down();
    options.port = command.listen.port;
    options.deadlines = command.deadlines;
    options.kv_limits.foreign_run_timeout = command.foreign_keys_timeout;
    if (!command.listen.host.empty() && options.listening.empty()) {
        auto addresses = resolve_host(command.listen.host);
        if (!addresses) {
            return fail(addresses.error());
        }
        options.addresses = std::move(*addresses);
    }
    return options;
}

/// Ends the loop at TERM or INT, once clients have what is due; HUP opens the log file anew, USR1
/// logs the counters.
class DaemonSignals {
public:
    DaemonSignals(asio::io_context& io_context, StoreServer& server, FileLog* file, Log& log)
        : io_context_(io_context),
          signals_(io_context, SIGTERM, SIGINT, SIGHUP),
          own_signals_(io_context, SIGUSR1),
          server_(server),
          file_(file),
          log_(log) {
        wait();
        wait_for_usr1();
    }

private:
    void wait_for_usr1() {
        own_signals_.async_wait([this](const boost::system::error_code& error, int) {
            if (!error) {
                log_.info("{}", counters_line(server_.counters(), server_.kv_counters()));
                wait_for_usr1();
            }
        });
    }

    void wait() {
        signals_.async_wait([this](const boost::system::error_code& error, int signal) {
            if (error) {
                return;
            }
            if (signal == SIGHUP) {
                reopen();
                wait();
                return;
            }
            log_.info("signal {}: store closing, connected clients get what is due", signal);
            server_.stop([this] { io_context_.stop(); });
        });
    }

    void reopen() {
        const Result<void> reopened = file_ == nullptr ? Result<void>{} : file_->reopen();
        if (!reopened) {
            log_.error("the log file stays as it is: {}", reopened.error().context);
        }
    }

    asio::io_context& io_context_;
    asio::signal_set signals_;
    asio::signal_set own_signals_;
    StoreServer& server_;
    FileLog* file_;  ///< null where lines go to stderr
    Log& log_;
};

}  // namespace

int run_daemon(const DaemonCommand& command) {
    ensure_standard_descriptors();  // before a socket of ours gets one of their numbers
    std::signal(SIGPIPE, SIG_IGN);  // a log that nobody reads any more ends no store
    std::unique_ptr<FileLog> file;
    if (!command.log_file.empty()) {
        auto opened = make_file_log("ddprund", command.log_level, command.log_file);
        if (!opened) {
            return give_up(opened.error(), exit_code::kCannotCreate);
        }
        file = std::move(*opened);
    }
    const std::unique_ptr<Log> console = make_stderr_log("ddprund", command.log_level);
    Log& log = file == nullptr ? *console : *file;
    asio::io_context io_context{1};
    std::optional<RendezvousHost> host;
    auto options = sockets_of(command);
    if (!options) {
        return give_up(options.error(), exit_code::kUnavailable);
    }
    if (!command.store_only) {
        host.emplace(io_context, RendezvousHostOptions{.job = {}, .host_name = host_name()}, log);
        options->on_agent = [&host](asio::ip::tcp::socket socket, std::string first_bytes) {
            host->accept(std::move(socket), std::move(first_bytes));
        };
    }
    auto server = StoreServer::listen(io_context, std::move(*options), log);
    if (!server) {
        Error error = server.error();
        if (error.code == Errc::refused) {
            error.context += "; " + holder_of_port(command.listen.port);
        }
        return give_up(error, exit_code::kUnavailable);
    }
    const DaemonSignals signals{io_context, **server, file.get(), log};
    fmt::print("listening on {}:{}\n", (*server)->address(), (*server)->port());
    static_cast<void>(std::fflush(stdout));
    io_context.run();
    return exit_code::kSuccess;
}

}  // namespace ddprun::launcher
