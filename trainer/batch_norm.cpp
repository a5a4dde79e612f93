#include "trainer/batch_norm.h"

#include "trainer/collectives.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/torch.h>

#include <utility>
#include <vector>

namespace ddprun::trainer {
namespace {

const std::vector<std::int64_t> kAllButChannels{0, 2, 3};

struct GroupHolder final : torch::CustomClassHolder {
    explicit GroupHolder(ProcessGroupPtr held) : group(std::move(held)) {}

    ProcessGroupPtr group;
};

/// [C] to [1, C, 1, 1].
at::Tensor as_channels(const at::Tensor& values) {
    return values.view({1, -1, 1, 1});
}

/// Mean and variance of all ranks' pictures, and their number of values a channel.
struct Moments {
    at::Tensor mean;
    at::Tensor variance;
    double count = 0.0;
};

/// From each rank's own mean and variance, added up in double: no cancellation within a rank.
Moments all_moments(const ProcessGroupPtr& group, const at::Tensor& input) {
    const at::Tensor wide = input.scalar_type() == at::kDouble ? input : input.to(at::kFloat);
    const auto [variance, mean] = at::var_mean(wide, kAllButChannels, /*correction=*/at::Scalar(0));
    const auto count = static_cast<double>(input.numel() / input.size(1));
    const at::Tensor mine = mean.to(at::kDouble);
    at::Tensor sums = torch::cat({
        mine * count,
        (variance.to(at::kDouble) + mine * mine) * count,
        torch::full({1}, count, mine.options()),
    });
    all_reduce_sum(group, sums);
    const std::int64_t channels = input.size(1);
    Moments moments;
    moments.count = sums[2 * channels].item<double>();
    const at::Tensor all_mean = sums.narrow(0, 0, channels) / moments.count;
    const at::Tensor squares = sums.narrow(0, channels, channels) / moments.count;
    moments.mean = all_mean.to(wide.scalar_type());
    moments.variance = (squares - all_mean * all_mean).clamp_min(0.0).to(wide.scalar_type());
    return moments;
}

/// Normalises with the moments of all ranks. Inputs: pictures, weight, bias, and the moments, which
/// get no gradient of their own: what flows through them is in the pictures' gradient.
class SynchronisedNorm final : public torch::autograd::Function<SynchronisedNorm> {
public:
    static at::Tensor forward(
        torch::autograd::AutogradContext* context,
        const at::Tensor& input,
        const at::Tensor& weight,
        const at::Tensor& bias,
        const Moments& moments,
        double eps,
        const c10::intrusive_ptr<GroupHolder>& holder
    ) {
        const at::Tensor inverse = (moments.variance + eps).rsqrt();
        context->save_for_backward({input, weight, moments.mean, inverse});
        context->saved_data["count"] = moments.count;
        context->saved_data["group"] = c10::IValue::make_capsule(holder);
        return at::batch_norm(
            input,
            weight,
            bias,
            moments.mean,
            moments.variance,
            /*training=*/false,
            /*momentum=*/0.0,
            eps,
            /*cudnn_enabled=*/false
        );
    }

    static torch::autograd::variable_list backward(
        torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients
    ) {
        const auto saved = context->get_saved_variables();
        const at::Tensor& input = saved[0];
        const at::Tensor& weight = saved[1];
        const at::Tensor mean = as_channels(saved[2]);
        const at::Tensor inverse = as_channels(saved[3]);
        const double count = context->saved_data["count"].toDouble();
        const auto capsule = context->saved_data["group"].toCapsule();
        const auto* holder = static_cast<const GroupHolder*>(capsule.get());

        const auto wide = mean.scalar_type();
        const at::Tensor gradient = gradients[0].to(wide);
        const at::Tensor normalised = (input.to(wide) - mean) * inverse;
        const at::Tensor bias_gradient = gradient.sum(kAllButChannels);
        const at::Tensor weight_gradient = (gradient * normalised).sum(kAllButChannels);
        at::Tensor sums = torch::cat({bias_gradient, weight_gradient}).to(at::kDouble);
        all_reduce_sum(holder->group, sums);
        sums = (sums / count).to(wide);
        const std::int64_t channels = input.size(1);
        const at::Tensor mean_gradient = as_channels(sums.narrow(0, 0, channels));
        const at::Tensor mean_product = as_channels(sums.narrow(0, channels, channels));
        const at::Tensor input_gradient = (gradient - mean_gradient - normalised * mean_product) *
                                          (as_channels(weight.to(wide)) * inverse);
        return {
            input_gradient.to(input.scalar_type()),
            weight_gradient.to(weight.scalar_type()),
            bias_gradient.to(weight.scalar_type()),
            at::Tensor(),
            at::Tensor(),
            at::Tensor()};
    }
};

}  // namespace

NormImpl::NormImpl(std::int64_t channels)
    : BatchNorm2dImpl(torch::nn::BatchNorm2dOptions(channels)) {}

void NormImpl::synchronise(c10::intrusive_ptr<c10d::ProcessGroup> group) {
    group_ = std::move(group);
}

at::Tensor NormImpl::forward(const at::Tensor& input) {
    return group_ && is_training() ? forward_synchronised(input) : BatchNorm2dImpl::forward(input);
}

at::Tensor NormImpl::forward_synchronised(const at::Tensor& input) {
    Moments moments;
    {
        const torch::NoGradGuard no_grad;
        moments = all_moments(group_, input.detach());
        num_batches_tracked += 1;
        const double momentum = options.momentum().value();
        const double unbiased = moments.count / std::max(moments.count - 1.0, 1.0);
        running_mean.mul_(1.0 - momentum).add_(moments.mean, momentum);
        running_var.mul_(1.0 - momentum).add_(moments.variance, momentum * unbiased);
    }
    return SynchronisedNorm::apply(
        input, weight, bias, moments, options.eps(), c10::make_intrusive<GroupHolder>(group_)
    );
}

}  // namespace ddprun::trainer
