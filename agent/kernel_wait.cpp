#include "agent/kernel_wait.h"

#include "agent/kernel_file.h"
#include "proto/limits.h"

#include <fmt/format.h>

#include <algorithm>

namespace ddprun {

namespace {

/// The first line, cut to a length that fits a message, without control characters.
std::string first_line(const std::string& path) {
    std::string line = read_kernel_file(path);
    line.resize(std::min({line.find('\n'), line.size(), limits::kKernelTextBytesMax}));
    std::erase_if(line, [](unsigned char c) { return c < 0x20 || c == 0x7F; });
    return line;
}

struct NameAndState {
    std::string name;
    char state = 0;
};

/// Of /proc/PID/stat, "4711 (python3) D 1 ...": the name may hold blanks and parentheses.
NameAndState name_and_state(const std::string& stat) {
    const std::size_t begin = stat.find('(');
    const std::size_t end = stat.rfind(')');
    if (begin == std::string::npos || end == std::string::npos || end + 2 >= stat.size()) {
        return {};
    }
    return {stat.substr(begin + 1, end - begin - 1), stat[end + 2]};
}

/// The function that the process waits in. A kernel that hides wchan ("0") may show the stack:
/// "[<0>] do_wait+0x1c/0x30".
std::string wait_channel(const std::string& folder) {
    const std::string channel = first_line(folder + "/wchan");
    if (!channel.empty() && channel != "0") {
        return channel;
    }
    const std::string frame = first_line(folder + "/stack");
    const std::size_t blank = frame.find(' ');
    return blank == std::string::npos ? std::string{}
                                      : frame.substr(blank + 1, frame.find('+') - blank - 1);
}

}  // namespace

std::string describe_kernel_wait(const std::string& proc, pid_t pid) {
    const std::string folder = fmt::format("{}/{}", proc, pid);
    std::string text = fmt::format("process {}", pid);
    const NameAndState found = name_and_state(first_line(folder + "/stat"));
    if (found.state != 0) {
        text += fmt::format(" ({}), state {}", found.name, found.state);
    }
    const std::string channel = wait_channel(folder);
    text += channel.empty() ? ", hangs in the kernel"
                            : fmt::format(", waits in the kernel in {}", channel);
    return text;
}

}  // namespace ddprun
