#include "launcher/program.h"

#include <fmt/format.h>

#include <unistd.h>

#include <string_view>
#include <system_error>

namespace ddprun::launcher {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDefaultPath = "/usr/local/bin:/usr/bin:/bin";

std::string variable(const Environment& environment, const char* name, std::string_view fallback) {
    const auto found = environment.find(name);
    return std::string{found == environment.end() ? fallback : std::string_view{found->second}};
}

bool is_file(const fs::path& path) {
    std::error_code ignored;  // whatever can't be looked at isn't there for us
    return fs::is_regular_file(path, ignored);
}

bool is_executable(const fs::path& path) {
    return ::access(path.c_str(), X_OK) == 0;
}

/// A file that can be executed; else the reason.
Result<std::string> checked(const std::string& path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) {
        return fail(
            Errc::not_found,
            fmt::format("start {}: {}", path, error ? error.message() : "no such file or directory")
        );
    }
    if (fs::is_directory(status)) {
        return fail(Errc::permission_denied, fmt::format("start {}: it is a folder", path));
    }
    if (!is_executable(path)) {
        return fail(
            Errc::permission_denied,
            fmt::format("start {0}: it is not executable (try: chmod +x {0})", path)
        );
    }
    return path;
}

Result<std::string> find_in_path(
    const std::string& name, const Environment& environment, const fs::path& own_folder
) {
    const std::string path = variable(environment, "PATH", kDefaultPath);
    std::string found_but_not_executable;
    std::string_view rest = path;
    while (true) {
        const std::size_t colon = rest.find(':');
        const std::string_view folder = rest.substr(0, colon);
        const fs::path candidate = fs::path{folder.empty() ? "." : folder} / name;
        if (is_file(candidate)) {
            if (is_executable(candidate)) {
                return candidate.string();
            }
            found_but_not_executable = candidate.string();
        }
        if (colon == std::string_view::npos) {
            break;
        }
        rest.remove_prefix(colon + 1);
    }
    const fs::path beside = own_folder / name;
    if (is_file(beside)) {
        return checked(beside.string());
    }
    if (!found_but_not_executable.empty()) {
        return checked(found_but_not_executable);
    }
    std::string hint;
    if (is_file(name)) {
        hint = fmt::format("; the working folder has one: write ./{}", name);
    }
    return fail(
        Errc::not_found,
        fmt::format(
            "start {}: not found in PATH ({}) nor beside ddprun ({}){}",
            name,
            path,
            own_folder.string(),
            hint
        )
    );
}

Result<std::string> find_executable(
    const std::string& name, const Environment& environment, const fs::path& own_folder
) {
    if (name.find('/') != std::string::npos) {
        return checked(name);
    }
    return find_in_path(name, environment, own_folder);
}

}  // namespace

Result<Program> resolve_program(
    const LaunchCommand& command, const Environment& environment, const fs::path& own_folder
) {
    const std::string& name = command.program.front();
    const bool is_script = !command.no_python && !command.is_module && name.ends_with(".py");
    Program program;
    std::string executable = name;
    if (is_script || command.is_module) {
        if (is_script) {
            std::error_code error;
            if (!fs::exists(name, error)) {
                return fail(
                    Errc::not_found, fmt::format("start {}: no such file or directory", name)
                );
            }
        }
        executable = variable(environment, "PYTHON_EXEC", "python3");
        if (executable.empty()) {
            executable = "python3";  // a variable without a value is none
        }
        program.argv = {executable, "-u"};
        if (command.is_module) {
            program.argv.emplace_back("-m");
        }
    }
    auto path = find_executable(executable, environment, own_folder);
    if (!path) {
        return fail(path.error());
    }
    program.path = std::move(*path);
    program.argv.insert(program.argv.end(), command.program.begin(), command.program.end());
    return program;
}

}  // namespace ddprun::launcher
