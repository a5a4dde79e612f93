// What the process groups of PyTorch say to a store when a job begins, replayed for many simulated
// ranks from one thread; and what connections and keys cost the server in memory. Prints one JSON
// object.
//
// Usage: store_replay PORT PID gloo|nccl|idle|fill COUNT
// gloo: COUNT ranks connect, store their address and read every rank's: COUNT (4 + 3 COUNT)
// messages. nccl: COUNT ranks connect, every 128th stores an id, all wait for all ids and read
// them. idle: COUNT connections that say no more than hello. fill: COUNT keys of 20 and values of
// 128 bytes.
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
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace ddprun;
using namespace ddprun::bench;

/// One send, and how many bytes it is answered with.
struct Step {
    std::string request;
    std::size_t reply_bytes = 0;
};

/// A rank's next step by its number; none at its end.
using Script = std::function<std::optional<Step>(std::size_t rank, std::size_t step)>;

struct Rank {
    int fd = -1;
    std::size_t step = 0;
    std::size_t awaited = 0;
};

std::string bytes_of(const StoreRequest& request) {
    std::string bytes;
    encode_request(request, bytes);
    return bytes;
}

/// The three messages of every client: a greeting, and that it counts itself in.
Step hello() {
    std::string bytes;
    encode_request(ValidateRequest{kStoreMagic}, bytes);
    encode_request(PingRequest{1}, bytes);
    encode_request(AddRequest{"/init/", 1}, bytes);
    return {bytes, 4 + 8};
}

class Replay {
public:
    Replay(std::size_t count, Script script)
        : script_(std::move(script)),
          epoll_(::epoll_create1(EPOLL_CLOEXEC)),
          ranks_(count) {}

    void run(int port) {
        for (std::size_t i = 0; i < ranks_.size(); ++i) {
            ranks_[i].fd = connect_to(port);
            epoll_event event{};
            event.events = EPOLLIN;
            event.data.u64 = i;
            ::epoll_ctl(epoll_, EPOLL_CTL_ADD, ranks_[i].fd, &event);
            go_on(i);
        }
        std::array<epoll_event, 256> events;
        while (ended_ < ranks_.size()) {
            const int count = ::epoll_wait(epoll_, events.data(), events.size(), -1);
            for (int i = 0; i < count; ++i) {
                read(events[static_cast<std::size_t>(i)].data.u64);
            }
        }
    }

private:
    /// Sends until something is awaited.
    void go_on(std::size_t index) {
        Rank& rank = ranks_[index];
        while (rank.awaited == 0) {
            const std::optional<Step> step = script_(index, rank.step++);
            if (!step) {
                ++ended_;
                return;
            }
            send_all(rank.fd, step->request);
            rank.awaited = step->reply_bytes;
        }
    }

    void read(std::size_t index) {
        Rank& rank = ranks_[index];
        const ssize_t count =
            ::recv(rank.fd, buffer_.data(), std::min(rank.awaited, buffer_.size()), MSG_DONTWAIT);
        if (count == 0 || (count < 0 && errno != EAGAIN)) {
            give_up("receive");
        }
        rank.awaited -= count > 0 ? static_cast<std::size_t>(count) : 0;
        go_on(index);
    }

    Script script_;
    int epoll_;
    std::vector<Rank> ranks_;
    std::size_t ended_ = 0;
    std::array<char, 262'144> buffer_{};
};

Script gloo_script(std::size_t count) {
    constexpr std::size_t kAddressBytes = 154;  // with a host's name of two letters
    const std::string address(kAddressBytes + 8 * count, 'a');
    return [count, address](std::size_t rank, std::size_t step) -> std::optional<Step> {
        constexpr std::size_t kStepsBefore = 2;
        constexpr std::size_t kStepsPerPeer = 3;
        if (step == 0) {
            return hello();
        }
        if (step == 1) {
            return Step{
                bytes_of(SetRequest{fmt::format("/default_pg/0//cpu//0/{}", rank), address})};
        }
        const std::size_t peer = (step - kStepsBefore) / kStepsPerPeer;
        if (peer >= count) {
            return std::nullopt;
        }
        const std::string key = fmt::format("/default_pg/0//cpu//0/{}", peer);
        if ((step - kStepsBefore) % kStepsPerPeer < 2) {  // gloo waits, and get() waits again
            return Step{bytes_of(WaitRequest{{key}}), 1};
        }
        return Step{bytes_of(GetRequest{key}), 8 + address.size()};
    };
}

Script nccl_script(std::size_t count) {
    constexpr std::size_t kRanksPerRoot = 128;
    constexpr std::size_t kIdBytes = 128;
    const std::size_t roots = (count + kRanksPerRoot - 1) / kRanksPerRoot;
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < roots; ++i) {
        keys.push_back(fmt::format("/default_pg/0//cuda//UniqueNCCLID:{}", i));
    }
    const std::vector<std::string_view> views{keys.begin(), keys.end()};
    const std::string wait = bytes_of(WaitRequest{views});
    const std::string get = bytes_of(MultiGetRequest{views});
    return [=](std::size_t rank, std::size_t step) -> std::optional<Step> {
        switch (step) {
            case 0: return hello();
            case 1:
                if (rank % kRanksPerRoot != 0) {
                    return Step{};
                }
                return Step{
                    bytes_of(SetRequest{keys[rank / kRanksPerRoot], std::string(kIdBytes, 'i')})};
            case 2: return Step{wait, 1};
            case 3: return Step{get, roots * (8 + kIdBytes)};
            default: return std::nullopt;
        }
    };
}

void run_replay(int port, int pid, std::string_view what, std::size_t count) {
    const double cpu_before = cpu_of(pid);
    const Clock::time_point begin = Clock::now();
    Replay replay{count, what == "gloo" ? gloo_script(count) : nccl_script(count)};
    replay.run(port);
    const double seconds = seconds_since(begin);
    fmt::print(
        "{{\"operation\": \"{}\", \"ranks\": {}, \"seconds\": {:.3f}, \"server_cpu_s\": {:.3f}}}\n",
        what,
        count,
        seconds,
        cpu_of(pid) - cpu_before
    );
}

void run_idle(int port, int pid, std::size_t count) {
    const std::size_t before = resident_bytes_of(pid);
    for (std::size_t i = 0; i < count; ++i) {
        greet(connect_to(port));  // stays open to the end of this program
    }
    const std::size_t grown = resident_bytes_of(pid) - std::min(before, resident_bytes_of(pid));
    fmt::print(
        "{{\"operation\": \"idle\", \"connections\": {}, \"bytes_per_connection\": {}}}\n",
        count,
        grown / count
    );
}

void run_fill(int port, int pid, std::size_t count) {
    constexpr std::size_t kKeysPerSend = 100;
    const int fd = connect_to(port);
    greet(fd);
    const std::string value(128, 'v');
    std::size_t stored = 0;
    const std::size_t before = resident_bytes_of(pid);
    for (std::size_t i = 0; i < count;) {
        std::string requests;
        for (std::size_t end = std::min(count, i + kKeysPerSend); i < end; ++i) {
            const std::string key = fmt::format("/bench/key/{:09}", i);
            stored += key.size() + value.size();
            encode_request(SetRequest{key, value}, requests);
        }
        encode_request(PingRequest{1}, requests);
        send_all(fd, requests);
        receive_all(fd, sizeof(PingRequest::nonce));
    }
    const std::size_t grown = resident_bytes_of(pid) - before;
    fmt::print(
        "{{\"operation\": \"fill\", \"keys\": {}, \"memory_per_stored_byte\": {:.2f}}}\n",
        count,
        static_cast<double>(grown) / static_cast<double>(stored)
    );
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) {
        std::cerr << "usage: store_replay PORT PID gloo|nccl|idle|fill COUNT\n";
        return 2;
    }
    raise_descriptor_limit();
    const int port = std::atoi(argv[1]);
    const int pid = std::atoi(argv[2]);
    const std::string_view what = argv[3];
    const std::size_t count = std::strtoull(argv[4], nullptr, 10);
    if (count == 0) {
        std::cerr << "store_replay: COUNT is a number above 0\n";
        return 2;
    }
    if (what == "gloo" || what == "nccl") {
        run_replay(port, pid, what, count);
    } else if (what == "idle") {
        run_idle(port, pid, count);
    } else if (what == "fill") {
        run_fill(port, pid, count);
    } else {
        std::cerr << "store_replay: " << what << " is none of gloo, nccl, idle, fill\n";
        return 2;
    }
    return 0;
}
