#include "trainer/checkpoint_reader.h"

#include "proto/limits.h"
#include "trainer/archive_reader.h"
#include "trainer/checkpoint_format.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <system_error>

namespace ddprun::trainer {

namespace {

namespace fs = std::filesystem;

Error not_a_checkpoint(const fs::path& path, std::string_view what) {
    return Error{Errc::malformed, fmt::format("read {}: {}", path.string(), what)};
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

Result<NamedTensors> named_tensors(ArchiveReader& archive, const PickleDict& dict) {
    NamedTensors named;
    for (const auto& [key, value] : dict.items) {
        const auto* const name = key.as<std::string>();
        const auto* const pickled = value.as<PickledTensor>();
        if (name == nullptr || pickled == nullptr) {
            continue;
        }
        auto tensor = archive.tensor(*pickled);
        if (!tensor) {
            return fail(tensor.error());
        }
        named.emplace_back(*name, std::move(*tensor));
    }
    constexpr std::string_view kDdpPrefix = "module.";
    const auto is_ddp = [&](const auto& entry) { return entry.first.starts_with(kDdpPrefix); };
    if (std::all_of(named.begin(), named.end(), is_ddp)) {
        for (auto& [name, tensor] : named) {
            name.erase(0, kDdpPrefix.size());
        }
    }
    return named;
}

Result<void> take_momentum(
    ArchiveReader& archive, const PickleDict& buffers, TrainingState& state
) {
    for (const auto& [key, entry] : buffers.items) {
        const auto* const index = key.as<std::int64_t>();
        const auto* const fields = entry.as<PickleDict>();
        const PickleValue* const buffer =
            fields != nullptr ? fields->find("momentum_buffer") : nullptr;
        const auto* const pickled = buffer != nullptr ? buffer->as<PickledTensor>() : nullptr;
        if (index == nullptr || pickled == nullptr || *index < 0 ||
            *index >= static_cast<std::int64_t>(state.momentum_buffers.size())) {
            continue;
        }
        auto tensor = archive.tensor(*pickled);
        if (!tensor) {
            return fail(tensor.error());
        }
        state.momentum_buffers[static_cast<std::size_t>(*index)] = std::move(*tensor);
    }
    return {};
}

Result<void> take_optimizer(ArchiveReader& archive, const PickleDict& root, TrainingState& state) {
    const PickleValue* const value = root.find("optimizer");
    const auto* const optimizer = value != nullptr ? value->as<PickleDict>() : nullptr;
    if (optimizer == nullptr) {
        return {};
    }
    PickleList groups;
    take(*optimizer, "param_groups", groups);
    std::size_t parameters = 0;
    for (const PickleValue& each : groups) {
        const auto* const group = each.as<PickleDict>();
        if (group == nullptr) {
            continue;
        }
        take_real(*group, "lr", state.lr);
        take_real(*group, "momentum", state.momentum);
        take_real(*group, "weight_decay", state.weight_decay);
        take(*group, "nesterov", state.nesterov);
        PickleList indices;
        take(*group, "params", indices);
        parameters += indices.size();
    }
    state.momentum_buffers.assign(parameters, at::Tensor{});
    PickleDict buffers;
    take(*optimizer, "state", buffers);
    return take_momentum(archive, buffers, state);
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
        return fail(not_a_checkpoint(path, "no checkpoint, for it has no \"model\""));
    }
    TrainingState state;
    auto named = named_tensors(archive, *weights);
    if (!named) {
        return fail(named.error());
    }
    state.model = std::move(*named);
    if (auto taken = take_optimizer(archive, root, state); !taken) {
        return fail(taken.error());
    }
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

std::string list_of(const std::vector<std::string>& names) {
    std::string list;
    for (std::size_t i = 0; i < std::min(names.size(), limits::kKeysListedMax); ++i) {
        list += (i == 0 ? "" : ", ") + names[i];
    }
    if (names.size() > limits::kKeysListedMax) {
        list += fmt::format(" and {} more", names.size() - limits::kKeysListedMax);
    }
    return list;
}

std::string shape_of(const at::Tensor& tensor) {
    return fmt::format("[{}]", fmt::join(tensor.sizes().vec(), ", "));
}

/// What keeps `weights` from going into `model`; empty: nothing.
std::string differences(
    const NamedTensors& model, const std::map<std::string_view, at::Tensor>& weights
) {
    std::vector<std::string> missing;
    std::vector<std::string> unexpected;
    std::vector<std::string> other;
    std::map<std::string_view, at::Tensor> wanted;
    for (const auto& [name, tensor] : model) {
        wanted.emplace(name, tensor);
        const auto found = weights.find(name);
        if (found == weights.end()) {
            missing.push_back(name);
        } else if (found->second.sizes() != tensor.sizes()) {
            other.push_back(fmt::format(
                "{} is {} instead of {}", name, shape_of(found->second), shape_of(tensor)
            ));
        } else if (found->second.is_floating_point() != tensor.is_floating_point()) {
            other.push_back(name + " is of another type");
        }
    }
    for (const auto& [name, tensor] : weights) {
        if (!wanted.contains(name)) {
            unexpected.emplace_back(name);
        }
    }
    std::vector<std::string> parts;
    if (!missing.empty()) {
        parts.push_back(fmt::format("{} missing ({})", missing.size(), list_of(missing)));
    }
    if (!unexpected.empty()) {
        parts.push_back(fmt::format("{} unexpected ({})", unexpected.size(), list_of(unexpected)));
    }
    if (!other.empty()) {
        parts.push_back(list_of(other));
    }
    return fmt::format("{}", fmt::join(parts, "; "));
}

Result<void> check_weights(
    const NamedTensors& model, const NamedTensors& weights, std::string_view source
) {
    std::map<std::string_view, at::Tensor> by_name;
    for (const auto& [name, tensor] : weights) {
        by_name.insert_or_assign(name, tensor);
    }
    const std::string found = differences(model, by_name);
    if (!found.empty()) {
        return fail(
            Errc::malformed,
            fmt::format(
                "{} is of another model than --model and --num_classes say: {}", source, found
            )
        );
    }
    return {};
}

/// Step numbers of the checkpoints in `dir`, the newest first; none without the folder.
Result<std::vector<std::int64_t>> steps_in(const fs::path& dir) {
    std::vector<std::int64_t> steps;
    std::error_code error;
    fs::directory_iterator entry(dir, error);
    if (error == std::errc::no_such_file_or_directory) {
        return steps;
    }
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
        if (const auto step = step_of_checkpoint(entry->path().filename().string())) {
            steps.push_back(*step);
        }
    }
    if (error) {
        return fail(from_error_code(error, "look for checkpoints in " + dir.string()));
    }
    std::sort(steps.rbegin(), steps.rend());
    return steps;
}

Result<const PickleDict*> root_of(const ArchiveReader& archive, const fs::path& path) {
    const auto* const root = archive.root().as<PickleDict>();
    if (root == nullptr) {
        return fail(not_a_checkpoint(path, "it holds no dict"));
    }
    return root;
}

}  // namespace

Result<TrainingState> read_checkpoint(const fs::path& path) {
    auto archive = ArchiveReader::open(path);
    if (!archive) {
        return fail(archive.error());
    }
    const auto root = root_of(*archive, path);
    if (!root) {
        return fail(root.error());
    }
    return state_of(*archive, **root, path);
}

Result<NamedTensors> read_weights(const fs::path& path) {
    auto archive = ArchiveReader::open(path);
    if (!archive) {
        return fail(archive.error());
    }
    const auto root = root_of(*archive, path);
    if (!root) {
        return fail(root.error());
    }
    const PickleDict* weights = *root;
    for (const char* level : {"model", "state_dict"}) {
        const PickleValue* const below = (*root)->find(level);
        if (below != nullptr && below->as<PickleDict>() != nullptr) {
            weights = below->as<PickleDict>();
            break;
        }
    }
    auto named = named_tensors(*archive, *weights);
    if (named && named->empty()) {
        return fail(not_a_checkpoint(path, "no weights in it"));
    }
    return named;
}

Result<void> load_weights(
    const NamedTensors& model, const NamedTensors& weights, std::string_view source
) {
    if (auto checked = check_weights(model, weights, source); !checked) {
        return checked;
    }
    std::map<std::string_view, at::Tensor> by_name;
    for (const auto& [name, tensor] : weights) {
        by_name.insert_or_assign(name, tensor);
    }
    const c10::NoGradGuard no_grad;
    for (const auto& [name, tensor] : model) {
        at::Tensor target = tensor;
        target.copy_(by_name.at(name));
    }
    return {};
}

Result<std::optional<FoundCheckpoint>> newest_good_checkpoint(
    const fs::path& dir, const NamedTensors& model, Log& log
) {
    const auto steps = steps_in(dir);
    if (!steps) {
        return fail(steps.error());
    }
    for (const std::int64_t step : *steps) {
        const fs::path path = dir / checkpoint_name(step);
        auto state = read_checkpoint(path);
        if (!state && state.error().code == Errc::malformed) {
            log.warning("skip checkpoint: {}", state.error().context);
            continue;
        }
        if (!state) {
            return fail(state.error());
        }
        if (auto fits = check_weights(model, state->model, path.string()); !fits) {
            return fail(fits.error());
        }
        return std::optional(FoundCheckpoint{path, std::move(*state)});
    }
    if (!steps->empty()) {
        return fail(
            Errc::malformed,
            fmt::format(
                "resume from {}: each of its {} checkpoints is damaged; remove them to start anew",
                dir.string(),
                steps->size()
            )
        );
    }
    return std::optional<FoundCheckpoint>{};
}

}  // namespace ddprun::trainer
