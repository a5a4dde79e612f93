#include "tests/bench/load_client.h"

#include "proto/store_messages.h"

#include <fmt/format.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace ddprun::bench {

[[noreturn]] void give_up(const char* what) {
    std::perror(what);
    std::exit(1);
}

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

double cpu_of(int pid) {
    std::ifstream file{fmt::format("/proc/{}/stat", pid)};
    std::string text{std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{}};
    if (pid == 0 || text.empty()) {
        return 0;
    }
    std::istringstream fields{text.substr(text.rfind(')') + 2)};
    std::string skipped;
    for (int i = 0; i < 11; ++i) {
        fields >> skipped;
    }
    double user = 0;
    double system = 0;
    fields >> user >> system;
    return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

std::size_t resident_bytes_of(int pid) {
    std::ifstream file{fmt::format("/proc/{}/statm", pid)};
    std::size_t total = 0;
    std::size_t resident = 0;
    file >> total >> resident;
    return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

void raise_descriptor_limit() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

int connect_to(int port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
        give_up("connect");
    }
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

void send_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count < 0) {
            give_up("send");
        }
        bytes.remove_prefix(static_cast<std::size_t>(count));
    }
}

void receive_all(int fd, std::size_t size) {
    std::array<char, 65'536> buffer;
    while (size > 0) {
        const ssize_t count = ::recv(fd, buffer.data(), std::min(size, buffer.size()), 0);
        if (count <= 0) {
            give_up("receive");
        }
        size -= static_cast<std::size_t>(count);
    }
}

void greet(int fd) {
    std::string hello;
    encode_request(ValidateRequest{kStoreMagic}, hello);
    encode_request(PingRequest{1}, hello);
    send_all(fd, hello);
    receive_all(fd, 4);
}

}  // namespace ddprun::bench
