// What the load generators share: blocking sockets to a TCPStore on loopback, and what /proc says
// of its process. Whatever fails ends the program.
#pragma once

#include <chrono>
#include <cstddef>
#include <string_view>

namespace ddprun::bench {

using Clock = std::chrono::steady_clock;

[[noreturn]] void give_up(const char* what);

[[nodiscard]] double seconds_since(Clock::time_point begin);

/// User and system time of a process, in seconds; 0 for process 0.
[[nodiscard]] double cpu_of(int pid);

/// Resident memory of a process.
[[nodiscard]] std::size_t resident_bytes_of(int pid);

void raise_descriptor_limit();

/// A connected socket without delay.
[[nodiscard]] int connect_to(int port);
void send_all(int fd, std::string_view bytes);
void receive_all(int fd, std::size_t size);

/// VALIDATE and PING, with the answer awaited.
void greet(int fd);

}  // namespace ddprun::bench
