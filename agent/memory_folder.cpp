#include "agent/memory_folder.h"

#include "agent/agent_folders.h"

#include <signal.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

namespace ddprun {
namespace {

bool is_gone(pid_t pid) {
    return ::kill(pid, 0) != 0 && errno == ESRCH;
}

}  // namespace

MemoryFolder::MemoryFolder(Log& log, std::string base) : log_(log), base_(std::move(base)) {
    remove_left_behind();
    path_ = make_agent_folder(base_, kMemoryFolderPrefix);
}

MemoryFolder::~MemoryFolder() {
    remove();
}

void MemoryFolder::remove_left_behind() const {
    remove_agent_folders(base_, kMemoryFolderPrefix, is_gone, [this](const std::string& path) {
        log_.debug("removed {}, left by an agent that was killed", path);
    });
}

void MemoryFolder::remove() {
    if (!path_.empty()) {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
        path_.clear();
    }
}

}  // namespace ddprun
