#include "trainer/checkpoint_reader.h"

#include "trainer/archive_reader.h"
#include "trainer/weights.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <utility>

namespace ddprun::trainer {

namespace {

namespace fs = std::filesystem;

/// Readable, but of another kind: not damage that one passes over.
Error not_a_checkpoint(const fs::path& path, std::string_view what) {
    return Error{Errc::unsupported, fmt::format("read {}: {}", path.string(), what)};
}

template <class T>
void take(const PickleDict& dict, std::string_view key, T& target) {
    if (const PickleValue* const value = dict.find(key)) {
        if (const T* const typed = value->as<T>()) {
            target = *typed;
        }
    }
}

/// Python writes whole numbers where a float is meant, too.
void take_real(const PickleDict& dict, std::string_view key, double& target) {
    std::int64_t whole = 0;
    take(dict, key, whole);
    if (whole != 0) {
        target = static_cast<double>(whole);
    }
    take(dict, key, target);
}

/// "beta" of AdamW, a pair.
void take_betas(const PickleDict& group, OptimizerOptions& options) {
    PickleTuple betas;
    take(group, "betas", betas);
    if (betas.items.size() != 2) {
        return;
    }
    const auto* const first = betas.items[0].as<double>();
    const auto* const second = betas.items[1].as<double>();
    if (first != nullptr && second != nullptr) {
        options.beta1 = *first;
        options.beta2 = *second;
    }
}

GroupRecord take_group(const PickleDict& group, OptimizerOptions& options) {
    GroupRecord record;
    take_real(group, "lr", record.lr);
    record.initial_lr = record.lr;
    take_real(group, "initial_lr", record.initial_lr);
    take_real(group, "weight_decay", record.weight_decay);
    take_real(group, "momentum", options.momentum);
    take(group, "nesterov", options.nesterov);
    take_real(group, "eps", options.eps);
    if (group.find("betas") != nullptr) {
        options.kind = OptimizerKind::adamw;
        take_betas(group, options);
    }
    PickleList indices;
    take(group, "params", indices);
    record.parameters = indices.size();
    return record;
}

/// The tensors that an optimizer keeps for a parameter. A number ("step" of old files) becomes one.
Result<NamedTensors> take_parameter_state(ArchiveReader& archive, const PickleDict& fields) {
    NamedTensors state;
    for (const auto& [key, value] : fields.items) {
        const auto* const name = key.as<std::string>();
        if (name == nullptr) {
            continue;
        }
        if (const auto* const pickled = value.as<PickledTensor>()) {
            auto tensor = archive.tensor(*pickled);
            if (!tensor) {
                return fail(tensor.error());
            }
            state.emplace_back(*name, std::move(*tensor));
        } else if (const auto* const whole = value.as<std::int64_t>()) {
            state.emplace_back(*name, at::scalar_tensor(static_cast<double>(*whole), at::kFloat));
        }
    }
    return state;
}

Result<void> take_optimizer(ArchiveReader& archive, const PickleDict& root, TrainingState& state) {
    PickleDict optimizer;
    take(root, "optimizer", optimizer);
    PickleList groups;
    take(optimizer, "param_groups", groups);
    std::size_t parameters = 0;
    for (const PickleValue& each : groups) {
        if (const auto* const group = each.as<PickleDict>()) {
            state.optimizer.groups.push_back(take_group(*group, state.optimizer.options));
            parameters += state.optimizer.groups.back().parameters;
        }
    }
    state.optimizer.state.resize(parameters);
    PickleDict states;
    take(optimizer, "state", states);
    for (const auto& [key, value] : states.items) {
        const auto* const index = key.as<std::int64_t>();
        const auto* const fields = value.as<PickleDict>();
        if (index == nullptr || fields == nullptr || *index < 0 ||
            *index >= static_cast<std::int64_t>(parameters)) {
            continue;
        }
        auto taken = take_parameter_state(archive, *fields);
        if (!taken) {
            return fail(taken.error());
        }
        state.optimizer.state[static_cast<std::size_t>(*index)] = std::move(*taken);
    }
    return {};
}

void take_scaler(const PickleDict& root, TrainingState& state) {
    PickleDict scaler;
    take(root, "scaler", scaler);
    if (scaler.items.empty()) {
        return;
    }
    GradScalerState found;
    take_real(scaler, "scale", found.scale);
    take_real(scaler, "growth_factor", found.growth_factor);
    take_real(scaler, "backoff_factor", found.backoff_factor);
    take(scaler, "growth_interval", found.growth_interval);
    take(scaler, "_growth_tracker", found.growth_tracker);
    state.scaler = found;
}

Result<void> take_ema(ArchiveReader& archive, const PickleDict& root, TrainingState& state) {
    PickleDict ema;
    take(root, "model_ema", ema);
    if (ema.items.empty()) {
        return {};
    }
    auto named = tensors_of(archive, ema);
    if (!named) {
        return fail(named.error());
    }
    constexpr std::string_view kPrefix = "module.";
    for (auto& [name, tensor] : *named) {
        if (name == "n_averaged" && tensor.numel() == 1) {
            state.ema_updates = tensor.item<std::int64_t>();
        } else {
            state.model_ema.emplace_back(
                name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name, std::move(tensor)
            );
        }
    }
    return {};
}

void take_args_and_buckets(const PickleDict& root, TrainingState& state) {
    PickleDict args;
    take(root, "args", args);
    for (const auto& [key, value] : args.items) {
        const auto* const name = key.as<std::string>();
        const auto* const content = value.as<std::string>();
        if (name != nullptr && content != nullptr) {
            state.args.emplace_back(*name, *content);
        }
    }
    PickleList buckets;
    take(root, "ddp_buckets", buckets);
    for (const PickleValue& each : buckets) {
        std::vector<std::size_t> bucket;
        if (const auto* const indices = each.as<PickleList>()) {
            for (const PickleValue& index : *indices) {
                const auto* const number = index.as<std::int64_t>();
                bucket.push_back(number != nullptr ? static_cast<std::size_t>(*number) : 0);
            }
        }
        state.ddp_buckets.push_back(std::move(bucket));
    }
}

Result<TrainingState> state_of(
    ArchiveReader& archive, const PickleDict& root, const fs::path& path
) {
    const PickleValue* const model = root.find("model");
    const auto* const weights = model != nullptr ? model->as<PickleDict>() : nullptr;
    if (weights == nullptr) {
        return fail(not_a_checkpoint(
            path, "no checkpoint, for it has no \"model\"; --weights takes weights alone"
        ));
    }
    TrainingState state;
    auto named = tensors_of(archive, *weights);
    if (!named) {
        return fail(named.error());
    }
    state.model = std::move(*named);
    if (auto taken = take_optimizer(archive, root, state); !taken) {
        return fail(taken.error());
    }
    if (auto taken = take_ema(archive, root, state); !taken) {
        return fail(taken.error());
    }
    take_scaler(root, state);
    take(root, "best_top1", state.best_top1);
    take(root, "epoch", state.epoch);
    take(root, "step", state.step);
    take(root, "position", state.position);
    if (state.epoch < -1 || state.step < 0 || state.position < 0) {
        return fail(not_a_checkpoint(path, "a negative epoch, step or position"));
    }
    PickledTensor rng;
    take(root, "rng", rng);
    if (!rng.storage_type.empty()) {
        auto tensor = archive.tensor(rng);
        if (!tensor) {
            return fail(tensor.error());
        }
        state.rng = std::move(*tensor);
    }
    take_args_and_buckets(root, state);
    return state;
}

}  // namespace

Result<TrainingState> read_checkpoint(const fs::path& path) {
    auto archive = ArchiveReader::open(path);
    if (!archive) {
        return fail(archive.error());
    }
    const auto* const root = archive->root().as<PickleDict>();
    if (root == nullptr) {
        return fail(not_a_checkpoint(path, "it holds no dict"));
    }
    return state_of(*archive, *root, path);
}

}  // namespace ddprun::trainer
