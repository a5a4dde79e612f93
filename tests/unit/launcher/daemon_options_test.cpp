#include "launcher/daemon_options.h"

#include "launcher/counters_line.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;

std::string complaint_of(const std::vector<std::string>& arguments) {
    const auto command = parse_daemon_command(arguments);
    return command ? std::string{} : command.error().context;
}

TEST_SUITE_BEGIN("launcher/daemon_options");

TEST_CASE("--listen takes names, addresses of both families, a port or none") {
    struct Row {
        std::string text;
        std::string host;
        int port;
    };

    const std::vector<Row> rows{
        {"node0", "node0", 29400},
        {"node0:0", "node0", 0},
        {"127.0.0.1:29500", "127.0.0.1", 29500},
        {"[::1]:29500", "::1", 29500},
        {"[::1]", "::1", 29400},
        {"::1", "::1", 29400},
        {"::", "::", 29400},
        {"fe80::1:2940", "fe80::1:2940", 29400},  // no brackets: all of it is the address
    };
    for (const auto& row : rows) {
        CAPTURE(row.text);
        const auto command = parse_daemon_command({"--listen", row.text});
        REQUIRE_MESSAGE(command.has_value(), command.error().context);
        CHECK(command->listen.host == row.host);
        CHECK(command->listen.port.value() == row.port);
    }
    CHECK(complaint_of({"--listen=::1:29400"}).find("in brackets") != std::string::npos);
    CHECK(complaint_of({"--listen=[::1"}).starts_with("--listen=[::1:"));
    CHECK(complaint_of({"--listen=node:70000"}).find("'70000' is no port") != std::string::npos);
}

TEST_CASE("an empty --listen is refused in one line: it would serve every interface unasked") {
    for (const auto& arguments :
         std::vector<std::vector<std::string>>{{"--listen", ""}, {"--listen="}}) {
        const std::string text = complaint_of(arguments);
        CHECK(text.find("--listen") != std::string::npos);
        CHECK(text.find('\n') == std::string::npos);
    }
}

TEST_CASE("deadlines are those of the limits, or what is given in seconds and parts of them") {
    const auto usual = parse_daemon_command({});
    CHECK(usual->deadlines.handshake == limits::kHandshakeTimeout);
    CHECK(usual->foreign_keys_timeout == limits::kForeignRunTimeout);

    const auto command = parse_daemon_command(
        {"--handshake_timeout=0.25",
         "--progress-timeout=3",
         "--request_timeout",
         "7",
         "--foreign-keys-timeout=90"}
    );

    REQUIRE_MESSAGE(command.has_value(), command.error().context);
    CHECK(command->deadlines.handshake == 250ms);
    CHECK(command->deadlines.progress == 3s);
    CHECK(command->deadlines.request == 7s);
    CHECK(command->foreign_keys_timeout == 90s);
}

TEST_CASE("a deadline that is none is refused in one line that names the option") {
    for (const char* value :
         {"0", "-1", "soon", "1e9", "", "nan", "-nan", "inf", "-inf", "infinity", "1e999"}) {
        CAPTURE(value);
        const std::string text = complaint_of({std::string("--handshake_timeout=") + value});
        CHECK(text.find("--handshake_timeout") != std::string::npos);
        CHECK(text.find('\n') == std::string::npos);
    }
}

TEST_CASE("the help names every deadline with its default") {
    const std::string help = daemon_help_text();
    CHECK(help.find("--handshake_timeout") != std::string::npos);
    CHECK(help.find("SECONDS [10]") != std::string::npos);
    CHECK(help.find("--foreign_keys_timeout") != std::string::npos);
    CHECK(help.find("SECONDS [600]") != std::string::npos);
}

TEST_CASE("the counters' line is JSON with a number for each") {
    StoreCounters server;
    server.closed_stalled = 3;
    KvCounters state;
    state.expired_keys = 5;
    const std::string line = counters_line(server, state);

    REQUIRE(line.starts_with("counters {"));
    const auto counters = nlohmann::json::parse(line.substr(line.find('{')));
    CHECK(counters.size() == 22);
    CHECK(counters["closed_stalled"] == 3);
    CHECK(counters["expired_keys"] == 5);
    CHECK(counters["connections"] == 0);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::launcher
