// ddprund as a store for crowds: whatever descriptor limit it was started with.
#include "tests/support/command.h"
#include "tests/support/loopback.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddprun::test {
namespace {

using namespace std::chrono_literals;

constexpr int kBurst = 2'000;
constexpr int kCrowd = 5'000;
constexpr rlim_t kSoftLimit = 256;

/// VALIDATE and PING 7.
constexpr std::string_view kGreeting{"\x00\xce\xf7\x85\x3c\x0d\x07\x00\x00\x00", 10};

class Client {
public:
    /// One that can't be connected is never answered.
    explicit Client(std::uint16_t port) : fd_(connect_to_loopback(port, 30s)) {}

    Client(Client&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

    Client& operator=(Client&&) = delete;
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    ~Client() {
        if (fd_ >= 0) {
            ::close(fd_);
        }
    }

    void greet() const { send(kGreeting); }

    /// All of it, unless the peer closes.
    void send(std::string_view bytes) const {
        while (!bytes.empty()) {
            const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (count <= 0) {
                return;
            }
            bytes.remove_prefix(static_cast<std::size_t>(count));
        }
    }

    [[nodiscard]] bool is_answered() const {
        char answer[4] = {};
        return ::recv(fd_, answer, sizeof answer, MSG_WAITALL) == sizeof answer && answer[0] == 7;
    }

private:
    int fd_;
};

std::ptrdiff_t descriptors_of(pid_t pid) {
    const std::filesystem::directory_iterator begin{"/proc/" + std::to_string(pid) + "/fd"};
    return std::distance(begin, std::filesystem::directory_iterator{});
}

// The address sanitizer keeps what is freed for a while.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kFreedMemoryStays = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kFreedMemoryStays = true;
#else
constexpr bool kFreedMemoryStays = false;
#endif
#else
constexpr bool kFreedMemoryStays = false;
#endif

/// Resident, in KiB.
long memory_of(pid_t pid) {
    std::ifstream status{"/proc/" + std::to_string(pid) + "/status"};
    constexpr std::string_view kLabel = "VmRSS:";
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with(kLabel)) {
            return std::stol(line.substr(kLabel.size()));
        }
    }
    return 0;
}

std::string length(std::size_t bytes) {
    std::string text;
    for (unsigned shift = 0; shift < 64; shift += 8) {
        text.push_back(static_cast<char>(bytes >> shift));
    }
    return text;
}

/// Room for so many clients in this process; false where the machine doesn't give it.
bool make_room(int clients) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_max > static_cast<rlim_t>(clients) + kSoftLimit;
}

TEST_SUITE_BEGIN("system/store_burst");

TEST_CASE("2000 connections in one burst are served with a soft limit of 256 descriptors") {
    if (!make_room(kBurst)) {
        MESSAGE("skipped: the hard limit of descriptors is too low here");
        return;
    }
    Command daemon({
        .argv = {program("ddprund"), "--store_only", "--listen", "127.0.0.1:0"},
        .deadline = 100s,
        .in_child =
            [] {
                rlimit limit{};
                ::getrlimit(RLIMIT_NOFILE, &limit);
                limit.rlim_cur = kSoftLimit;
                ::setrlimit(RLIMIT_NOFILE, &limit);
            },
    });
    const auto line = daemon.wait_for_line("listening on ");
    REQUIRE(line);
    const auto port = static_cast<std::uint16_t>(std::stoi(line->substr(line->rfind(':') + 1)));
    const std::ptrdiff_t before = descriptors_of(daemon.pid());
    {
        std::vector<Client> clients;
        for (int i = 0; i < kBurst; ++i) {
            clients.emplace_back(port);
        }
        for (const Client& client : clients) {
            client.greet();
        }
        int answered = 0;
        for (const Client& client : clients) {
            answered += client.is_answered() ? 1 : 0;
        }
        CHECK(answered == kBurst);
        CHECK(descriptors_of(daemon.pid()) >= before + kBurst);
    }
    // A descriptor is back when a client that comes after all others has been served.
    const auto deadline = std::chrono::steady_clock::now() + 30s;
    while (descriptors_of(daemon.pid()) > before && std::chrono::steady_clock::now() < deadline) {
        const Client probe{port};
        probe.greet();
        CHECK(probe.is_answered());
    }
    CHECK(descriptors_of(daemon.pid()) <= before + 1);

    daemon.send_signal(SIGTERM);
    CHECK(daemon.finish().exit_code == 0);
}

TEST_CASE(
    "a crowd of 5000 connections leaves its memory behind when it goes, however often it comes"
) {
    if (kFreedMemoryStays || !make_room(kCrowd)) {
        MESSAGE("skipped: too few descriptors, or an address sanitizer that keeps freed memory");
        return;
    }
    constexpr int kRounds = 3;
    constexpr long kKept = 1'024;  // KiB: tables that have grown, and pages that are half full
    Command daemon({
        .argv = {program("ddprund"), "--store_only", "--listen", "127.0.0.1:0"},
        .deadline = 100s,
    });
    const auto line = daemon.wait_for_line("listening on ");
    REQUIRE(line);
    const auto port = static_cast<std::uint16_t>(std::stoi(line->substr(line->rfind(':') + 1)));
    const Client staying{port};
    staying.greet();
    REQUIRE(staying.is_answered());
    const long before = memory_of(daemon.pid());

    for (int round = 0; round < kRounds; ++round) {
        CAPTURE(round);
        {
            std::vector<Client> crowd;
            for (int i = 0; i < kCrowd; ++i) {
                crowd.emplace_back(port);
                crowd.back().greet();
            }
            int answered = 0;
            for (const Client& client : crowd) {
                answered += client.is_answered() ? 1 : 0;
            }
            REQUIRE(answered == kCrowd);
            CHECK(memory_of(daemon.pid()) > before + kKept);
        }
        const auto deadline = std::chrono::steady_clock::now() + 30s;
        while (memory_of(daemon.pid()) > before + kKept &&
               std::chrono::steady_clock::now() < deadline) {
            staying.send(kGreeting.substr(5));  // PING
            REQUIRE(staying.is_answered());
        }
        CHECK(memory_of(daemon.pid()) <= before + kKept);
    }

    daemon.send_signal(SIGTERM);
    CHECK(daemon.finish().exit_code == 0);
}

TEST_CASE("what large values took goes back to the system while their client stays") {
    if (kFreedMemoryStays) {
        MESSAGE("skipped: the address sanitizer keeps freed memory");
        return;
    }
    constexpr int kValues = 6;
    constexpr std::size_t kValueBytes = 8U << 20U;
    constexpr long kMuch = kValues * static_cast<long>(kValueBytes >> 10U);
    Command daemon({
        .argv = {program("ddprund"), "--store_only", "--listen", "127.0.0.1:0"},
        .deadline = 100s,
    });
    const auto line = daemon.wait_for_line("listening on ");
    REQUIRE(line);
    const Client client{static_cast<std::uint16_t>(std::stoi(line->substr(line->rfind(':') + 1)))};
    client.greet();
    REQUIRE(client.is_answered());
    const long before = memory_of(daemon.pid());

    std::string pairs;
    for (int i = 0; i < kValues; ++i) {
        pairs +=
            length(1) + std::to_string(i) + length(kValueBytes) + std::string(kValueBytes, 'v');
    }
    client.send("\x0b" + length(kValues) + pairs);  // MULTI_SET
    client.send(kGreeting.substr(5));
    REQUIRE(client.is_answered());
    CHECK(memory_of(daemon.pid()) > before + kMuch / 2);

    for (int i = 0; i < kValues; ++i) {
        client.send("\x01" + length(1) + std::to_string(i) + length(0));  // SET to nothing
    }
    const auto deadline = std::chrono::steady_clock::now() + 30s;
    while (memory_of(daemon.pid()) > before + kMuch / 8 &&
           std::chrono::steady_clock::now() < deadline) {
        client.send(kGreeting.substr(5));  // PING
        REQUIRE(client.is_answered());
    }
    CHECK(memory_of(daemon.pid()) <= before + kMuch / 8);

    daemon.send_signal(SIGTERM);
    CHECK(daemon.finish().exit_code == 0);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
