// PowerSGD (Vogels et al., 2019) as a communication hook of DDP: each gradient matrix M travels as
// two thin ones, P = M Q and Q = M^T P, with the error of a step added to the next one's gradient
// and Q kept as its start. Numbers and their order are those of PyTorch's powerSGD_hook.
//
// Each all-reduce is awaited before the next: with Gloo the order of collectives must be the same
// on all ranks, which callbacks of its threads don't give. So on CPUs the compressed buckets don't
// overlap with backward; with NCCL waiting only orders streams.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>

namespace c10d {
class CommHookInterface;
class ProcessGroup;
}  // namespace c10d

namespace ddprun::trainer {

struct PowerSgdOptions {
    std::int64_t rank = 1;
    /// Whole gradients travel in the steps before; at least 2, since the buckets change after the
    /// first.
    std::int64_t start_step = 1'000;
    /// Matrices are compressed that become smaller by more than this factor.
    double min_compression_rate = 2.0;
    bool error_feedback = true;
    bool warm_start = true;
    double orthogonalization_epsilon = 0.0;
    std::uint32_t seed = 0;  ///< of the first Q; the same on all ranks
};

/// The hook's state (error, P, Q, the count of steps) begins anew with it.
[[nodiscard]] std::unique_ptr<c10d::CommHookInterface> make_power_sgd_hook(
    const c10::intrusive_ptr<c10d::ProcessGroup>& group, const PowerSgdOptions& options
);

}  // namespace ddprun::trainer
