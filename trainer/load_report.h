// How the work was shared between the ranks: a table for the log and a picture (SVG) with a bar for
// each rank and a pie of where the time of all went. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun::trainer {

/// One rank's share of this life of the job.
struct RankLoad {
    std::int64_t pictures = 0;
    double data = 0.0;     ///< seconds of waiting for data
    double compute = 0.0;  ///< seconds of forward, backward and the communication within
    double update = 0.0;   ///< seconds of the optimizer
    double wait = 0.0;     ///< seconds of waiting for the other ranks after a step

    [[nodiscard]] double total() const { return data + compute + update + wait; }
};

/// How far the busiest rank's work (all but waiting for others) is above the mean: 0 is balanced.
[[nodiscard]] double imbalance(const std::vector<RankLoad>& loads);

/// Several lines, the last one with its end.
[[nodiscard]] std::string load_table(const std::vector<RankLoad>& loads);

[[nodiscard]] std::string load_picture(const std::vector<RankLoad>& loads);

}  // namespace ddprun::trainer
