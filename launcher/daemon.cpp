#include "launcher/daemon.h"

#include "launcher/machine.h"
#include "launcher/spdlog_log.h"
#include "proto/exit_codes.h"
#include "rendezvous/host.h"
#include "rendezvous/store_server.h"

#include <CLI/CLI.hpp>
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

/// What the options of the command line are bound to.
struct RawDaemonOptions {
    std::string listen;
    std::string log_level = "info";
    std::string log_file;
    bool store_only = false;
    bool help = false;
    bool version = false;
};

std::unique_ptr<CLI::App> make_parser(RawDaemonOptions& raw) {
    auto app = std::make_unique<CLI::App>(
        "The rendezvous of ddprun as a daemon: any number of jobs, each by its id.", "ddprund"
    );
    app->set_help_flag();
    app->add_option(
           "--listen",
           raw.listen,
           "Where to serve; port 0 takes a free one, the default is 29400.\nWithout it: every "
           "interface"
    )
        ->option_text("ADDR[:PORT]");
    app->add_flag(
           "--store_only,--store-only", raw.store_only, "Serve TCPStore clients only, no agents"
    )
        ->disable_flag_override();
    app->add_option(
           "--log_level,--log-level", raw.log_level, "What is logged to stderr (default info)"
    )
        ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
        ->option_text("debug|info|warning|error");
    app->add_option(
           "--log_file,--log-file",
           raw.log_file,
           "Log lines are appended to it instead of going to stderr;\nHUP opens it anew"
    )
        ->option_text("FILE");
    app->add_flag("-h,--help", raw.help, "Print this help and exit")->disable_flag_override();
    app->add_flag("--version", raw.version, "Print the version and exit")->disable_flag_override();
    return app;
}

LogLevel level_of(const std::string& name) {
    if (name == "debug") {
        return LogLevel::debug;
    }
    if (name == "warning") {
        return LogLevel::warning;
    }
    return name == "error" ? LogLevel::error : LogLevel::info;
}

/// One line of CLI11's words.
std::string one_line(std::string text) {
    for (char& letter : text) {
        letter = letter == '\n' ? ' ' : letter;
    }
    return text;
}

}  // namespace

Result<DaemonCommand> parse_daemon_command(const std::vector<std::string>& arguments) {
    RawDaemonOptions raw;
    const auto parser = make_parser(raw);
    try {
        // CLI11 takes its arguments from the end.
        parser->parse(std::vector<std::string>{arguments.rbegin(), arguments.rend()});
    } catch (const CLI::Error& error) {
        return fail(
            Errc::invalid_argument, fmt::format("{} (see ddprund --help)", one_line(error.what()))
        );
    }
    DaemonCommand command;
    command.store_only = raw.store_only;
    command.log_level = level_of(raw.log_level);
    command.log_file = raw.log_file;
    command.show_help = raw.help;
    command.show_version = raw.version;
    if (!raw.listen.empty()) {
        auto endpoint = parse_endpoint(raw.listen, PortZero::allowed);
        if (!endpoint) {
            return fail(
                Errc::invalid_argument,
                fmt::format("--listen={}: {}", raw.listen, endpoint.error().context)
            );
        }
        command.listen = std::move(*endpoint);
    }
    return command;
}

std::string daemon_help_text() {
    RawDaemonOptions raw;
    return make_parser(raw)->help();
}

namespace {

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
    if (!command.listen.host.empty() && options.listening.empty()) {
        auto addresses = resolve_host(command.listen.host);
        if (!addresses) {
            return fail(addresses.error());
        }
        options.addresses = std::move(*addresses);
    }
    return options;
}

/// Ends the loop at TERM or INT, once clients have what is due; HUP opens the log file anew.
class DaemonSignals {
public:
    DaemonSignals(asio::io_context& io_context, StoreServer& server, FileLog* file, Log& log)
        : io_context_(io_context),
          signals_(io_context, SIGTERM, SIGINT, SIGHUP),
          server_(server),
          file_(file),
          log_(log) {
        wait();
    }

private:
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
    StoreServer& server_;
    FileLog* file_;  ///< null where lines go to stderr
    Log& log_;
};

}  // namespace

int run_daemon(const DaemonCommand& command) {
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
        return give_up(server.error(), exit_code::kUnavailable);
    }
    const DaemonSignals signals{io_context, **server, file.get(), log};
    fmt::print("listening on {}:{}\n", (*server)->address(), (*server)->port());
    static_cast<void>(std::fflush(stdout));
    io_context.run();
    return exit_code::kSuccess;
}

}  // namespace ddprun::launcher
