#include "agent/job_folder.h"

#include "agent/agent_folders.h"
#include "agent/worker_environment.h"

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace ddprun {

JobFolder::JobFolder(const OutputSettings& settings, Log& log)
    : log_(log),
      path_(settings.run_folder) {
    std::error_code error;
    if (!settings.has_folder) {
        path_.clear();
        return;
    }
    if (!path_.empty()) {
        std::filesystem::create_directories(path_, error);
        if (error) {
            log_.warning(
                "make the log folder {}: {}; the job goes on without log files",
                path_,
                error.message()
            );
            path_.clear();
        } else {
            point_latest_here();
        }
        return;
    }
    const std::filesystem::path base = std::filesystem::temp_directory_path(error);
    path_ = make_agent_folder(error ? "/tmp" : base.string(), kTemporaryFolderPrefix);
    if (path_.empty()) {
        log_.warning(
            "make a temporary folder below {} (for the workers' error files): {}",
            base.string(),
            std::generic_category().message(errno)
        );
        return;
    }
    temporary_ = true;
}

JobFolder::~JobFolder() {
    remove();
}

/// Replaces the link in one step, so that whoever follows it always finds a run.
void JobFolder::point_latest_here() {
    namespace fs = std::filesystem;
    const fs::path path(path_);
    const fs::path link = path.parent_path() / "latest";
    const fs::path fresh = path.parent_path() / fmt::format(".latest_{}", path.filename().string());
    std::error_code error;
    fs::create_directory_symlink(path.filename(), fresh, error);
    if (!error) {
        fs::rename(fresh, link, error);
    }
    if (error) {
        log_.warning("let {} point to {}: {}", link.string(), path_, error.message());
        std::error_code ignored;
        fs::remove(fresh, ignored);
    }
}

void JobFolder::prepare(const RoundPlan& plan, LocalWorldSize workers) {
    if (path_.empty()) {
        return;
    }
    for (std::int32_t local = 0; local < workers.value(); ++local) {
        std::error_code error;
        const std::string folder = worker_folder(plan, LocalRank{local});
        std::filesystem::create_directories(folder, error);
        if (error) {
            log_.warning("make {}: {}", folder, error.message());
            return;
        }
        // What an earlier run left there under the same name is not this worker's.
        std::filesystem::remove(error_file(plan, LocalRank{local}), error);
    }
}

std::string JobFolder::worker_folder(const RoundPlan& plan, LocalRank local_rank) const {
    return path_.empty() ? std::string{} : ddprun::worker_folder(path_, plan, local_rank);
}

std::string JobFolder::error_file(const RoundPlan& plan, LocalRank local_rank) const {
    return path_.empty() ? std::string{} : worker_folder(plan, local_rank) + "/error.json";
}

void JobFolder::remove() {
    if (temporary_) {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
        temporary_ = false;
    }
}

}  // namespace ddprun
