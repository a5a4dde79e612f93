// The prefix of a worker's console lines, as a pure function of a template.
#pragma once

#include "proto/round_plan.h"
#include "proto/types.h"

#include <string>
#include <string_view>

namespace ddprun {

struct PrefixValues {
    std::string role;
    std::string host;
    WorkerRanks ranks;
    Round round;
};

/// An empty template gives torchrun's "[default0]:". Macros: ${role_name} ${local_rank} ${rank}
/// ${hostname} (up to its first dot) ${round}; others stay as they are, ${time} too, which is a
/// matter of each line (line_splitter.h).
[[nodiscard]] std::string expand_prefix(
    std::string_view prefix_template, const PrefixValues& values
);

}  // namespace ddprun
