#include "tests/support/scripted_store.h"

#include "proto/assert.h"
#include "proto/store_messages.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace ddprun {

namespace {

struct Bound {
    int fd = -1;
    std::uint16_t port = 0;
};

Bound bind_to(const std::string& address, std::uint16_t port) {
    sockaddr_in6 v6{};
    sockaddr_in v4{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    const bool is_v6 = ::inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) == 1;
    DDPRUN_ASSERT(is_v6 || ::inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1);
    auto* name = is_v6 ? reinterpret_cast<sockaddr*>(&v6) : reinterpret_cast<sockaddr*>(&v4);
    socklen_t size = is_v6 ? sizeof v6 : sizeof v4;
    const int fd = ::socket(name->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    DDPRUN_ASSERT(fd >= 0);
    const int on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    DDPRUN_ASSERT(::bind(fd, name, size) == 0);
    DDPRUN_ASSERT(::getsockname(fd, name, &size) == 0);
    return {fd, ntohs(is_v6 ? v6.sin6_port : v4.sin_port)};
}

}  // namespace

ScriptedStore::ScriptedStore(Serve serve, const std::string& address, std::uint16_t port)
    : serve_(std::move(serve)),
      address_(address) {
    const Bound bound = bind_to(address, port);
    listening_ = bound.fd;
    port_ = bound.port;
    DDPRUN_ASSERT(::listen(listening_, SOMAXCONN) == 0);
    accepting_ = std::thread{[this] { accept_all(); }};
}

ScriptedStore::~ScriptedStore() {
    {
        const std::lock_guard lock{mutex_};
        is_ending_ = true;
    }
    ::shutdown(listening_, SHUT_RDWR);  // ends the accept()
    accepting_.join();
    ::close(listening_);
    end_connections();
    for (std::thread& each : all_) {
        each.join();
    }
    for (const int fd : open_) {
        ::close(fd);
    }
}

StoreClientOptions ScriptedStore::options() const {
    StoreClientOptions options;
    options.host = address_;
    options.port = port_;
    options.timeout = std::chrono::milliseconds{10'000};
    options.connect_timeout = std::chrono::milliseconds{10'000};
    return options;
}

void ScriptedStore::end_connections() {
    const std::lock_guard lock{mutex_};
    for (const int fd : open_) {
        ::shutdown(fd, SHUT_RDWR);
    }
}

void ScriptedStore::accept_all() {
    while (true) {
        const int fd = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
        const std::lock_guard lock{mutex_};
        if (fd < 0 || is_ending_) {
            if (fd >= 0) {
                ::close(fd);
            }
            return;
        }
        ++accepted_;
        open_.push_back(fd);
        all_.emplace_back([this, fd] { serve_(fd); });
    }
}

std::string ScriptedStore::receive(int fd, std::size_t count) {
    std::string bytes(count, '\0');
    const ssize_t got = ::recv(fd, bytes.data(), count, MSG_WAITALL);
    return got == static_cast<ssize_t>(count) ? bytes : std::string{};
}

bool ScriptedStore::send(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count <= 0) {
            return false;
        }
        bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
}

bool ScriptedStore::greet(int fd) {
    std::string hello;
    encode_request(ValidateRequest{kStoreMagic}, hello);
    encode_request(PingRequest{0}, hello);
    const std::string got = receive(fd, hello.size());
    return !got.empty() && send(fd, got.substr(got.size() - sizeof(PingRequest::nonce)));
}

void ScriptedStore::swallow(int fd) {
    std::array<char, 65'536> chunk{};
    while (::recv(fd, chunk.data(), chunk.size(), 0) > 0) {
    }
}

ClosedPort::ClosedPort() {
    const Bound bound = bind_to("127.0.0.1", 0);
    fd_ = bound.fd;
    number_ = bound.port;
}

ClosedPort::~ClosedPort() {
    ::close(fd_);
}

}  // namespace ddprun
