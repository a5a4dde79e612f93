#include "trainer/batch_mixing.h"

#include <torch/torch.h>

namespace ddprun::trainer {

MixedBatch mix(
    const MixPlan& plan,
    const at::Tensor& images,
    const at::Tensor& labels,
    std::int64_t num_classes
) {
    if (plan.kind == MixKind::none) {
        return {images, labels};
    }
    const at::Tensor shares = at::one_hot(labels, num_classes).to(at::kFloat);
    const double lambda = plan.lambda;
    MixedBatch mixed;
    mixed.labels = shares.roll(1, 0).mul_(1.0 - lambda).add_(shares * lambda);
    const at::Tensor rolled = images.roll(1, 0);
    if (plan.kind == MixKind::mixup) {
        mixed.images = rolled.mul_(1.0 - lambda).add_(images * lambda);
        return mixed;
    }
    mixed.images = images.clone();
    const std::int64_t height = plan.bottom - plan.top;
    const std::int64_t width = plan.right - plan.left;
    mixed.images.narrow(2, plan.top, height)
        .narrow(3, plan.left, width)
        .copy_(rolled.narrow(2, plan.top, height).narrow(3, plan.left, width));
    return mixed;
}

}  // namespace ddprun::trainer
