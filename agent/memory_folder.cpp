#include "agent/memory_folder.h"

#include <fmt/format.h>

#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "ddprun_memory_";

/// The agent that made a folder of this name.
std::optional<pid_t> maker_of(std::string_view name) {
    if (!name.starts_with(kPrefix)) {
        return std::nullopt;
    }
    name.remove_prefix(kPrefix.size());
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    const bool whole = error == std::errc{} && end != name.data() + name.size() && *end == '_';
    return whole && pid > 0 ? std::optional(pid) : std::nullopt;
}

bool is_gone(pid_t pid) {
    return ::kill(pid, 0) != 0 && errno == ESRCH;
}

bool is_own(const fs::path& path) {
    struct stat info {};

    return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
}

}  // namespace

MemoryFolder::MemoryFolder(Log& log, std::string base) : log_(log), base_(std::move(base)) {
    remove_left_behind();
    std::string name = fmt::format("{}/{}{}_XXXXXX", base_, kPrefix, ::getpid());
    if (::mkdtemp(name.data()) != nullptr) {
        path_ = name;
    }
}

MemoryFolder::~MemoryFolder() {
    remove();
}

void MemoryFolder::remove_left_behind() const {
    std::error_code error;
    for (fs::directory_iterator entry(base_, error), end; !error && entry != end;
         entry.increment(error)) {
        const auto maker = maker_of(entry->path().filename().string());
        if (maker && is_gone(*maker) && is_own(entry->path())) {
            std::error_code ignored;
            fs::remove_all(entry->path(), ignored);
            log_.info("removed {}, left by an agent that was killed", entry->path().string());
        }
    }
}

void MemoryFolder::remove() {
    if (!path_.empty()) {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
        path_.clear();
    }
}

}  // namespace ddprun
