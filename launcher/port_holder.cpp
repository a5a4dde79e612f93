#include "launcher/port_holder.h"

#include "agent/kernel_file.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <sstream>
#include <system_error>

namespace ddprun::launcher {

namespace {

namespace fs = std::filesystem;

/// The descriptors of `process` hold one of the sockets.
bool holds_one_of(const fs::path& process, const std::set<std::uint64_t>& inodes) {
    std::error_code error;
    for (fs::directory_iterator each{process / "fd", error}, end; !error && each != end;
         each.increment(error)) {
        std::array<char, 64> target{};
        const ssize_t size = ::readlink(each->path().c_str(), target.data(), target.size() - 1);
        constexpr std::string_view kSocket = "socket:[";
        const std::string_view text{
            target.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
        std::uint64_t inode = 0;
        if (text.starts_with(kSocket)) {
            std::from_chars(text.data() + kSocket.size(), text.data() + text.size(), inode);
        }
        if (inodes.contains(inode)) {
            return true;
        }
    }
    return false;
}

}  // namespace

std::set<std::uint64_t> listening_inodes(std::string_view table, Port port) {
    constexpr std::string_view kListening = "0A";
    const std::string suffix = fmt::format(":{:04X}", port.value());
    std::set<std::uint64_t> inodes;
    std::istringstream lines{std::string{table}};
    for (std::string line; std::getline(lines, line);) {
        // sl local_address rem_address st tx:rx tr:when retransmits uid timeout inode ...
        std::istringstream words{line};
        std::string skipped;
        std::string local;
        std::string remote;
        std::string state;
        words >> skipped >> local >> remote >> state;
        for (int i = 0; i < 5; ++i) {
            words >> skipped;
        }
        std::uint64_t inode = 0;
        if (words >> inode && state == kListening && local.ends_with(suffix)) {
            inodes.insert(inode);
        }
    }
    return inodes;
}

std::string holder_of_port(Port port) {
    std::set<std::uint64_t> inodes;
    for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
        inodes.merge(listening_inodes(read_kernel_file(table), port));
    }
    std::error_code error;
    for (fs::directory_iterator each{"/proc", error}, end; !error && each != end;
         each.increment(error)) {
        const std::string name = each->path().filename().string();
        const bool is_process =
            std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
        if (is_process && holds_one_of(each->path(), inodes)) {
            std::string program = read_kernel_file(each->path() / "comm");
            program.resize(std::min(program.find('\n'), program.size()));
            return fmt::format("port {} is held by pid {} ({})", port, name, program);
        }
    }
    return inodes.empty() ? fmt::format("nobody listens on port {} any more", port)
                          : fmt::format("port {} is held by a process of another user", port);
}

}  // namespace ddprun::launcher
