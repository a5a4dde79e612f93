#include "trainer/evaluation.h"

#include "trainer/loader.h"
#include "trainer/sampler.h"
#include "trainer/stop_signal.h"

#include <torch/torch.h>

#include <algorithm>
#include <csignal>

namespace ddprun::trainer {

Outcome<EvaluationResult> evaluate(const EvaluationJob& job, TrainStep& step) {
    const torch::NoGradGuard no_grad;
    Loader loader(
        job.data,
        evaluation_indices(job.data.size(), job.place.world_size, job.place.rank),
        {.batch_size = job.options.batch_size,
         .workers = job.options.workers,
         .training = false,
         .epoch = 0,
         .bad = &job.bad,
         .make_memory = pinned_memory(job.form.device)}
    );
    DeviceBatches batches(loader, job.form);
    at::Tensor sums = torch::zeros({5}, at::kDouble);
    for (std::int64_t left = loader.batches(); left > 0 && stop_signal::pending() == 0; --left) {
        auto batch = batches.next();
        if (!batch) {
            return input_failed(batch.error());
        }
        if ((*batch)->size == 0) {
            continue;  // every picture of it was broken
        }
        const at::Tensor output = step.evaluate((*batch)->images);
        sums.narrow(0, 0, 2) += count_top(output, (*batch)->labels).to(at::kCPU);
        sums[2] += static_cast<double>((*batch)->size);
    }
    const int signal = stop_signal::pending();
    sums[3] = signal == SIGTERM ? 1.0 : 0.0;
    sums[4] = signal == SIGINT ? 1.0 : 0.0;
    all_reduce_sum(job.group, sums);
    const auto* sum = sums.const_data_ptr<double>();
    constexpr double kPerCent = 100.0;
    const double pictures = std::max(sum[2], 1.0);  // none: stopped before the first batch
    return EvaluationResult{
        .top1 = kPerCent * sum[0] / pictures,
        .top5 = kPerCent * sum[1] / pictures,
        .count = static_cast<std::int64_t>(sum[2]),
        .terminate = sum[3] > 0.0,
        .interrupt = sum[4] > 0.0};
}

}  // namespace ddprun::trainer
