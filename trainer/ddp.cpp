#include "trainer/ddp.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <torch/torch.h>

#include <limits>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace ddprun::trainer {
namespace {

constexpr std::size_t kBroadcastBytes = std::size_t{250} * 1024 * 1024;
constexpr double kBytesPerMb = 1024.0 * 1024.0;
constexpr double kNanoseconds = 1e-9;

using BucketIndices = std::vector<std::vector<std::size_t>>;

struct ReducerArguments {
    std::vector<at::Tensor> parameters;
    BucketIndices buckets;
    c10::intrusive_ptr<c10d::ProcessGroup> group;
    std::int64_t cap = 0;
    std::int64_t first_cap = 0;
    bool find_unused = false;
    bool gradient_as_bucket_view = false;
};

/// LibTorch 2.11 and newer want a list of caps as the twelfth argument, 2.9 and 2.10 have eleven.
/// A template, so that the form that doesn't exist is never looked at.
template <class Reducer>
std::shared_ptr<Reducer> make_reducer(ReducerArguments a) {
    using Names = std::unordered_map<std::size_t, std::string>;
    using Caps = std::vector<std::int64_t>;
    const std::vector<bool> sparse(a.parameters.size(), false);
    constexpr bool kHasCaps = std::is_constructible_v<
        Reducer,
        std::vector<at::Tensor>,
        BucketIndices,
        c10::intrusive_ptr<c10d::ProcessGroup>,
        std::vector<bool>,
        std::int64_t,
        bool,
        bool,
        Names,
        std::int64_t,
        bool,
        bool,
        Caps>;
    const auto make = [&](auto... more) {
        return std::make_shared<Reducer>(
            std::move(a.parameters),
            std::move(a.buckets),
            std::move(a.group),
            sparse,
            a.cap,
            a.find_unused,
            a.gradient_as_bucket_view,
            Names{},
            a.first_cap,
            /*skip_all_reduce_unused_params=*/false,
            /*use_python_reducer=*/false,
            std::move(more)...
        );
    };
    if constexpr (kHasCaps) {
        return make(Caps{});
    } else {
        return make();
    }
}

/// What the sink's backward pass needs, kept alive by the graph.
struct SinkState final : torch::CustomClassHolder {
    std::shared_ptr<c10d::Reducer> reducer;
    std::shared_ptr<bool> delayed;  ///< set with a static graph only
};

/// Lets outputs through. It keeps the gradient of an output that the loss doesn't use undefined,
/// and with a static graph puts the first all-reduce off to the end of the first backward pass.
class Sink final : public torch::autograd::Function<Sink> {
public:
    static torch::autograd::variable_list forward(
        torch::autograd::AutogradContext* context,
        const c10::intrusive_ptr<SinkState>& state,
        at::TensorList outputs
    ) {
        context->set_materialize_grads(false);
        context->saved_data["state"] = c10::IValue::make_capsule(state);
        torch::autograd::variable_list clones;
        clones.reserve(outputs.size());
        for (const auto& output : outputs) {
            clones.push_back(output.clone());
        }
        return clones;
    }

    static torch::autograd::variable_list backward(
        torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients
    ) {
        const auto capsule = context->saved_data["state"].toCapsule();
        const auto* state = static_cast<const SinkState*>(capsule.get());
        if (state->delayed && !*state->delayed) {
            *state->delayed = true;
            torch::autograd::Engine::get_default_engine().queue_callback(
                [reducer = state->reducer] { reducer->delay_all_reduce(); }
            );
        }
        torch::autograd::variable_list result{at::Tensor()};
        result.insert(result.end(), gradients.begin(), gradients.end());
        return result;
    }
};

/// Gradients travel in bfloat16: half the bytes, the range of float.
class Bf16CompressHook final
    : public c10d::CppCommHookInterface<c10::intrusive_ptr<c10d::ProcessGroup>> {
public:
    using CppCommHookInterface::CppCommHookInterface;

    c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
        const at::Tensor buffer = bucket.getBuffer();
        std::vector<at::Tensor> compressed{
            buffer.to(at::kBFloat16).div_(static_cast<double>(state_->getSize()))};
        const auto work = state_->allreduce(compressed);
        return work->getFuture()->then(
            [buffer](c10::ivalue::Future& done) {
                buffer.copy_(done.value().toTensorVector().front());
                return c10::IValue(buffer);
            },
            c10::TensorType::get()
        );
    }
};

}  // namespace

DistributedDataParallel::DistributedDataParallel(
    std::shared_ptr<torch::nn::Module> module,
    c10::intrusive_ptr<c10d::ProcessGroup> group,
    const DdpOptions& options
)
    : module_(std::move(module)),
      group_(std::move(group)),
      options_(options) {
    collect();
    c10d::verify_params_across_processes(group_, parameters_, std::nullopt);
    broadcast_module();
    build_reducer();
    register_builtin_hook();
}

DistributedDataParallel::~DistributedDataParallel() = default;

void DistributedDataParallel::collect() {
    std::unordered_set<const c10::TensorImpl*> seen;
    for (const auto& parameter : module_->parameters()) {
        if (parameter.requires_grad() && seen.insert(parameter.unsafeGetTensorImpl()).second) {
            parameters_.push_back(parameter);
        }
    }
    TORCH_CHECK(
        !parameters_.empty(),
        "DistributedDataParallel is not needed: no parameter of the module requires a gradient"
    );
    if (options_.broadcast_buffers) {
        buffers_ = module_->buffers();
    }
}

void DistributedDataParallel::broadcast_module() {
    const torch::NoGradGuard no_grad;
    std::vector<at::Tensor> state;
    for (const auto& parameter : module_->parameters()) {
        state.push_back(parameter.detach());
    }
    for (const auto& buffer : buffers_) {
        state.push_back(buffer.detach());
    }
    c10d::broadcast_coalesced(group_, state, kBroadcastBytes, 0);
}

void DistributedDataParallel::build_reducer() {
    const bool own_cap = options_.bucket_cap_mb.has_value();
    ReducerArguments arguments;
    arguments.cap = own_cap ? static_cast<std::int64_t>(*options_.bucket_cap_mb * kBytesPerMb)
                            : c10d::kDefaultBucketBytesCap;
    arguments.first_cap = own_cap ? arguments.cap : c10d::kDefaultFirstBucketBytes;
    arguments.buckets = options_.initial_buckets;
    if (arguments.buckets.empty()) {
        std::vector<std::size_t> limits{
            static_cast<std::size_t>(arguments.first_cap), static_cast<std::size_t>(arguments.cap)};
        if (options_.static_graph || !options_.find_unused_parameters) {
            // The order in which gradients come is not known yet: one bucket, rebuilt after the
            // first backward pass has shown it.
            limits = {static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max())};
        } else if (own_cap) {
            limits.resize(1);
        }
        arguments.buckets =
            std::get<0>(c10d::compute_bucket_assignment_by_size(parameters_, limits));
        std::reverse(arguments.buckets.begin(), arguments.buckets.end());
    }
    arguments.parameters = parameters_;
    arguments.group = group_;
    arguments.find_unused = options_.find_unused_parameters;
    arguments.gradient_as_bucket_view = options_.gradient_as_bucket_view;
    reducer_ = make_reducer<c10d::Reducer>(std::move(arguments));

    logger_ = std::make_shared<c10d::Logger>(reducer_);
    reducer_->set_logger(logger_);
    logger_->set_construction_data_and_log(
        module_->name(), {}, -1, options_.broadcast_buffers, false, options_.static_graph
    );
    if (options_.static_graph) {
        reducer_->set_static_graph();
        logger_->set_static_graph();
        delayed_ = std::make_shared<bool>(false);
    }
}

void DistributedDataParallel::register_builtin_hook() {
    switch (options_.comm_hook) {
        case CommHook::none: return;
        case CommHook::allreduce:
            reducer_->register_builtin_comm_hook(c10d::BuiltinCommHookType::ALLREDUCE);
            logger_->set_comm_hook("allreduce");
            return;
        case CommHook::fp16_compress:
            reducer_->register_builtin_comm_hook(c10d::BuiltinCommHookType::FP16_COMPRESS);
            logger_->set_comm_hook("fp16_compress");
            return;
        case CommHook::bf16_compress:
            reducer_->register_comm_hook(std::make_unique<Bf16CompressHook>(group_));
            logger_->set_comm_hook("bf16_compress");
            return;
        case CommHook::power_sgd:
            reducer_->register_comm_hook(make_power_sgd_hook(group_, options_.power_sgd));
            logger_->set_comm_hook("power_sgd");
            return;
    }
}

void DistributedDataParallel::register_comm_hook(std::unique_ptr<c10d::CommHookInterface> hook) {
    reducer_->register_comm_hook(std::move(hook));
    logger_->set_comm_hook("own");
}

std::vector<at::Tensor> DistributedDataParallel::forward(
    const std::function<std::vector<at::Tensor>()>& module_forward
) {
    before_forward();
    return after_forward(module_forward());
}

at::Tensor DistributedDataParallel::forward(const std::function<at::Tensor()>& module_forward) {
    before_forward();
    return after_forward({module_forward()}).front();
}

void DistributedDataParallel::before_forward() {
    const bool grad = torch::GradMode::is_enabled();
    if (grad && sync_) {
        if (timed_) {
            logger_->set_runtime_stats_and_log();
        }
        reducer_->prepare_for_forward();
    }
    // Before the activations take their memory: old and new buckets exist together for a moment.
    if (grad) {
        rebuild_buckets();
    }
    if (buffers_due_) {
        sync_buffers();
    }
}

void DistributedDataParallel::rebuild_buckets() {
    if (reducer_->rebuild_buckets()) {
        rebuilt_ = true;
    }
}

void DistributedDataParallel::prepare_for_capture() {
    timed_ = false;
    reducer_->set_ddp_runtime_logging_sample_rate(std::numeric_limits<int>::max());
}

void DistributedDataParallel::sync_buffers() {
    if (buffers_.empty()) {
        return;
    }
    const torch::NoGradGuard no_grad;
    // A graph of an earlier forward pass may have saved a buffer; the broadcast must not look like
    // a change to it.
    std::vector<std::int64_t> versions;
    versions.reserve(buffers_.size());
    for (const auto& buffer : buffers_) {
        versions.push_back(buffer._version());
    }
    c10d::broadcast_coalesced(group_, buffers_, kBroadcastBytes, 0);
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
        c10::VariableVersion version = buffers_[i].unsafeGetTensorImpl()->version_counter();
        version.set_version(versions[i]);
    }
}

std::vector<at::Tensor> DistributedDataParallel::after_forward(std::vector<at::Tensor> outputs) {
    const bool static_graph = options_.static_graph;
    const bool find_unused = options_.find_unused_parameters && !static_graph;
    buffers_due_ = torch::GradMode::is_enabled() && sync_;
    if (buffers_due_) {
        reducer_->prepare_for_backward(find_unused ? outputs : std::vector<at::Tensor>{});
    }
    if (!find_unused && !(static_graph && !*delayed_)) {
        return outputs;
    }
    std::vector<at::Tensor> with_graph;
    for (const auto& output : outputs) {
        if (output.grad_fn()) {
            with_graph.push_back(output);
        }
    }
    if (with_graph.empty()) {
        return outputs;
    }
    auto state = c10::make_intrusive<SinkState>();
    state->reducer = reducer_;
    state->delayed = delayed_;
    const auto passed = Sink::apply(state, at::TensorList(with_graph));
    std::size_t next = 0;
    for (auto& output : outputs) {
        if (output.grad_fn()) {
            output = passed[next++];
        }
    }
    return outputs;
}

std::vector<std::vector<std::size_t>> DistributedDataParallel::bucket_indices() const {
    return logger_->get_per_bucket_variable_indices();
}

DistributedDataParallel::Timing DistributedDataParallel::timing() const {
    const auto data = logger_->get_ddp_logging_data();
    const auto seconds = [&data](const char* name) {
        const auto found = data.ints_map.find(name);
        return found == data.ints_map.end() ? 0.0
                                            : static_cast<double>(found->second) * kNanoseconds;
    };
    return {
        .forward = seconds("avg_forward_compute_time"),
        .backward = seconds("avg_backward_compute_time"),
        .communication = seconds("avg_backward_comm_time"),
        .overlap = seconds("avg_backward_compute_comm_overlap_time"),
    };
}

}  // namespace ddprun::trainer
