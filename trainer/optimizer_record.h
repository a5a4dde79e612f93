// What a checkpoint says about optimizer, schedule and scaler: plain values and tensors under the
// names of torch.optim and torch.amp.
#pragma once

#include "trainer/amp.h"
#include "trainer/named_tensors.h"
#include "trainer/optimizer.h"
#include "trainer/schedule.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ddprun::trainer {

struct GroupRecord {
    std::size_t parameters = 0;
    double lr = 0.0;
    double initial_lr = 0.0;
    double weight_decay = 0.0;

    friend bool operator==(const GroupRecord&, const GroupRecord&) = default;
};

struct OptimizerRecord {
    OptimizerOptions options;
    std::vector<GroupRecord> groups;
    /// One a parameter, in the order of the groups; empty where there is nothing yet.
    std::vector<NamedTensors> state;
};

/// The schedule in epochs, as torchvision's references step theirs.
struct ScheduleRecord {
    ScheduleOptions options;
    std::int64_t steps_per_epoch = 1;
    std::int64_t epochs_done = 0;
    std::int64_t shift = 0;  ///< steps of the schedule beyond those of the job (schedule_shift)
    std::size_t groups = 1;
};

}  // namespace ddprun::trainer
