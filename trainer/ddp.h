// Distributed data parallel training without Python: the gradients of every rank's backward pass
// are averaged over all ranks in buckets, each as soon as its last gradient is there, while
// backward goes on. A thin driver of LibTorch's own c10d::Reducer, with the life cycle (and so the
// results) of torch.nn.parallel.DistributedDataParallel.
//
//     DistributedDataParallel ddp(model.ptr(), group, {});
//     auto loss = ddp.forward([&] { return cross_entropy(model->forward(x), y); });
//     loss.backward();   // gradients are the mean over all ranks afterwards
//
// Build it after the model has its final device, dtype and memory format; destroy it before another
// one is built on the same model. One thread uses it.
#pragma once

#include "trainer/power_sgd.h"

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace c10d {
class CommHookInterface;
class Logger;
class ProcessGroup;
class Reducer;
}  // namespace c10d

namespace torch::nn {
class Module;
}

namespace ddprun::trainer {

enum class CommHook {
    none,           ///< the Reducer's own all-reduce
    allreduce,      ///< the same as a hook
    fp16_compress,  ///< gradients travel in half precision
    bf16_compress,  ///< gradients travel in bfloat16
    power_sgd,      ///< matrices travel as products of thin ones
};

struct DdpOptions {
    std::optional<double> bucket_cap_mb{};  ///< unset: 25, with a first bucket of 1
    bool find_unused_parameters = false;
    bool broadcast_buffers = true;  ///< rank 0's buffers to all before each synchronised forward
    bool gradient_as_bucket_view = false;
    bool static_graph = false;
    CommHook comm_hook = CommHook::none;
    PowerSgdOptions power_sgd{};
    /// Start with these buckets of parameter indices (those of `bucket_indices` in an earlier run)
    /// instead of the usual first layout: on three and more ranks the order of a sum follows the
    /// layout, so a resumed run needs it to go on bit by bit. Empty: the usual one.
    std::vector<std::vector<std::size_t>> initial_buckets{};
};

class DistributedDataParallel {
public:
    /// Collective. Checks that all ranks have the same parameters, and sends rank 0's parameters
    /// and buffers to all. Throws c10::Error when ranks differ or a peer is gone.
    DistributedDataParallel(
        std::shared_ptr<torch::nn::Module> module,
        c10::intrusive_ptr<c10d::ProcessGroup> group,
        const DdpOptions& options
    );
    DistributedDataParallel(const DistributedDataParallel&) = delete;
    DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;
    ~DistributedDataParallel();

    /// Runs `module_forward` as the forward pass. What it returns must be what the loss is made of.
    [[nodiscard]] std::vector<at::Tensor> forward(
        const std::function<std::vector<at::Tensor>()>& module_forward
    );

    /// The same for a single output.
    [[nodiscard]] at::Tensor forward(const std::function<at::Tensor()>& module_forward);

    /// Sends rank 0's buffers to all now, as before a forward pass (nothing without
    /// `broadcast_buffers`): before an evaluation, so that all ranks judge the same model.
    void sync_buffers();

    /// While one lives, backward passes only add up gradients; the first one after it
    /// synchronises. The forward pass must lie inside, too.
    class NoSync {
    public:
        explicit NoSync(DistributedDataParallel& ddp) : ddp_(ddp), before_(ddp.sync_) {
            ddp_.sync_ = false;
        }

        NoSync(const NoSync&) = delete;
        NoSync& operator=(const NoSync&) = delete;

        ~NoSync() { ddp_.sync_ = before_; }

    private:
        DistributedDataParallel& ddp_;
        bool before_;
    };

    /// A hook of one's own instead of `DdpOptions::comm_hook`; once, before the first backward
    /// pass. The hook divides by the world size itself.
    void register_comm_hook(std::unique_ptr<c10d::CommHookInterface> hook);

    /// Collective. Rebuilds the buckets now if the next forward pass would: from then on
    /// `bucket_indices` is the layout of the next step. After a backward pass.
    void rebuild_buckets();

    /// From now on passes leave out what can't be recorded in a CUDA graph: timing() keeps what it
    /// has. After the buckets were rebuilt, and eleven synchronised passes, which Reducer times.
    void prepare_for_capture();

    /// Whether the buckets have been rebuilt in the order of the first backward pass.
    [[nodiscard]] bool buckets_rebuilt() const { return rebuilt_; }

    /// Indices into `parameters()`, bucket by bucket, in the layout in force.
    [[nodiscard]] std::vector<std::vector<std::size_t>> bucket_indices() const;

    /// The parameters that are synchronised: those that require a gradient, in module order.
    [[nodiscard]] const std::vector<at::Tensor>& parameters() const { return parameters_; }

    /// Seconds, averaged over the sampled iterations (1 to 10, then each 100th) by the Reducer.
    struct Timing {
        double forward = 0.0;
        double backward = 0.0;
        double communication = 0.0;
        double overlap = 0.0;  ///< communication that backward hid
    };

    [[nodiscard]] Timing timing() const;

private:
    void collect();
    void broadcast_module();
    void build_reducer();
    void register_builtin_hook();
    void before_forward();
    [[nodiscard]] std::vector<at::Tensor> after_forward(std::vector<at::Tensor> outputs);

    std::shared_ptr<torch::nn::Module> module_;
    c10::intrusive_ptr<c10d::ProcessGroup> group_;
    DdpOptions options_;
    std::vector<at::Tensor> parameters_;
    std::vector<at::Tensor> buffers_;
    std::shared_ptr<c10d::Reducer> reducer_;
    std::shared_ptr<c10d::Logger> logger_;
    bool sync_ = true;         ///< the coming backward pass synchronises
    bool buffers_due_ = true;  ///< the last forward pass was a synchronising one
    bool rebuilt_ = false;
    bool timed_ = true;              ///< statistics are kept
    std::shared_ptr<bool> delayed_;  ///< static graph: the first all-reduce has been put off
};

}  // namespace ddprun::trainer
