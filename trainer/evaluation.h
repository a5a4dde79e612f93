// Accuracy of the model on the test split, each picture counted once, over all ranks.
#pragma once

#include "trainer/bad_samples.h"
#include "trainer/data.h"
#include "trainer/device_batches.h"
#include "trainer/options.h"
#include "trainer/outcome.h"
#include "trainer/process_group.h"
#include "trainer/train_step.h"
#include "trainer/worker_place.h"

#include <cstdint>

namespace ddprun::trainer {

struct EvaluationJob {
    const Options& options;
    const WorkerPlace& place;
    const ProcessGroupPtr& group;
    const Dataset& data;
    BatchForm form;
    BadSamples& bad;  ///< pictures that can't be read are not counted
};

struct EvaluationResult {
    double top1 = 0.0;  ///< per cent
    double top5 = 0.0;
    std::int64_t count = 0;
    bool terminate = false;  ///< a rank got SIGTERM: the numbers are not those of all pictures
    bool interrupt = false;  ///< or SIGINT
};

/// Collective. The model must be in evaluation mode.
[[nodiscard]] Outcome<EvaluationResult> evaluate(const EvaluationJob& job, TrainStep& step);

}  // namespace ddprun::trainer
