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

/// The agent that made a folder of this name.
std::optional<pid_t> maker_of(std::string_view name, std::string_view prefix) {
    if (!name.starts_with(prefix)) {
        return std::nullopt;
    }
    name.remove_prefix(prefix.size());
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    const bool whole = error == std::errc{} && end != name.data() + name.size() && *end == '_';
    return whole && pid > 0 ? std::optional(pid) : std::nullopt;
}

bool is_own(const fs::path& path) {
    struct stat info {};

    return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
}

}  // namespace

std::string make_agent_folder(const std::string& base, std::string_view prefix) {
    std::string name = fmt::format("{}/{}{}_XXXXXX", base, prefix, ::getpid());
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
