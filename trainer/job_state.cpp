#include "trainer/job_state.h"

#include "trainer/checkpoint_folder.h"
#include "trainer/checkpoint_reader.h"
#include "trainer/weights.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <bit>
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
    kBestTop1,  ///< the bits of a double, as the scale
    kRngBytes,
    kBucketNumbers,
    kScale,
    kGrowthTracker,
    kEmaUpdates,
    kHeaderSize,
};

enum Kind : std::int64_t { kNothing, kWeights, kState };

struct Found {
    std::optional<TrainingState> state;
    std::optional<NamedTensors> weights;
    std::string path;
    bool from_dir = false;

    [[nodiscard]] Kind kind() const { return state ? kState : weights ? kWeights : kNothing; }
};

struct Newest {
    TrainingState state;
    std::filesystem::path path;
    std::size_t from = 0;  ///< index of its folder
};

/// The newest of what the folders have.
Outcome<std::optional<Newest>> newest_of(
    const std::vector<std::string>& folders, const NamedTensors& model, Log& log
) {
    std::optional<Newest> best;
    for (std::size_t i = 0; i < folders.size(); ++i) {
        if (folders[i].empty()) {
            continue;
        }
        auto newest = newest_good_checkpoint(folders[i], model, log);
        if (!newest) {
            return input_failed(newest.error());
        }
        if (*newest && (!best || (*newest)->state.step > best->state.step)) {
            best = Newest{std::move((*newest)->state), (*newest)->path, i};
        }
    }
    return best;
}

Outcome<Found> find(
    const Options& options, const std::string& memory_dir, const NamedTensors& model, Log& log
) {
    Found found;
    auto newest = newest_of({options.checkpoint_dir, memory_dir}, model, log);
    if (!newest) {
        return tl::unexpected<Failure>(newest.error());
    }
    if (*newest) {
        found.state = std::move((*newest)->state);
        found.path = (*newest)->path;
        found.from_dir = (*newest)->from == 0;
        return found;
    }
    if (!options.resume.empty()) {
        auto state = read_checkpoint(options.resume);
        if (!state) {
            return input_failed(state.error());
        }
        found.state = std::move(*state);
        found.path = options.resume;
        return found;
    }
    if (!options.weights.empty()) {
        auto weights = read_weights(options.weights);
        if (!weights) {
            return input_failed(weights.error());
        }
        found.weights = std::move(*weights);
        found.path = options.weights;
    }
    return found;
}

/// The average begins as the model where there is none to go on with.
void begin_average(Ema& ema) {
    ema.restart();
    ema.update();
    ema.restart();
}

/// Puts what was found into rank 0's parts.
Outcome<void> apply(
    const Found& found, const NamedTensors& model, const JobParts& parts, Log& log
) {
    const auto& weights = found.state ? found.state->model : *found.weights;
    if (auto loaded = load_weights(model, weights, found.path, &log); !loaded) {
        return input_failed(loaded.error());
    }
    if (parts.ema != nullptr) {
        begin_average(*parts.ema);
    }
    if (!found.state) {
        return {};
    }
    const TrainingState& state = *found.state;
    if (!state.optimizer.state.empty() && !parts.optimizer.restore(state.optimizer.state)) {
        return stop_with(
            exit_code::kData,
            fmt::format(
                "checkpoint {}: its optimizer is not that of --optimizer and of this model; "
                "--weights takes the weights alone",
                found.path
            )
        );
    }
    if (parts.scaler != nullptr && state.scaler) {
        parts.scaler->restore(*state.scaler);
    }
    if (parts.ema != nullptr && !state.model_ema.empty()) {
        const std::string source = found.path + ": model_ema";
        if (auto loaded = load_weights(parts.ema->average(), state.model_ema, source, &log);
            !loaded) {
            return input_failed(loaded.error());
        }
        parts.ema->set_updates(state.ema_updates);
    }
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

void send_tensors(const ProcessGroupPtr& group, const NamedTensors& tensors) {
    const torch::NoGradGuard no_grad;
    for (const auto& [name, tensor] : tensors) {
        at::Tensor data = tensor.detach();
        broadcast(group, data, 0);
    }
}

/// All ranks leave with rank 0's optimizer state.
void send_optimizer(const ProcessGroupPtr& group, Optimizer& optimizer, bool root) {
    const torch::NoGradGuard no_grad;
    const auto& parameters = optimizer.parameters();
    std::vector<NamedTensors> state = optimizer.state();
    const std::vector<std::string> names = optimizer.state_names();
    at::Tensor has = torch::zeros({static_cast<std::int64_t>(parameters.size())}, at::kLong);
    for (std::size_t i = 0; root && i < state.size(); ++i) {
        has[static_cast<std::int64_t>(i)] = state[i].empty() ? 0 : 1;
    }
    broadcast(group, has, 0);
    for (std::size_t i = 0; i < state.size(); ++i) {
        if (has[static_cast<std::int64_t>(i)].item<std::int64_t>() == 0) {
            continue;
        }
        if (!root) {
            state[i] = optimizer.empty_state(parameters[i]);
        }
        send_tensors(group, state[i]);
    }
    if (!root) {
        static_cast<void>(optimizer.restore(state));  // made to fit
    }
}

at::Tensor make_header(const Found& found, const JobParts& parts, int status) {
    at::Tensor header = torch::zeros({kHeaderSize}, at::kLong);
    header[kStatus] = status;
    header[kFound] = static_cast<std::int64_t>(found.kind());
    if (!found.state) {
        return header;
    }
    const TrainingState& state = *found.state;
    header[kFromDir] = found.from_dir ? 1 : 0;
    header[kStep] = state.step;
    header[kEpoch] = state.epoch;
    header[kConsumed] = state.position;
    header[kBestTop1] = std::bit_cast<std::int64_t>(state.best_top1);
    header[kRngBytes] = state.rng.defined() ? state.rng.numel() : 0;
    header[kBucketNumbers] = static_cast<std::int64_t>(flatten(state.ddp_buckets).size());
    if (parts.scaler != nullptr) {
        header[kScale] = std::bit_cast<std::int64_t>(parts.scaler->state().scale);
        header[kGrowthTracker] = parts.scaler->state().growth_tracker;
    }
    header[kEmaUpdates] = parts.ema != nullptr ? parts.ema->updates() : 0;
    return header;
}

/// The random state and the buckets, which only a whole state has.
void send_rest(
    const ProcessGroupPtr& group,
    const Found& found,
    const JobParts& parts,
    const at::Tensor& header,
    Resumed& resumed
) {
    const auto number = [&header](Header name) { return header[name].item<std::int64_t>(); };
    const bool root = found.state.has_value();
    if (number(kRngBytes) > 0) {
        at::Tensor rng =
            root ? found.state->rng.contiguous() : torch::zeros({number(kRngBytes)}, at::kByte);
        broadcast(group, rng, 0);
        at::Generator generator = at::detail::getDefaultCPUGenerator();
        generator.set_state(rng);
    }
    if (number(kBucketNumbers) > 0) {
        at::Tensor buckets = root ? torch::tensor(flatten(found.state->ddp_buckets), at::kLong)
                                  : torch::zeros({number(kBucketNumbers)}, at::kLong);
        broadcast(group, buckets, 0);
        resumed.ddp_buckets = unflatten(buckets);
        if (!is_layout(resumed.ddp_buckets, parts.optimizer.parameters().size())) {
            resumed.ddp_buckets.clear();
        }
    }
    if (parts.scaler != nullptr) {
        GradScalerState scaler = parts.scaler->state();
        scaler.scale = std::bit_cast<double>(number(kScale));
        scaler.growth_tracker = number(kGrowthTracker);
        parts.scaler->restore(scaler);
    }
    if (parts.ema != nullptr) {
        parts.ema->set_updates(number(kEmaUpdates));
    }
    resumed.position = {
        .step = number(kStep),
        .epoch = number(kEpoch),
        .consumed = number(kConsumed),
        .best_top1 = std::bit_cast<double>(number(kBestTop1))};
    resumed.from_checkpoint_dir = number(kFromDir) != 0;
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

std::vector<ParameterGroup> parameter_groups(
    const torch::nn::Module& module, const Options& options
) {
    const double decay = options.weight_decay;
    ParameterGroup weights{.parameters = {}, .weight_decay = decay};
    ParameterGroup norms{
        .parameters = {},
        .weight_decay = options.norm_weight_decay.value_or(decay),
        .adapt = false};
    ParameterGroup biases{
        .parameters = {},
        .weight_decay = options.bias_weight_decay.value_or(decay),
        .adapt = false};
    // LARS leaves norms and biases as they are, so there they are groups in any case.
    const bool lars = options.optimizer == OptimizerChoice::lars;
    const bool norms_apart = options.norm_weight_decay.has_value() || lars;
    const bool biases_apart = options.bias_weight_decay.has_value() || lars;
    for (const auto& part : module.modules(/*include_self=*/true)) {
        const bool is_norm = part->as<torch::nn::BatchNorm2dImpl>() != nullptr;
        for (const auto& entry : part->named_parameters(/*recurse=*/false)) {
            ParameterGroup& group = biases_apart && entry.key() == "bias" ? biases
                                    : norms_apart && is_norm              ? norms
                                                                          : weights;
            group.parameters.push_back(entry.value());
        }
    }
    std::vector<ParameterGroup> groups;
    for (auto* group : {&weights, &norms, &biases}) {
        if (!group->parameters.empty()) {
            groups.push_back(std::move(*group));
        }
    }
    return groups;
}

Outcome<Resumed> resume(
    const Options& options,
    const std::string& memory_dir,
    const WorkerPlace& place,
    const ProcessGroupPtr& group,
    const JobParts& parts,
    Log& log
) {
    const bool root = place.rank == 0;
    const NamedTensors model = state_dict(parts.model);
    Found found;
    std::optional<Failure> failure;
    if (root) {
        auto result = find(options, memory_dir, model, log);
        if (result) {
            found = std::move(*result);
            if (found.kind() != kNothing) {
                if (auto applied = apply(found, model, parts, log); !applied) {
                    failure = applied.error();
                }
            }
        } else {
            failure = result.error();
        }
    }
    // The outcome goes to all before anybody stops, so that nobody is left waiting.
    at::Tensor header = make_header(found, parts, failure ? failure->status : 0);
    broadcast(group, header, 0);
    const auto number = [&header](Header name) { return header[name].item<std::int64_t>(); };
    if (failure) {
        return tl::unexpected<Failure>(*failure);
    }
    if (number(kStatus) != 0) {
        return stop_with(static_cast<int>(number(kStatus)), "");
    }
    Resumed resumed;
    resumed.path = found.path;
    resumed.weights_alone = number(kFound) == kWeights;
    if (number(kFound) == kNothing) {
        return resumed;
    }
    send_tensors(group, model);
    if (parts.ema != nullptr) {
        send_tensors(group, parts.ema->average());
    }
    if (number(kFound) == kState) {
        send_optimizer(group, parts.optimizer, root);
        send_rest(group, found, parts, header, resumed);
    }
    return resumed;
}

TrainingState state_of_job(
    const Options& options,
    const Position& position,
    const JobParts& parts,
    const ScheduleRecord& schedule,
    const DistributedDataParallel* ddp
) {
    TrainingState state;
    state.model = state_dict(parts.model);
    state.optimizer.options = parts.optimizer.options();
    const double lr = learning_rate(schedule.options, position.step + schedule.shift);
    for (const auto& group : parts.optimizer.groups()) {
        state.optimizer.groups.push_back(
            {.parameters = group.parameters.size(),
             .lr = lr,
             .initial_lr = schedule.options.lr,
             .weight_decay = group.weight_decay}
        );
    }
    state.optimizer.state = parts.optimizer.state();
    state.schedule = schedule;
    state.schedule->epochs_done = position.epoch + 1;
    state.schedule->groups = parts.optimizer.groups().size();
    if (parts.scaler != nullptr) {
        state.scaler = parts.scaler->state();
    }
    if (parts.ema != nullptr) {
        state.model_ema = parts.ema->average();
        state.ema_updates = parts.ema->updates();
    }
    state.epoch = position.epoch;
    state.step = position.step;
    state.position = position.consumed;
    state.best_top1 = position.best_top1;
    state.rng = at::detail::getDefaultCPUGenerator().get_state();
    if (ddp != nullptr && position.step > 0) {
        state.ddp_buckets = ddp->bucket_indices();
    }
    state.args = describe_options(options);
    return state;
}

}  // namespace ddprun::trainer
