#include "agent/job_folder.h"

#include "agent/worker_environment.h"

#include <fmt/format.h>

#include <stdlib.h>
#include <string.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace ddprun {

JobFolder::JobFolder(const std::string& wanted, Log& log) : log_(log), path_(wanted) {
    std::error_code error;
    if (!wanted.empty()) {
        std::filesystem::create_directories(wanted, error);
        if (error) {
            log_.warning("make the log folder {}: {}", wanted, error.message());
            path_.clear();
        }
        return;
    }
    const std::filesystem::path base = std::filesystem::temp_directory_path(error);
    std::string name = fmt::format("{}/ddprun_XXXXXX", error ? "/tmp" : base.string());
    if (::mkdtemp(name.data()) == nullptr) {
        log_.warning(
            "make a temporary folder below {} (for the workers' error files): {}",
            base.string(),
            std::generic_category().message(errno)
        );
        return;
    }
    path_ = name;
    temporary_ = true;
}

JobFolder::~JobFolder() {
    remove();
}

void JobFolder::prepare(const RoundPlan& plan, LocalWorldSize workers) {
    if (path_.empty()) {
        return;
    }
    for (std::int32_t local = 0; local < workers.value(); ++local) {
        std::error_code error;
        const std::string folder = worker_folder(path_, plan, LocalRank{local});
        std::filesystem::create_directories(folder, error);
        if (error) {
            log_.warning("make {}: {}", folder, error.message());
            return;
        }
        // What an earlier run left there under the same name is not this worker's.
        std::filesystem::remove(error_file(plan, LocalRank{local}), error);
    }
}

std::string JobFolder::error_file(const RoundPlan& plan, LocalRank local_rank) const {
    return path_.empty() ? std::string{} : worker_folder(path_, plan, local_rank) + "/error.json";
}

void JobFolder::remove() {
    if (temporary_) {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
        temporary_ = false;
    }
}

}  // namespace ddprun
