// ddprund alone: its deadlines, its counters, what it listens on.
#include "tests/support/command.h"
#include "tests/support/loopback.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::test {
namespace {

using namespace std::chrono_literals;

/// VALIDATE.
constexpr std::string_view kMagic{"\x00\xce\xf7\x85\x3c", 5};

std::string number(std::uint64_t value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string text_field(const std::string& text) {
    return number(text.size()) + text;
}

class Client {
public:
    explicit Client(std::uint16_t port) : fd_(connect_to_loopback(port, 20s)) { REQUIRE(fd_ >= 0); }

    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    ~Client() { ::close(fd_); }

    void send(std::string_view bytes) const {
        REQUIRE(
            ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size())
        );
    }

    [[nodiscard]] std::string receive(std::size_t count) const {
        std::string bytes(count, '\0');
        const ssize_t got = ::recv(fd_, bytes.data(), count, MSG_WAITALL);
        return got < 0 ? "nothing" : bytes.substr(0, static_cast<std::size_t>(got));
    }

    /// CHECK of one key: 0 there, 1 not.
    [[nodiscard]] bool has(const std::string& key) const {
        send("\x05" + number(1) + text_field(key));
        return receive(1) == std::string(1, '\0');
    }

    /// The peer has closed; false after 20 s.
    [[nodiscard]] bool is_closed() const { return receive(1).empty(); }

private:
    int fd_;
};

struct Daemon {
    explicit Daemon(const std::vector<std::string>& more, const std::string& listen = "127.0.0.1:0")
        : command({.argv = with(more, listen), .deadline = 60s}) {
        const auto line = command.wait_for_line("listening on ");
        REQUIRE_MESSAGE(line.has_value(), command.err());
        first_line = *line;
        port = static_cast<std::uint16_t>(std::stoi(line->substr(line->rfind(':') + 1)));
    }

    static std::vector<std::string> with(
        const std::vector<std::string>& more, const std::string& listen
    ) {
        std::vector<std::string> argv{program("ddprund"), "--store_only", "--listen", listen};
        argv.insert(argv.end(), more.begin(), more.end());
        return argv;
    }

    nlohmann::json counters() {
        command.send_signal(SIGUSR1);
        const auto line = command.wait_for_line("counters {", ++asked);
        REQUIRE(line.has_value());
        return nlohmann::json::parse(line->substr(line->find('{')));
    }

    Command command;
    std::string first_line;
    std::uint16_t port = 0;
    int asked = 0;
};

TEST_SUITE_BEGIN("system/daemon");

TEST_CASE("who says nothing is closed after --handshake_timeout, with a logged reason") {
    Daemon daemon({"--handshake_timeout=0.2"});
    const Client silent(daemon.port);
    silent.send(kMagic.substr(0, 1));

    CHECK(silent.is_closed());
    CHECK(daemon.command.wait_for_line("it didn't say what it is in time").has_value());
    CHECK(daemon.counters()["closed_handshake"] == 1);
}

TEST_CASE("a request that stands still is closed after --progress_timeout; others are served") {
    Daemon daemon({"--progress_timeout=0.2"});
    const Client stalled(daemon.port);
    stalled.send(std::string(kMagic) + std::string("\x01", 1) + number(5) + "ke");  // SET, cut
    const Client healthy(daemon.port);
    healthy.send(kMagic);

    CHECK(stalled.is_closed());
    CHECK(!healthy.has("key"));
    const auto counters = daemon.counters();
    CHECK(counters["closed_stalled"] == 1);
    CHECK(counters["connections"] == 1);
    CHECK(counters["partial_bytes"] == 0);
}

TEST_CASE("one that trickles on for ever is closed after --request_timeout") {
    Daemon daemon({"--request_timeout=0.5"});
    const Client slow(daemon.port);
    slow.send(std::string(kMagic) + std::string("\x01", 1) + number(5) + "ke");

    CHECK(slow.is_closed());
    CHECK(daemon.counters()["closed_stalled"] == 1);
}

TEST_CASE("a foreign torchrun's keys go --foreign_keys_timeout after its last connection") {
    Daemon daemon({"--foreign_keys_timeout=0.3"});
    const std::string key = "torch.rendezvous.job7";
    {
        const Client torchrun(daemon.port);
        torchrun.send(std::string(kMagic) + '\x01' + text_field(key) + text_field("state"));
        CHECK(torchrun.has(key));
    }
    // Looking at the key would keep it: the counters tell.
    nlohmann::json counters = daemon.counters();
    while (counters["expired_keys"] == 0) {
        REQUIRE(daemon.asked < 100'000);
        counters = daemon.counters();
    }

    CHECK(counters["keys"] == 0);
    CHECK(counters["foreign_runs"] == 0);
}

TEST_CASE("an IPv6 address alone is listened on at the usual port's place") {
    const CommandResult taken =
        run_command({.argv = {program("ddprund"), "--store_only", "--listen=::2"}, .deadline = 20s}
        );
    // ::2 is nobody's here: what matters is that it was taken for an address with port 29400.
    CHECK(taken.exit_code == 69);
    CHECK(taken.err.find("[::2]:29400") != std::string::npos);
}

TEST_CASE("a deadline that is none and an empty address are usage errors of one line") {
    struct Row {
        std::string option;
        std::string value;
    };

    const std::vector<Row> rows{
        {"--progress_timeout", "0"},
        {"--progress_timeout", "nan"},
        {"--handshake_timeout", "inf"},
        {"--listen", ""},
    };
    for (const auto& row : rows) {
        CAPTURE(row.option);
        CAPTURE(row.value);
        const CommandResult result = run_command(
            {.argv = {program("ddprund"), "--store_only", row.option, row.value}, .deadline = 20s}
        );

        CHECK(result.exit_code == 2);
        CHECK(result.err.find(row.option) != std::string::npos);
        CHECK(result.err.find('\n') == result.err.size() - 1);
    }
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
