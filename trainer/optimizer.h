// The optimizers: SGD and AdamW as torch.optim computes them, by one fused kernel over all
// parameters of a group, and LARS, which is SGD on gradients that are first decayed and scaled, a
// parameter at a time, by trust x |weight| / (|gradient| + decay x |weight| + eps) (not for groups
// without `adapt`). The state is what torch.optim.SGD or AdamW keeps, in plain tensors.
#pragma once

#include "trainer/named_tensors.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

namespace ddprun::trainer {

enum class OptimizerKind { sgd, lars, adamw };

struct OptimizerOptions {
    OptimizerKind kind = OptimizerKind::sgd;
    double momentum = 0.0;  ///< sgd, lars
    bool nesterov = false;  ///< sgd
    double beta1 = 0.9;     ///< adamw
    double beta2 = 0.999;
    double eps = 1e-8;     ///< adamw, lars
    double trust = 0.001;  ///< lars
};

struct ParameterGroup {
    std::vector<at::Tensor> parameters;
    double weight_decay = 0.0;
    bool adapt = true;  ///< lars scales its gradients
};

class Optimizer {
public:
    /// `groups` in the order in which the checkpoint numbers parameters and groups.
    Optimizer(std::vector<ParameterGroup> groups, const OptimizerOptions& options);

    /// One step with the gradients that the parameters hold; those without one are left alone.
    void step(double learning_rate);

    /// The same with a rate [] float32 that lies on the parameters' device and is read there, so
    /// that the step can be recorded.
    void step(const at::Tensor& learning_rate);

    /// Drops the gradients, so that the next backward pass writes them instead of adding to zeros.
    void clear_gradients();

    [[nodiscard]] const OptimizerOptions& options() const { return options_; }

    [[nodiscard]] const std::vector<ParameterGroup>& groups() const { return groups_; }

    /// Those of all groups, one group after the other.
    [[nodiscard]] const std::vector<at::Tensor>& parameters() const { return parameters_; }

    /// For each of parameters() what torch.optim keeps: "momentum_buffer", or "step", "exp_avg" and
    /// "exp_avg_sq"; empty where there is nothing yet. The tensors are those in use.
    [[nodiscard]] const std::vector<NamedTensors>& state() const { return state_; }

    /// Takes a checkpoint's state over: one entry a parameter. False, and nothing is changed, if
    /// counts, names or shapes are not those of this optimizer.
    [[nodiscard]] bool restore(const std::vector<NamedTensors>& state);

    /// The names of what is kept for a parameter.
    [[nodiscard]] std::vector<std::string> state_names() const;

    /// Zeros of the shapes that are kept for `parameter`.
    [[nodiscard]] NamedTensors empty_state(const at::Tensor& parameter) const;

private:
    struct Range {
        std::size_t begin = 0;
        std::size_t end = 0;
    };

    template <class Rate>
    void step_groups(const Rate& learning_rate);
    template <class Rate>
    void step_sgd(const Range& range, const ParameterGroup& group, const Rate& learning_rate);
    template <class Rate>
    void step_adamw(const Range& range, const ParameterGroup& group, const Rate& learning_rate);
    template <class Rate>
    void run_sgd(
        const std::vector<std::size_t>& which,
        bool first,
        double weight_decay,
        const Rate& learning_rate
    );
    [[nodiscard]] std::vector<at::Tensor> scaled(
        const std::vector<std::size_t>& which, const ParameterGroup& group
    ) const;

    std::vector<ParameterGroup> groups_;
    OptimizerOptions options_;
    std::vector<at::Tensor> parameters_;
    std::vector<NamedTensors> state_;
};

}  // namespace ddprun::trainer
