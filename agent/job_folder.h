// The folder of one run of this agent: error files of the workers, and their logs where asked. A
// temporary one is removed at the end; one that the user named stays.
#pragma once

#include "agent/agent_settings.h"
#include "proto/log.h"
#include "proto/round_plan.h"
#include "proto/types.h"

#include <string>

namespace ddprun {

class JobFolder {
public:
    /// Makes the folder that `settings` name, and lets the link `latest` beside it point to it, or
    /// makes a temporary one. Where none can be made there are no files, which is logged.
    JobFolder(const OutputSettings& settings, Log& log);
    JobFolder(const JobFolder&) = delete;
    JobFolder& operator=(const JobFolder&) = delete;
    /// remove()
    ~JobFolder();

    /// Empty where there is none.
    [[nodiscard]] const std::string& path() const { return path_; }

    /// Makes the folders of a round's workers.
    void prepare(const RoundPlan& plan, LocalWorldSize workers);

    /// Of one worker of a round; empty where there is no folder.
    [[nodiscard]] std::string worker_folder(const RoundPlan& plan, LocalRank local_rank) const;

    [[nodiscard]] std::string error_file(const RoundPlan& plan, LocalRank local_rank) const;

    /// Removes a temporary folder and all in it.
    void remove();

private:
    void point_latest_here();

    Log& log_;
    std::string path_;
    bool temporary_ = false;
};

}  // namespace ddprun
