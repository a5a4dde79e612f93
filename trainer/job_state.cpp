#include "trainer/job_state.h"

#include "trainer/checkpoint_reader.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <optional>
#include <utility>

namespace ddprun::trainer {
namespace {

/// What rank 0 tells the others before the tensors, as numbers in this order.
enum Header : std::int64_t {
    kStatus,
    kFound,
    kFromDir,
    kStep,
    kEpoch,
    kConsumed,
    kRngBytes,
    kBucketNumbers,
    kHeaderSize,
};

struct Found {
    std::optional<TrainingState> state;
    std::string path;
    bool from_dir = false;
};

Outcome<Found> find(const Options& options, const NamedTensors& model, Log& log) {
    Found found;
    if (!options.checkpoint_dir.empty()) {
        auto newest = newest_good_checkpoint(options.checkpoint_dir, model, log);
        if (!newest) {
            return input_failed(newest.error());
        }
        if (*newest) {
            found.state = std::move((*newest)->state);
            found.path = (*newest)->path;
            found.from_dir = true;
            return found;
        }
    }
    if (!options.resume.empty()) {
        auto state = read_checkpoint(options.resume);
        if (!state) {
            return input_failed(state.error());
        }
        found.state = std::move(*state);
        found.path = options.resume;
    }
    return found;
}

/// Puts a checkpoint into rank 0's model and optimizer.
Outcome<void> apply(const Found& found, const NamedTensors& model, Sgd& sgd) {
    const TrainingState& state = *found.state;
    if (auto loaded = load_weights(model, state.model, found.path); !loaded) {
        return input_failed(loaded.error());
    }
    const auto& parameters = sgd.parameters();
    if (state.momentum_buffers.empty()) {
        return {};
    }
    bool fits = state.momentum_buffers.size() == parameters.size();
    for (std::size_t i = 0; fits && i < parameters.size(); ++i) {
        const at::Tensor& buffer = state.momentum_buffers[i];
        fits = !buffer.defined() || buffer.sizes() == parameters[i].sizes();
    }
    if (!fits) {
        return stop_with(
            exit_code::kData,
            fmt::format("checkpoint {}: its optimizer is not of this model", found.path)
        );
    }
    sgd.restore(state.momentum_buffers);
    return {};
}

/// Buckets as numbers: for each its length, then its indices.
std::vector<std::int64_t> flatten(const std::vector<std::vector<std::size_t>>& buckets) {
    std::vector<std::int64_t> numbers;
    for (const auto& bucket : buckets) {
        numbers.push_back(static_cast<std::int64_t>(bucket.size()));
        for (const std::size_t index : bucket) {
            numbers.push_back(static_cast<std::int64_t>(index));
        }
    }
    return numbers;
}

std::vector<std::vector<std::size_t>> unflatten(const at::Tensor& numbers) {
    std::vector<std::vector<std::size_t>> buckets;
    const auto* next = numbers.const_data_ptr<std::int64_t>();
    const auto* end = next + numbers.numel();
    while (next < end) {
        const auto length = *next++;
        buckets.emplace_back(next, next + length);
        next += length;
    }
    return buckets;
}

/// A layout that covers each of `count` parameters exactly once; anything else can't be used.
bool is_layout(const std::vector<std::vector<std::size_t>>& buckets, std::size_t count) {
    std::vector<bool> seen(count, false);
    std::size_t covered = 0;
    for (const auto& bucket : buckets) {
        for (const std::size_t index : bucket) {
            if (index >= count || seen[index]) {
                return false;
            }
            seen[index] = true;
            ++covered;
        }
    }
    return covered == count;
}

/// All ranks leave with rank 0's weights, buffers and momentum.
void send_tensors(const ProcessGroupPtr& group, const NamedTensors& model, Sgd& sgd, bool root) {
    const torch::NoGradGuard no_grad;
    for (const auto& [name, tensor] : model) {
        at::Tensor data = tensor.detach();
        broadcast(group, data, 0);
    }
    const auto& parameters = sgd.parameters();
    at::Tensor has = torch::zeros({static_cast<std::int64_t>(parameters.size())}, at::kLong);
    std::vector<at::Tensor> buffers = sgd.momentum_buffers();
    for (std::size_t i = 0; root && i < buffers.size(); ++i) {
        has[static_cast<std::int64_t>(i)] = buffers[i].defined() ? 1 : 0;
    }
    broadcast(group, has, 0);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        if (has[static_cast<std::int64_t>(i)].item<std::int64_t>() == 0) {
            continue;
        }
        if (!buffers[i].defined()) {
            buffers[i] = torch::empty_like(parameters[i]);
        }
        broadcast(group, buffers[i], 0);
    }
    if (!root) {
        sgd.restore(std::move(buffers));
    }
}

at::Tensor make_header(const Found& found, int status) {
    at::Tensor header = torch::zeros({kHeaderSize}, at::kLong);
    header[kStatus] = status;
    if (!found.state) {
        return header;
    }
    const TrainingState& state = *found.state;
    header[kFound] = 1;
    header[kFromDir] = found.from_dir ? 1 : 0;
    header[kStep] = state.step;
    header[kEpoch] = state.epoch;
    header[kConsumed] = state.position;
    header[kRngBytes] = state.rng.defined() ? state.rng.numel() : 0;
    header[kBucketNumbers] = static_cast<std::int64_t>(flatten(state.ddp_buckets).size());
    return header;
}

}  // namespace

NamedTensors state_dict(const torch::nn::Module& module) {
    NamedTensors result;
    for (const auto& part : module.named_modules()) {
        const std::string prefix = part.key().empty() ? "" : part.key() + ".";
        for (const auto& entry : part.value()->named_parameters(/*recurse=*/false)) {
            result.emplace_back(prefix + entry.key(), entry.value());
        }
        for (const auto& entry : part.value()->named_buffers(/*recurse=*/false)) {
            result.emplace_back(prefix + entry.key(), entry.value());
        }
    }
    return result;
}

Outcome<Resumed> resume(
    const Options& options,
    const WorkerPlace& place,
    const ProcessGroupPtr& group,
    torch::nn::Module& model,
    Sgd& sgd,
    Log& log
) {
    const bool root = place.rank == 0;
    const NamedTensors tensors = state_dict(model);
    Found found;
    std::optional<Failure> failure;
    if (root) {
        auto result = find(options, tensors, log);
        if (result) {
            found = std::move(*result);
            if (found.state) {
                if (auto applied = apply(found, tensors, sgd); !applied) {
                    failure = applied.error();
                }
            }
        } else {
            failure = result.error();
        }
    }
    // The outcome goes to all before anybody stops, so that nobody is left waiting.
    at::Tensor header = make_header(found, failure ? failure->status : 0);
    broadcast(group, header, 0);
    const auto number = [&header](Header name) { return header[name].item<std::int64_t>(); };
    if (failure) {
        return tl::unexpected<Failure>(*failure);
    }
    if (number(kStatus) != 0) {
        return stop_with(static_cast<int>(number(kStatus)), "");
    }
    Resumed resumed;
    if (number(kFound) == 0) {
        return resumed;
    }
    send_tensors(group, tensors, sgd, root);
    at::Tensor rng = root && number(kRngBytes) > 0 ? found.state->rng.contiguous()
                                                   : torch::zeros({number(kRngBytes)}, at::kByte);
    at::Tensor buckets = torch::zeros({number(kBucketNumbers)}, at::kLong);
    if (root) {
        buckets = torch::tensor(flatten(found.state->ddp_buckets), at::kLong);
    }
    if (number(kRngBytes) > 0) {
        broadcast(group, rng, 0);
        at::Generator generator = at::detail::getDefaultCPUGenerator();
        generator.set_state(rng);
    }
    if (number(kBucketNumbers) > 0) {
        broadcast(group, buckets, 0);
        resumed.ddp_buckets = unflatten(buckets);
        if (!is_layout(resumed.ddp_buckets, sgd.parameters().size())) {
            resumed.ddp_buckets.clear();
        }
    }
    resumed.position = {
        .step = number(kStep), .epoch = number(kEpoch), .consumed = number(kConsumed)};
    resumed.from_checkpoint_dir = number(kFromDir) != 0;
    resumed.path = found.path;
    return resumed;
}

Outcome<void> save(
    const Options& options,
    const Position& position,
    const torch::nn::Module& model,
    const Sgd& sgd,
    const DistributedDataParallel* ddp
) {
    TrainingState state;
    state.model = state_dict(model);
    state.momentum_buffers = sgd.momentum_buffers();
    state.lr = options.lr;
    state.momentum = options.momentum;
    state.weight_decay = options.weight_decay;
    state.nesterov = options.nesterov;
    state.epoch = position.epoch;
    state.step = position.step;
    state.position = position.consumed;
    state.rng = at::detail::getDefaultCPUGenerator().get_state();
    if (ddp != nullptr && position.step > 0) {
        state.ddp_buckets = ddp->bucket_indices();
    }
    state.args = describe_options(options);
    auto path = save_checkpoint(state, options.checkpoint_dir, options.keep);
    if (!path) {
        return output_failed(path.error());
    }
    return {};
}

}  // namespace ddprun::trainer
