#include "launcher/daemon.h"

#include "launcher/spdlog_log.h"
#include "proto/exit_codes.h"
#include "rendezvous/host.h"
#include "rendezvous/store_server.h"

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

namespace ddprun::launcher {

namespace {

namespace asio = boost::asio;

/// What the options of the command line are bound to.
struct RawDaemonOptions {
    std::string listen;
    std::string log_level = "info";
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

int run_daemon(const DaemonCommand& command) {
    const std::unique_ptr<Log> log = make_stderr_log("ddprund", command.log_level);
    asio::io_context io_context{1};
    std::optional<RendezvousHost> host;
    StoreServerOptions options;
    options.port = command.listen.port;
    if (!command.listen.host.empty()) {
        auto addresses = resolve_host(command.listen.host);
        if (!addresses) {
            fmt::print(stderr, "ddprund: {}\n", addresses.error().context);
            return exit_code::kUnavailable;
        }
        options.addresses = std::move(*addresses);
    }
    if (!command.store_only) {
        host.emplace(io_context, RendezvousHostOptions{}, *log);
        options.on_agent = [&host](asio::ip::tcp::socket socket, std::string first_bytes) {
            host->accept(std::move(socket), std::move(first_bytes));
        };
    }
    auto server = StoreServer::listen(io_context, std::move(options), *log);
    if (!server) {
        fmt::print(stderr, "ddprund: {}\n", server.error().context);
        return exit_code::kUnavailable;
    }
    asio::signal_set signals{io_context, SIGTERM, SIGINT};
    signals.async_wait([&](const boost::system::error_code& error, int signal) {
        if (!error) {
            log->info("signal {}: store closing, connected clients get what is due", signal);
            (*server)->stop([&io_context] { io_context.stop(); });
        }
    });
    fmt::print("listening on {}:{}\n", (*server)->address(), (*server)->port());
    static_cast<void>(std::fflush(stdout));
    io_context.run();
    return exit_code::kSuccess;
}

}  // namespace ddprun::launcher
