#include "agent/exec_trouble.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <fstream>

namespace ddprun {

namespace {

constexpr std::size_t kHeadBytes = 256;  // the kernel looks at no more

/// The path after "#!"; empty where there is none.
std::string_view interpreter_in(std::string_view head) {
    if (!head.starts_with("#!")) {
        return {};
    }
    head.remove_prefix(2);
    head = head.substr(0, head.find('\n'));
    const std::size_t begin = head.find_first_not_of(" \t");
    if (begin == std::string_view::npos) {
        return {};
    }
    head.remove_prefix(begin);
    return head.substr(0, head.find_first_of(" \t"));
}

}  // namespace

std::string describe_exec_trouble(
    const std::string& path, std::string_view head, int error_number
) {
    const std::string_view interpreter = interpreter_in(head);
    if (error_number == ENOEXEC) {
        return fmt::format(
            "execute {}: it is no program for this machine, and no script that names its "
            "interpreter; begin it with #!/bin/sh or the like",
            path
        );
    }
    if (error_number == ENOENT && !interpreter.empty()) {
        const bool is_dos = interpreter.ends_with('\r');
        return fmt::format(
            "execute {}: its interpreter {} is missing{}",
            path,
            interpreter.substr(0, interpreter.size() - (is_dos ? 1 : 0)),
            is_dos ? ", as its lines end with carriage returns, which belong to the name" : ""
        );
    }
    if (error_number == ENOENT && head.starts_with("\x7f"
                                                   "ELF")) {
        return fmt::format(
            "execute {}: the dynamic loader that it names is missing: it was built for another "
            "system",
            path
        );
    }
    if (error_number == EACCES && !interpreter.empty()) {
        return fmt::format(
            "execute {}: it, or its interpreter {}, may not be executed", path, interpreter
        );
    }
    return {};
}

std::string exec_trouble_of(const std::string& path, int error_number) {
    std::ifstream file{path, std::ios::binary};
    if (!file) {
        return {};
    }
    std::array<char, kHeadBytes> head{};
    file.read(head.data(), head.size());
    return describe_exec_trouble(
        path, {head.data(), static_cast<std::size_t>(file.gcount())}, error_number
    );
}

}  // namespace ddprun
