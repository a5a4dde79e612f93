#include "agent/agent_folders.h"

#include <fmt/format.h>

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>

namespace ddprun {

namespace {

namespace fs = std::filesystem;

/// Takes "<number>_" off the front.
template <class Number>
std::optional<Number> take_number(std::string_view& text) {
    Number number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end == text.data() + text.size() || *end != '_') {
        return std::nullopt;
    }
    text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
    return number;
}

/// The agent that made a folder of this name, where it was one of this PID namespace.
std::optional<pid_t> maker_of(std::string_view name, std::string_view prefix) {
    if (!name.starts_with(prefix)) {
        return std::nullopt;
    }
    name.remove_prefix(prefix.size());
    const auto space = take_number<std::uint64_t>(name);
    const auto pid = space ? take_number<pid_t>(name) : std::nullopt;
    return pid && *pid > 0 && *space != 0 && *space == pid_namespace() ? pid : std::nullopt;
}

bool is_own(const fs::path& path) {
    struct stat info {};

    return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
}

}  // namespace

std::uint64_t pid_namespace() {
    struct stat info {};

    return ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

std::string make_agent_folder(const std::string& base, std::string_view prefix) {
    std::string name = fmt::format("{}/{}{}_{}_XXXXXX", base, prefix, pid_namespace(), ::getpid());
    return ::mkdtemp(name.data()) == nullptr ? std::string{} : name;
}

void remove_agent_folders(
    const std::string& base,
    std::string_view prefix,
    const std::function<bool(pid_t)>& is_wanted,
    const std::function<void(const std::string&)>& removed
) {
    std::error_code error;
    for (fs::directory_iterator entry(base, error), end; !error && entry != end;
         entry.increment(error)) {
        const auto maker = maker_of(entry->path().filename().string(), prefix);
        if (maker && is_wanted(*maker) && is_own(entry->path())) {
            std::error_code ignored;
            fs::remove_all(entry->path(), ignored);
            if (removed) {
                removed(entry->path().string());
            }
        }
    }
}

void remove_folders_left_by(pid_t agent) {
    const auto is_of_agent = [agent](pid_t maker) { return maker == agent; };
    remove_agent_folders(kSharedMemory, kMemoryFolderPrefix, is_of_agent);
    std::error_code error;
    const fs::path temporary = fs::temp_directory_path(error);
    if (!error) {
        remove_agent_folders(temporary.string(), kTemporaryFolderPrefix, is_of_agent);
    }
}

}  // namespace ddprun
