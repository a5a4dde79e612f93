#include "trainer/weights.h"

#include "proto/limits.h"
#include "trainer/safetensors_file.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

Error no_weights(const fs::path& path, std::string_view what) {
    return Error{Errc::unsupported, fmt::format("read {}: {}", path.string(), what)};
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

/// Counters that state_dicts had not before PyTorch 0.4.1, as torchvision's older weights: a model
/// without them counts from 0, in PyTorch too.
bool may_be_missing(std::string_view name) {
    return name.ends_with(".num_batches_tracked");
}

/// What every key of a state_dict of DistributedDataParallel begins with is taken off.
void strip_ddp_prefix(NamedTensors& named) {
    constexpr std::string_view kDdpPrefix = "module.";
    const auto is_ddp = [&](const auto& entry) { return entry.first.starts_with(kDdpPrefix); };
    if (std::all_of(named.begin(), named.end(), is_ddp)) {
        for (auto& [name, tensor] : named) {
            name.erase(0, kDdpPrefix.size());
        }
    }
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
            if (!may_be_missing(name)) {
                missing.push_back(name);
            }
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

}  // namespace

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

Result<NamedTensors> tensors_of(ArchiveReader& archive, const PickleDict& dict) {
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
    strip_ddp_prefix(named);
    return named;
}

Result<NamedTensors> read_weights(const fs::path& path) {
    if (is_safetensors(path)) {
        auto named = read_safetensors(path);
        if (named) {
            strip_ddp_prefix(*named);
        }
        return named;
    }
    auto archive = ArchiveReader::open(path);
    if (!archive) {
        return fail(archive.error());
    }
    const auto* const root = archive->root().as<PickleDict>();
    if (root == nullptr) {
        return fail(no_weights(path, "it holds no dict"));
    }
    const PickleDict* weights = root;
    for (const char* level : {"model", "state_dict"}) {
        const PickleValue* const below = root->find(level);
        if (below != nullptr && below->as<PickleDict>() != nullptr) {
            weights = below->as<PickleDict>();
            break;
        }
    }
    auto named = tensors_of(*archive, *weights);
    if (named && named->empty()) {
        return fail(no_weights(path, "no weights in it"));
    }
    return named;
}

Result<void> load_weights(
    const NamedTensors& model, const NamedTensors& weights, std::string_view source, Log* log
) {
    if (auto checked = check_weights(model, weights, source); !checked) {
        return checked;
    }
    std::map<std::string_view, at::Tensor> by_name;
    for (const auto& [name, tensor] : weights) {
        by_name.insert_or_assign(name, tensor);
    }
    const c10::NoGradGuard no_grad;
    std::map<std::string, int> converted;
    for (const auto& [name, tensor] : model) {
        at::Tensor target = tensor;
        const auto found = by_name.find(name);
        if (found == by_name.end()) {
            target.zero_();  // a counter that may be missing
            continue;
        }
        const at::Tensor& value = found->second;
        if (value.is_floating_point() && value.scalar_type() != target.scalar_type()) {
            ++converted[std::string(c10::toString(value.scalar_type()))];
        }
        target.copy_(value);
    }
    for (const auto& [type, count] : converted) {
        if (log != nullptr) {
            log->info("{}: {} tensors of type {} converted to the model's", source, count, type);
        }
    }
    return {};
}

}  // namespace ddprun::trainer
