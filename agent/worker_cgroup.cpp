#include "agent/worker_cgroup.h"

#include "agent/cgroups.h"
#include "agent/worker_environment.h"
#include "proto/limits.h"

#include <fmt/format.h>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ddprun {

namespace {

constexpr mode_t kFolderMode = 0755;
constexpr int kDepthMax = 8;  ///< of groups that workers made in theirs

/// Empty for none: never our own group.
std::string path_of(const std::string& name, const std::string& root) {
    if (name.empty()) {
        return {};
    }
    const auto own = OwnCgroups{root}.find("");
    return own ? fmt::format("{}/{}", own->folder(), name) : std::string{};
}

void kill_group(const std::string& path) {
    const UniqueFd file(::open((path + "/cgroup.kill").c_str(), O_WRONLY | O_CLOEXEC));
    if (file.valid()) {
        // Nothing can be done about a failure; the sweep goes on without.
        static_cast<void>(!::write(file.get(), "1", 1));
    }
}

/// Groups are removed from the innermost on; their files go with them.
void remove_group(const std::string& path, int depth) {
    if (::rmdir(path.c_str()) == 0 || depth == kDepthMax) {
        return;
    }
    DIR* folder = ::opendir(path.c_str());
    if (folder == nullptr) {
        return;
    }
    // One thread reads this folder.
    while (const dirent* entry = ::readdir(folder)) {  // NOLINT(concurrency-mt-unsafe)
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
            remove_group(fmt::format("{}/{}", path, entry->d_name), depth + 1);
        }
    }
    ::closedir(folder);
    ::rmdir(path.c_str());
}

/// A process that was reaped a moment ago may still be leaving its group.
void remove_whole(const std::string& path) {
    for (int tries = 0; tries < limits::kCgroupRemoveTries; ++tries) {
        remove_group(path, 0);
        if (::access(path.c_str(), F_OK) != 0) {
            return;
        }
        ::poll(nullptr, 0, static_cast<int>(limits::kSweepInterval.count()));
    }
}

}  // namespace

std::string worker_cgroup_name(Incarnation incarnation) {
    return "ddprun-" + worker_mark(incarnation);
}

WorkerCgroup::WorkerCgroup(const std::string& name, const std::string& root)
    : path_(path_of(name, root)) {
    if (path_.empty() || ::mkdir(path_.c_str(), kFolderMode) != 0) {
        path_.clear();
    } else if (::access((path_ + "/cgroup.kill").c_str(), W_OK) != 0) {
        remove();
    }
}

WorkerCgroup::~WorkerCgroup() {
    remove();
}

void WorkerCgroup::begin_round(Round round) {
    folder_.reset();
    if (path_.empty()) {
        return;
    }
    if (!round_path_.empty()) {
        remove_group(round_path_, 0);
    }
    round_path_ = fmt::format("{}/round-{}", path_, round);
    if (::mkdir(round_path_.c_str(), kFolderMode) == 0) {
        folder_.reset(::open(round_path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    }
}

void WorkerCgroup::kill() {
    if (folder_.valid()) {
        kill_group(round_path_);
        folder_.reset();
    }
}

void WorkerCgroup::remove() {
    folder_.reset();
    if (!path_.empty()) {
        remove_whole(path_);
        path_.clear();
    }
}

void kill_worker_cgroup(const std::string& name) {
    if (const std::string path = path_of(name, {}); !path.empty()) {
        kill_group(path);
    }
}

void remove_worker_cgroup(const std::string& name) {
    if (const std::string path = path_of(name, {}); !path.empty()) {
        remove_whole(path);
    }
}

}  // namespace ddprun
