#include "trainer/mix_plan.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace ddprun::trainer {
namespace {

double draw_beta(std::mt19937_64& engine, double alpha) {
    std::gamma_distribution<double> gamma(alpha, 1.0);
    const double a = gamma(engine);
    const double b = gamma(engine);
    return a + b > 0.0 ? a / (a + b) : 1.0;
}

}  // namespace

MixPlan cut_rectangle(
    double lambda, std::int64_t x, std::int64_t y, std::int64_t height, std::int64_t width
) {
    const double half = 0.5 * std::sqrt(1.0 - lambda);
    const auto half_width = static_cast<std::int64_t>(half * static_cast<double>(width));
    const auto half_height = static_cast<std::int64_t>(half * static_cast<double>(height));
    MixPlan plan;
    plan.kind = MixKind::cutmix;
    plan.left = std::max<std::int64_t>(x - half_width, 0);
    plan.right = std::min(x + half_width, width);
    plan.top = std::max<std::int64_t>(y - half_height, 0);
    plan.bottom = std::min(y + half_height, height);
    const auto cut = static_cast<double>((plan.right - plan.left) * (plan.bottom - plan.top));
    plan.lambda = 1.0 - cut / static_cast<double>(width * height);
    return plan;
}

MixPlan plan_mix(const MixOptions& options, const MixDraw& draw) {
    const bool mixup = options.mixup_alpha > 0.0;
    const bool cutmix = options.cutmix_alpha > 0.0;
    if (!mixup && !cutmix) {
        return {};
    }
    constexpr std::uint64_t kLow32 = 0xffffffffU;
    std::seed_seq sequence{
        draw.seed & kLow32,
        draw.seed >> 32U,
        static_cast<std::uint64_t>(draw.step) & kLow32,
        static_cast<std::uint64_t>(draw.step) >> 32U,
        static_cast<std::uint64_t>(draw.rank),
        static_cast<std::uint64_t>(draw.part)};
    std::mt19937_64 engine(sequence);
    const bool take_mixup = mixup && (!cutmix || std::bernoulli_distribution(0.5)(engine));
    if (take_mixup) {
        MixPlan plan;
        plan.kind = MixKind::mixup;
        plan.lambda = draw_beta(engine, options.mixup_alpha);
        return plan;
    }
    const double lambda = draw_beta(engine, options.cutmix_alpha);
    const std::int64_t x = std::uniform_int_distribution<std::int64_t>(0, draw.width - 1)(engine);
    const std::int64_t y = std::uniform_int_distribution<std::int64_t>(0, draw.height - 1)(engine);
    return cut_rectangle(lambda, x, y, draw.height, draw.width);
}

}  // namespace ddprun::trainer
