// Load on a TCPStore server, ours or PyTorch's: one thread, epoll, one outstanding operation (or a
// pipeline of DEPTH) per connection. Prints one JSON object.
//
// Usage: store_load PORT PID OPERATION CONNECTIONS SECONDS [DEPTH [VALUE_BYTES]]
// OPERATION: set_get add wait_get compare_set multi_get; or, whatever SECONDS says, connect (one
// connection at a time, greeted) and herd (each connection ADDs 1 and WAITs until the last has).
// PID: the server's process, for its CPU time; 0 where it isn't known.
#include "proto/store_messages.h"
#include "tests/bench/load_client.h"

#include <fmt/format.h>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace ddprun;
using namespace ddprun::bench;

constexpr std::size_t kKeysOfMultiGet = 64;

/// A round trip: what is sent, and how many bytes the answer has.
struct Phase {
    std::string request;
    std::size_t reply_bytes = 0;
};

struct Connection {
    int fd = -1;
    std::size_t phase = 0;
    std::size_t sent = 0;
    std::size_t received = 0;
    bool wants_write = false;
    Clock::time_point begin;
};

std::string repeated(const std::vector<StoreRequest>& requests, std::size_t depth) {
    std::string bytes;
    for (std::size_t i = 0; i < depth; ++i) {
        for (const StoreRequest& request : requests) {
            encode_request(request, bytes);
        }
    }
    return bytes;
}

std::vector<Phase> phases_of(
    std::string_view operation, std::size_t depth, std::string_view value
) {
    const std::size_t value_reply = depth * (8 + value.size());
    if (operation == "set_get") {
        return {
            {repeated({SetRequest{"/bench", value}, GetRequest{"/bench"}}, depth), value_reply}};
    }
    if (operation == "add") {
        return {{repeated({AddRequest{"/count", 1}}, depth), 8 * depth}};
    }
    if (operation == "compare_set") {
        return {{repeated({CompareSetRequest{"/bench", value, value}}, depth), value_reply}};
    }
    if (operation == "wait_get") {
        return {
            {repeated({WaitRequest{{"/bench"}}}, 1), 1},
            {repeated({GetRequest{"/bench"}}, depth), value_reply}};
    }
    if (operation == "multi_get") {
        const std::vector<std::string_view> keys(kKeysOfMultiGet, "/bench");
        return {
            {repeated({WaitRequest{keys}}, 1), 1},
            {repeated({MultiGetRequest{keys}}, depth), kKeysOfMultiGet * value_reply}};
    }
    fmt::print(stderr, "unknown operation {}\n", operation);
    std::exit(2);
}

class Load {
public:
    Load(int port, std::size_t connections, std::vector<Phase> phases)
        : phases_(std::move(phases)),
          epoll_(::epoll_create1(EPOLL_CLOEXEC)),
          all_(connections) {
        for (std::size_t i = 0; i < connections; ++i) {
            all_[i].fd = connect_to(port);
            greet(all_[i].fd);
            epoll_event event{};
            event.events = EPOLLIN;
            event.data.u64 = i;
            ::epoll_ctl(epoll_, EPOLL_CTL_ADD, all_[i].fd, &event);
        }
    }

    /// Runs for `seconds`; latencies() and their number are the result.
    void run(double seconds) {
        const Clock::time_point begin = Clock::now();
        for (Connection& connection : all_) {
            start_phase(connection);
        }
        std::array<epoll_event, 256> events;
        while (seconds_since(begin) < seconds) {
            const int count = ::epoll_wait(epoll_, events.data(), events.size(), 100);
            for (int i = 0; i < count; ++i) {
                const epoll_event& event = events[static_cast<std::size_t>(i)];
                Connection& connection = all_[event.data.u64];
                if ((event.events & EPOLLOUT) != 0) {
                    write(connection);
                }
                if ((event.events & EPOLLIN) != 0) {
                    read(connection);
                }
            }
        }
    }

    std::vector<float>& latencies() { return latencies_; }

private:
    void start_phase(Connection& connection) {
        if (connection.phase == 0) {
            connection.begin = Clock::now();
        }
        connection.sent = 0;
        connection.received = 0;
        write(connection);
    }

    void write(Connection& connection) {
        const std::string_view rest =
            std::string_view{phases_[connection.phase].request}.substr(connection.sent);
        const ssize_t count =
            rest.empty()
                ? 0
                : ::send(connection.fd, rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count < 0 && errno != EAGAIN) {
            give_up("send");
        }
        connection.sent += count > 0 ? static_cast<std::size_t>(count) : 0;
        const bool wants_write = connection.sent < phases_[connection.phase].request.size();
        if (wants_write != connection.wants_write) {
            connection.wants_write = wants_write;
            epoll_event event{};
            event.events = EPOLLIN | (wants_write ? std::uint32_t{EPOLLOUT} : 0U);
            event.data.u64 = static_cast<std::uint64_t>(&connection - all_.data());
            ::epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.fd, &event);
        }
    }

    void read(Connection& connection) {
        const std::size_t left = phases_[connection.phase].reply_bytes - connection.received;
        const ssize_t count =
            ::recv(connection.fd, buffer_.data(), std::min(left, buffer_.size()), MSG_DONTWAIT);
        if (count == 0 || (count < 0 && errno != EAGAIN)) {
            give_up("receive");
        }
        connection.received += count > 0 ? static_cast<std::size_t>(count) : 0;
        if (connection.received < phases_[connection.phase].reply_bytes) {
            return;
        }
        connection.phase = (connection.phase + 1) % phases_.size();
        if (connection.phase == 0) {
            latencies_.push_back(static_cast<float>(1e6 * seconds_since(connection.begin)));
        }
        start_phase(connection);
    }

    std::vector<Phase> phases_;
    int epoll_;
    std::vector<Connection> all_;
    std::vector<float> latencies_;
    std::array<char, 262'144> buffer_{};
};

void run_load(int port, int pid, char** argv, int argc) {
    const std::string_view operation = argv[3];
    const auto connections = std::strtoull(argv[4], nullptr, 10);
    const double seconds = std::strtod(argv[5], nullptr);
    const std::size_t depth = argc > 6 ? std::strtoull(argv[6], nullptr, 10) : 1;
    const std::size_t value_bytes = argc > 7 ? std::strtoull(argv[7], nullptr, 10) : 128;
    const std::string value(value_bytes, 'v');
    {
        const int fd = connect_to(port);
        greet(fd);
        send_all(fd, repeated({SetRequest{"/bench", value}, PingRequest{1}}, 1));
        receive_all(fd, 4);
        ::close(fd);
    }
    Load load{port, connections, phases_of(operation, depth, value)};
    const double cpu_before = cpu_of(pid);
    load.run(seconds);
    const double cpu = cpu_of(pid) - cpu_before;
    std::vector<float>& latencies = load.latencies();
    if (latencies.empty()) {
        give_up("no operation was completed");
    }
    std::sort(latencies.begin(), latencies.end());
    const double operations = static_cast<double>(latencies.size() * depth);
    fmt::print(
        "{{\"operation\": \"{}\", \"connections\": {}, \"depth\": {}, \"value_bytes\": {}, "
        "\"operations_per_second\": {:.0f}, \"p99_us\": {:.1f}, \"server_cpu_us\": {:.2f}}}\n",
        operation,
        connections,
        depth,
        value_bytes,
        operations / seconds,
        latencies[latencies.size() * 99 / 100],
        1e6 * cpu / operations
    );
}

void run_connects(int port, std::size_t count) {
    const Clock::time_point begin = Clock::now();
    for (std::size_t i = 0; i < count; ++i) {
        const int fd = connect_to(port);
        greet(fd);
        ::close(fd);
    }
    fmt::print(
        "{{\"operation\": \"connect\", \"connections\": {}, \"operations_per_second\": {:.0f}}}\n",
        count,
        static_cast<double>(count) / seconds_since(begin)
    );
}

void run_herd(int port, std::size_t count) {
    const Clock::time_point begin = Clock::now();
    std::vector<int> all(count);
    const std::string arrive = repeated({AddRequest{"/herd", 1}, WaitRequest{{"/go"}}}, 1);
    for (int& fd : all) {
        fd = connect_to(port);
        std::string hello;
        encode_request(ValidateRequest{kStoreMagic}, hello);
        send_all(fd, hello + arrive);
    }
    for (const int fd : all) {
        receive_all(fd, 8);
    }
    const double opened = seconds_since(begin);
    const Clock::time_point release = Clock::now();
    const int last = connect_to(port);
    greet(last);
    send_all(last, repeated({SetRequest{"/go", ""}}, 1));
    for (const int fd : all) {
        receive_all(fd, 1);
    }
    fmt::print(
        "{{\"operation\": \"herd\", \"connections\": {}, \"opened_s\": {:.3f}, "
        "\"released_s\": {:.3f}}}\n",
        count,
        opened,
        seconds_since(release)
    );
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 6 || argc > 8) {
        std::cerr << "usage: store_load PORT PID OPERATION CONNECTIONS SECONDS [DEPTH [BYTES]]\n";
        return 2;
    }
    raise_descriptor_limit();
    const int port = std::atoi(argv[1]);
    const int pid = std::atoi(argv[2]);
    const std::string_view operation = argv[3];
    const std::size_t count = std::strtoull(argv[4], nullptr, 10);
    if (operation == "connect") {
        run_connects(port, count);
    } else if (operation == "herd") {
        run_herd(port, count);
    } else {
        run_load(port, pid, argv, argc);
    }
    return 0;
}
