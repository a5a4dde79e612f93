#include "trainer/state_pickler.h"

#include "proto/assert.h"
#include "trainer/checkpoint_format.h"

#include <torch/types.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>

namespace ddprun::trainer {
namespace {

PickleValue text(std::string value) {
    return PickleValue{std::move(value)};
}

PickleValue integer(std::int64_t value) {
    return PickleValue{value};
}

PickleValue real(double value) {
    return PickleValue{value};
}

PickleValue boolean(bool value) {
    return PickleValue{value};
}

PickleValue none() {
    return PickleValue{PickleNone{}};
}

void add(PickleDict& dict, const char* key, PickleValue value) {
    dict.items.push_back({text(key), std::move(value)});
}

PickleValue reals(double value, std::size_t count) {
    return PickleValue{PickleList(count, real(value))};
}

/// Steps as whole epochs.
std::int64_t epochs_of(std::int64_t steps, const ScheduleRecord& record) {
    const std::int64_t length = std::max<std::int64_t>(record.steps_per_epoch, 1);
    return (steps + length / 2) / length;
}

/// What every scheduler of torch.optim has.
PickleDict scheduler_base(const ScheduleRecord& record, std::int64_t epochs_done, double last_lr) {
    PickleDict dict;
    add(dict, "base_lrs", reals(record.options.lr, record.groups));
    add(dict, "last_epoch", integer(epochs_done));
    add(dict, "_step_count", integer(epochs_done + 1));
    add(dict, "_last_lr", reals(last_lr, record.groups));
    return dict;
}

PickleDict main_scheduler(const ScheduleRecord& record, std::int64_t epochs_done, double last_lr) {
    const ScheduleOptions& options = record.options;
    const std::int64_t total = epochs_of(options.total_steps - options.warmup_steps, record);
    PickleDict dict = scheduler_base(record, epochs_done, last_lr);
    switch (options.kind) {
        case ScheduleKind::constant: break;
        case ScheduleKind::step:
            add(dict, "step_size", integer(epochs_of(options.period, record)));
            add(dict, "gamma", real(options.gamma));
            break;
        case ScheduleKind::exponential: add(dict, "gamma", real(options.gamma)); break;
        case ScheduleKind::cosine:
            add(dict, "T_max", integer(total));
            add(dict, "eta_min", real(options.lr_min));
            break;
        case ScheduleKind::polynomial:
            add(dict, "total_iters", integer(total));
            add(dict, "power", real(options.power));
            break;
    }
    return dict;
}

PickleDict warmup_scheduler(const ScheduleRecord& record, std::int64_t epochs_done, double lr) {
    const std::int64_t length = epochs_of(record.options.warmup_steps, record);
    PickleDict dict = scheduler_base(record, std::min(epochs_done, length), lr);
    if (record.options.warmup == WarmupKind::linear) {
        add(dict, "start_factor", real(record.options.warmup_factor));
        add(dict, "end_factor", real(1.0));
    } else {
        add(dict, "factor", real(record.options.warmup_factor));
    }
    add(dict, "total_iters", integer(length));
    return dict;
}

PickleValue scheduler(const ScheduleRecord& record) {
    const std::int64_t epochs = record.epochs_done;
    const double lr = learning_rate(record.options, epochs * record.steps_per_epoch);
    const std::int64_t warmup = epochs_of(record.options.warmup_steps, record);
    if (warmup == 0) {
        return PickleValue{main_scheduler(record, epochs, lr)};
    }
    // SequentialLR of a warm-up and the schedule.
    PickleDict dict;
    add(dict, "_milestones", PickleValue{PickleList{integer(warmup)}});
    add(dict, "last_epoch", integer(epochs));
    add(dict, "_last_lr", reals(lr, record.groups));
    PickleList parts;
    parts.push_back(PickleValue{warmup_scheduler(record, epochs, lr)});
    const std::int64_t main_epochs = std::max<std::int64_t>(epochs - warmup, 0);
    parts.push_back(PickleValue{main_scheduler(record, main_epochs, lr)});
    add(dict, "_schedulers", PickleValue{std::move(parts)});
    return PickleValue{std::move(dict)};
}

PickleValue scaler(const GradScalerState& state) {
    PickleDict dict;
    add(dict, "scale", real(state.scale));
    add(dict, "growth_factor", real(state.growth_factor));
    add(dict, "backoff_factor", real(state.backoff_factor));
    add(dict, "growth_interval", integer(state.growth_interval));
    add(dict, "_growth_tracker", integer(state.growth_tracker));
    return PickleValue{std::move(dict)};
}

PickleValue buckets(const TrainingState& state) {
    PickleList list;
    for (const std::vector<std::size_t>& bucket : state.ddp_buckets) {
        PickleList indices;
        for (const std::size_t index : bucket) {
            indices.push_back(integer(static_cast<std::int64_t>(index)));
        }
        list.push_back(PickleValue{std::move(indices)});
    }
    return PickleValue{std::move(list)};
}

/// The fields of a group of torch.optim.SGD or AdamW beside its parameters.
PickleDict group_fields(const OptimizerOptions& options, const GroupRecord& group) {
    PickleDict dict;
    add(dict, "lr", real(group.lr));
    if (options.kind == OptimizerKind::adamw) {
        add(dict, "betas", PickleValue{PickleTuple{{real(options.beta1), real(options.beta2)}}});
        add(dict, "eps", real(options.eps));
        add(dict, "weight_decay", real(group.weight_decay));
        add(dict, "amsgrad", boolean(false));
        add(dict, "maximize", boolean(false));
        add(dict, "foreach", none());
        add(dict, "capturable", boolean(false));
        add(dict, "differentiable", boolean(false));
        add(dict, "fused", none());
        add(dict, "decoupled_weight_decay", boolean(true));
    } else {
        add(dict, "momentum", real(options.momentum));
        add(dict, "dampening", integer(0));
        add(dict, "weight_decay", real(group.weight_decay));
        add(dict, "nesterov", boolean(options.nesterov));
        add(dict, "maximize", boolean(false));
        add(dict, "foreach", none());
        add(dict, "differentiable", boolean(false));
        add(dict, "fused", none());
    }
    add(dict, "initial_lr", real(group.initial_lr));
    return dict;
}

/// Collects the tensors while it builds the tree.
class Pickler {
public:
    [[nodiscard]] PickledState pickle(const TrainingState& state) {
        PickleDict root;
        add(root, "model", named(state.model, ""));
        add(root, "optimizer", optimizer(state.optimizer));
        add(root, "lr_scheduler", scheduler(state.schedule.value_or(ScheduleRecord{})));
        if (state.scaler) {
            add(root, "scaler", scaler(*state.scaler));
        }
        if (!state.model_ema.empty()) {
            add(root, "model_ema", ema(state));
        }
        add(root, "epoch", integer(state.epoch));
        PickleDict args;
        for (const auto& [name, value] : state.args) {
            args.items.push_back({text(name), text(value)});
        }
        add(root, "args", PickleValue{std::move(args)});
        add(root, "step", integer(state.step));
        add(root, "position", integer(state.position));
        add(root, "best_top1", real(state.best_top1));
        if (state.rng.defined()) {
            add(root, "rng", tensor(state.rng));
        }
        add(root, "ddp_buckets", buckets(state));
        return {PickleValue{std::move(root)}, std::move(storages_)};
    }

private:
    PickleValue tensor(const at::Tensor& source) {
        const at::Tensor plain = source.detach().to(at::kCPU).contiguous();
        const std::optional<std::string> type = storage_type_of(plain.scalar_type());
        DDPRUN_ASSERT(type.has_value());
        PickledTensor pickled;
        pickled.storage_type = *type;
        pickled.key = std::to_string(storages_.size());
        pickled.storage_size = plain.numel();
        pickled.sizes = plain.sizes().vec();
        pickled.strides = plain.strides().vec();
        storages_.push_back(plain);
        return PickleValue{std::move(pickled)};
    }

    PickleValue named(const NamedTensors& tensors, const std::string& prefix) {
        PickleDict dict;
        dict.ordered = true;
        for (const auto& [name, value] : tensors) {
            dict.items.push_back({text(prefix + name), tensor(value)});
        }
        return PickleValue{std::move(dict)};
    }

    /// The state_dict of torch.optim.swa_utils.AveragedModel.
    PickleValue ema(const TrainingState& state) {
        PickleDict dict;
        dict.ordered = true;
        add(dict, "n_averaged", tensor(torch::scalar_tensor(state.ema_updates, at::kLong)));
        for (const auto& [name, value] : state.model_ema) {
            dict.items.push_back({text("module." + name), tensor(value)});
        }
        return PickleValue{std::move(dict)};
    }

    PickleValue optimizer(const OptimizerRecord& record) {
        PickleDict states;
        for (std::size_t i = 0; i < record.state.size(); ++i) {
            if (!record.state[i].empty()) {
                PickleDict entry;
                for (const auto& [name, value] : record.state[i]) {
                    entry.items.push_back({text(name), tensor(value)});
                }
                states.items.push_back(
                    {integer(static_cast<std::int64_t>(i)), PickleValue{std::move(entry)}}
                );
            }
        }
        PickleList groups;
        std::int64_t next = 0;
        for (const GroupRecord& group : record.groups) {
            PickleList indices;
            for (std::size_t i = 0; i < group.parameters; ++i) {
                indices.push_back(integer(next++));
            }
            PickleDict fields = group_fields(record.options, group);
            add(fields, "params", PickleValue{std::move(indices)});
            groups.push_back(PickleValue{std::move(fields)});
        }
        PickleDict dict;
        add(dict, "state", PickleValue{std::move(states)});
        add(dict, "param_groups", PickleValue{std::move(groups)});
        return PickleValue{std::move(dict)};
    }

    std::vector<at::Tensor> storages_;
};

}  // namespace

PickledState pickle_state(const TrainingState& state) {
    return Pickler().pickle(state);
}

}  // namespace ddprun::trainer
