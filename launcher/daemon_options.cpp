#include "launcher/daemon_options.h"

#include "proto/limits.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <arpa/inet.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ddprun::launcher {

namespace {

template <class Duration>
constexpr double seconds(Duration duration) {
    return std::chrono::duration<double>(duration).count();
}

constexpr double kDeadlineMin = 0.001;  // seconds
constexpr double kDeadlineMax = 1e6;

std::chrono::milliseconds milliseconds(double seconds) {
    return std::chrono::round<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

/// What the options of the command line are bound to.
struct RawDaemonOptions {
    std::string listen;
    std::string log_level = "info";
    std::string log_file;
    double handshake_timeout = seconds(limits::kHandshakeTimeout);
    double progress_timeout = seconds(limits::kProgressTimeout);
    double request_timeout = seconds(limits::kRequestTimeout);
    double foreign_keys_timeout = seconds(limits::kForeignRunTimeout);
    bool store_only = false;
    bool help = false;
    bool version = false;
};

/// What is not a number is beyond every bound, too, which CLI::Range doesn't see.
std::string complaint_about_deadline(const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const bool is_number = !text.empty() && *end == '\0';
    if (is_number && value >= kDeadlineMin && value <= kDeadlineMax) {
        return {};
    }
    return fmt::format("'{}' is no time from {} to {} seconds", text, kDeadlineMin, kDeadlineMax);
}

void add_deadline(CLI::App& app, const std::string& name, double& target, const char* help) {
    std::string hyphens = name;
    std::replace(hyphens.begin(), hyphens.end(), '_', '-');
    app.add_option(fmt::format("--{},--{}", name, hyphens), target, help)
        ->check(complaint_about_deadline)
        ->option_text(fmt::format("SECONDS [{}]", target))
        ->group("Deadlines of a store's clients");
}

void add_deadlines(CLI::App& app, RawDaemonOptions& raw) {
    add_deadline(
        app, "handshake_timeout", raw.handshake_timeout, "To say what it is: a whole first request"
    );
    add_deadline(
        app, "progress_timeout", raw.progress_timeout, "Without progress in a request or a reply"
    );
    add_deadline(
        app, "request_timeout", raw.request_timeout, "For one request, however it trickles"
    );
    add_deadline(
        app,
        "foreign_keys_timeout",
        raw.foreign_keys_timeout,
        "Until the keys of a foreign torchrun go, after its last connection"
    );
}

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
    add_deadlines(*app, raw);
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

/// An IPv6 address alone needs no brackets: there is no port that it could be confused with.
bool is_bare_v6(const std::string& text) {
    in6_addr address{};
    return ::inet_pton(AF_INET6, text.c_str(), &address) == 1;
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
    command.deadlines.handshake = milliseconds(raw.handshake_timeout);
    command.deadlines.progress = milliseconds(raw.progress_timeout);
    command.deadlines.request = milliseconds(raw.request_timeout);
    command.foreign_keys_timeout = milliseconds(raw.foreign_keys_timeout);
    if (raw.listen.empty() && parser->count("--listen") > 0) {
        return fail(
            Errc::invalid_argument,
            "--listen: the address is empty, leave the option out to serve every interface"
        );
    }
    if (is_bare_v6(raw.listen)) {
        command.listen.host = raw.listen;
    } else if (!raw.listen.empty()) {
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

}  // namespace ddprun::launcher
