// ddprund whose log nobody reads, or whose standard descriptors are closed: its clients notice
// nothing.
#include "tests/support/command.h"
#include "tests/support/loopback.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddprun::test {
namespace {

using namespace std::chrono_literals;

/// Sends `bytes` on a connection of its own and reads until the end; "nothing" after 20 s without.
std::string answer_to(std::uint16_t port, std::string_view bytes) {
    const int fd = connect_to_loopback(port, 20s);
    REQUIRE(fd >= 0);
    REQUIRE(
        ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size())
    );
    std::string all;
    std::array<char, 4'096> buffer{};
    ssize_t size = 0;
    while ((size = ::recv(fd, buffer.data(), buffer.size(), 0)) > 0) {
        all.append(buffer.data(), static_cast<std::size_t>(size));
    }
    ::close(fd);
    return size < 0 && errno == EAGAIN ? "nothing" : all;
}

bool serves(std::uint16_t port) {
    return answer_to(port, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400");
}

/// Each of these costs a line of the log.
void offend(std::uint16_t port, int times) {
    for (int i = 0; i < times; ++i) {
        REQUIRE(answer_to(port, "SSH-2.0-stranger\r\n").empty());
    }
}

std::uint16_t port_of(Command& daemon) {
    const auto line = daemon.wait_for_line("listening on ");
    REQUIRE_MESSAGE(line.has_value(), daemon.err());
    return static_cast<std::uint16_t>(std::stoi(line->substr(line->rfind(':') + 1)));
}

/// ddprund started by a shell that does `how` with its descriptors.
std::vector<std::string> shell(const std::string& how) {
    return {
        "/bin/sh",
        "-c",
        "exec " + program("ddprund") + " --listen 127.0.0.1:0 --store_only " + how};
}

void check_end(Command& daemon) {
    daemon.send_signal(SIGTERM);
    const CommandResult result = daemon.finish();
    CHECK(result.exit_code == 0);
    CHECK(daemon.left_behind() == "");
}

TEST_SUITE_BEGIN("system/daemon_streams");

TEST_CASE("a log that nobody reads stalls no client and no end") {
    Command daemon({.argv = shell("--log_level debug"), .deadline = 60s});
    const std::uint16_t port = port_of(daemon);
    // From here on nobody reads until its end.
    offend(port, 8'000);  // far beyond what a pipe and the queue hold

    CHECK(serves(port));
    daemon.send_signal(SIGTERM);
    CHECK(daemon.left_behind(10s) == "");
    CHECK(daemon.finish().exit_code == 0);
}

TEST_CASE("a flood of offenders costs few lines of the log, and they are counted") {
    Command daemon({.argv = shell(""), .deadline = 60s});
    const std::uint16_t port = port_of(daemon);

    offend(port, 2'000);
    daemon.send_signal(SIGUSR1);
    REQUIRE(daemon.wait_for_line("counters {"));
    daemon.send_signal(SIGTERM);
    const CommandResult result = daemon.finish();

    // As many a second as are allowed; the offences take less than a few.
    CHECK(count_of(result.err, "closed: ") >= 20);
    CHECK(count_of(result.err, "closed: ") < 1'000);
    CHECK(result.err.find("\"closed_handshake\":2000") != std::string::npos);
}

TEST_CASE("a log whose reader has gone ends no store") {
    const TemporaryFolder folder;
    const std::string pipe = folder.path("pipe");
    // The reader opens it, which lets the writer open it too, and closes it.
    Command daemon(
        {.argv =
             {"/bin/sh",
              "-c",
              "mkfifo " + pipe + "; (exec 3<" + pipe + ") & exec " + program("ddprund") +
                  " --listen 127.0.0.1:0 --store_only 2>" + pipe},
         .deadline = 60s}
    );
    const std::uint16_t port = port_of(daemon);

    offend(port, 10);

    CHECK(serves(port));
    check_end(daemon);
}

TEST_CASE("closed standard descriptors are no sockets of the store") {
    for (const char* how : {"2>&-", "<&- 2>&-"}) {
        CAPTURE(how);
        Command daemon({.argv = shell(how), .deadline = 60s});
        const std::uint16_t port = port_of(daemon);

        offend(port, 10);

        CHECK(serves(port));
        check_end(daemon);
    }
}

TEST_CASE("a port that is taken is said with who holds it") {
    Command daemon({.argv = shell(""), .deadline = 60s});
    const std::string port = std::to_string(port_of(daemon));

    const CommandResult second =
        run_command({.argv = {program("ddprund"), "--listen", "127.0.0.1:" + port}});

    CHECK(second.exit_code == 69);
    CHECK(
        second.err.find("port " + port + " is held by pid " + std::to_string(daemon.pid())) !=
        std::string::npos
    );
    CHECK(count_of(second.err, "\n") == 1);
    check_end(daemon);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
