#include "tests/support/system.h"

#include "tests/support/command.h"

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

namespace ddprun::test {

namespace fs = std::filesystem;

std::string program(std::string_view name) {
    return (fs::path{DDPRUN_BIN_DIR} / name).string();
}

std::vector<std::string> ddprun(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), program("ddprun"));
    return arguments;
}

std::vector<pid_t> workers_of(pid_t ddprun) {
    std::vector<pid_t> workers;
    for (const pid_t agent : Command::children_of(ddprun)) {
        const std::vector<pid_t> children = Command::children_of(agent);
        workers.insert(workers.end(), children.begin(), children.end());
    }
    return workers;
}

std::string free_port() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-cstyle-cast): the socket interface's way
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(::bind(fd, generic, size) == 0);
    REQUIRE(::getsockname(fd, generic, &size) == 0);
    ::close(fd);
    return std::to_string(ntohs(address.sin_port));
}

std::string read_file(const fs::path& path) {
    std::ifstream file{path, std::ios::binary};
    std::ostringstream text;
    text << file.rdbuf();  // not by iterators: they throw when a process of /proc ends meanwhile
    return text.str();
}

std::vector<std::string> sorted_lines(std::string_view text) {
    std::vector<std::string> lines;
    std::istringstream stream{std::string{text}};
    for (std::string line; std::getline(stream, line);) {
        if (!line.empty()) {
            lines.push_back(line);
        }
    }
    std::ranges::sort(lines);
    return lines;
}

std::string text_of(std::string_view console, std::string_view prefix) {
    std::string text;
    std::istringstream stream{std::string{console}};
    for (std::string line; std::getline(stream, line);) {
        if (line.starts_with(prefix)) {
            text += line.substr(prefix.size());
        }
    }
    return text;
}

int count_of(std::string_view text, std::string_view part) {
    int count = 0;
    for (std::size_t at = text.find(part); at != std::string_view::npos;
         at = text.find(part, at + part.size())) {
        ++count;
    }
    return count;
}

TemporaryFolder::TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "ddprun-test-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;  // a test that fails must not fail twice
    fs::remove_all(path_, ignored);
}

std::string TemporaryFolder::path(std::string_view name) const {
    return name.empty() ? path_.string() : (path_ / name).string();
}

std::string TemporaryFolder::file(std::string_view name, std::string_view content, bool executable)
    const {
    const fs::path path = path_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream{path, std::ios::binary} << content;
    fs::permissions(path, executable ? fs::perms{0755} : fs::perms{0644});
    return path.string();
}

}  // namespace ddprun::test
