#include "tests/support/store_fixture.h"

#include "proto/assert.h"
#include "tests/support/store_samples.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

namespace ddprun {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{30};

}  // namespace

bool CaptureLog::has(std::string_view part) const {
    return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
        return line.find(part) != std::string::npos;
    });
}

StoreFixture::StoreFixture(StoreServerOptions options) {
    if (options.addresses.empty()) {
        options.addresses = {"127.0.0.1"};
    }
    auto listening = StoreServer::listen(io_context, std::move(options), log);
    DDPRUN_ASSERT(listening.has_value());
    server = std::move(*listening);
}

bool StoreFixture::run_until(const std::function<bool()>& condition) {
    const Clock::time_point deadline = Clock::now() + kPatience;
    while (!condition()) {
        if (Clock::now() >= deadline) {
            return false;
        }
        if (io_context.stopped()) {
            io_context.restart();
        }
        io_context.run_one_for(std::chrono::milliseconds{5});
    }
    return true;
}

void StoreFixture::run_ready() {
    if (io_context.stopped()) {
        io_context.restart();
    }
    while (io_context.poll() > 0) {
    }
}

RawClient::RawClient(StoreFixture& fixture, int receive_buffer_bytes)
    : fixture_(fixture),
      fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    DDPRUN_ASSERT(fd_ >= 0);
    if (receive_buffer_bytes > 0) {
        ::setsockopt(
            fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes
        );
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(fixture.server->port().value());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // The backlog takes it: the server needn't run for that.
    const int connected = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    DDPRUN_ASSERT(connected == 0);
}

RawClient::RawClient(RawClient&& other) noexcept
    : fixture_(other.fixture_),
      fd_(std::exchange(other.fd_, -1)) {}

RawClient::~RawClient() {
    close();
}

void RawClient::close() {
    if (fd_ >= 0) {
        ::close(std::exchange(fd_, -1));
    }
}

void RawClient::close_sending() {
    ::shutdown(fd_, SHUT_WR);
}

std::size_t RawClient::send_some(std::string_view bytes) {
    const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return count > 0 ? static_cast<std::size_t>(count) : 0;
}

bool RawClient::send(std::string_view bytes) {
    return fixture_.run_until([&] {
        bytes.remove_prefix(send_some(bytes));
        return bytes.empty();
    });
}

void RawClient::greet() {
    std::string bytes;
    encode_request(ValidateRequest{kStoreMagic}, bytes);
    encode_request(PingRequest{1}, bytes);
    ask(bytes, sizeof(PingRequest::nonce));
}

std::string RawClient::receive(std::size_t count) {
    std::string bytes;
    fixture_.run_until([&] {
        std::array<char, 65'536> chunk{};
        while (bytes.size() < count) {
            const std::size_t wanted = std::min(chunk.size(), count - bytes.size());
            const ssize_t got = ::recv(fd_, chunk.data(), wanted, MSG_DONTWAIT);
            if (got < 0 && errno == EAGAIN) {
                return false;
            }
            if (got <= 0) {
                return true;
            }
            bytes.append(chunk.data(), static_cast<std::size_t>(got));
        }
        return true;
    });
    return bytes;
}

std::string RawClient::ask(std::string_view bytes, std::size_t reply_bytes) {
    send(bytes);
    return receive(reply_bytes);
}

bool RawClient::is_closed_by_server() {
    return fixture_.run_until([&] {
        std::array<char, 65'536> chunk{};
        ssize_t got = 0;
        do {
            got = ::recv(fd_, chunk.data(), chunk.size(), MSG_DONTWAIT);
        } while (got > 0);
        return got == 0 || errno != EAGAIN;
    });
}

bool RawClient::has_silence() {
    fixture_.run_ready();
    char byte = 0;
    const ssize_t got = ::recv(fd_, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return got < 0 && errno == EAGAIN;
}

}  // namespace ddprun
