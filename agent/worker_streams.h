// Where the bytes of one worker's streams go, as a pure function of what the user asked for:
// torchrun's -r, -t, filters and folders, and our own choice by global rank.
#pragma once

#include "agent/agent_settings.h"
#include "agent/line_splitter.h"
#include "agent/prefix.h"
#include "agent/stream_kind.h"

#include <string>
#include <vector>

namespace ddprun {

struct StreamTargets {
    bool shown = true;          ///< on the console
    std::string file;           ///< that gets its bytes as they are; empty: none
    std::string filtered_file;  ///< that gets the lines which contain one of `filters`; empty: none
    std::vector<std::string> filters;
};

struct WorkerStreams {
    LineSplitter::Mode mode = LineSplitter::Mode::lines;
    std::string prefix;
    StreamTargets targets[2];

    [[nodiscard]] const StreamTargets& of(StreamKind kind) const {
        return targets[static_cast<std::size_t>(kind)];
    }
};

/// `worker_folder` is RUN_FOLDER/ATTEMPT/LOCAL_RANK, or empty where there are no files.
[[nodiscard]] WorkerStreams streams_of(
    const OutputSettings& settings, const PrefixValues& values, const std::string& worker_folder
);

}  // namespace ddprun
