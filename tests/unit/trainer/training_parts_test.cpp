// The small parts of a step: mixing, scaled loss, moving average, batch norms over ranks, replicas.
#include "tests/unit/trainer/rank_threads.h"
#include "tests/unit/trainer/reference.h"
#include "trainer/amp.h"
#include "trainer/batch_mixing.h"
#include "trainer/batch_norm.h"
#include "trainer/ema.h"
#include "trainer/replicas.h"
#include "trainer/schedule.h"
#include "trainer/train_step.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <limits>
#include <mutex>
#include <string>
#include <vector>

namespace ddprun::trainer {
namespace {

using test::difference;
using test::wave;

TEST_SUITE_BEGIN("trainer/training_parts");

TEST_CASE("rates of forty steps equal those of torch.optim.lr_scheduler") {
    if (!test::has_python()) {
        MESSAGE("skipped: no Python with torch");
        return;
    }
    const auto expected = test::reference("schedules");
    constexpr std::int64_t kSteps = 40;
    for (const auto& entry : expected) {
        const std::string name = entry.first;
        CAPTURE(name);
        ScheduleOptions options{
            .lr = 0.5, .total_steps = kSteps, .warmup_steps = 6, .warmup_factor = 0.1};
        options.warmup = name.ends_with("-linear") ? WarmupKind::linear : WarmupKind::constant;
        if (name.starts_with("step")) {
            options.kind = ScheduleKind::step;
            options.gamma = 0.3;
            options.period = 7;
        } else if (name.starts_with("exponential")) {
            options.kind = ScheduleKind::exponential;
            options.gamma = 0.9;
        } else if (name.starts_with("cosine")) {
            options.kind = ScheduleKind::cosine;
            options.lr_min = 0.01;
        } else if (name.starts_with("polynomial")) {
            options.kind = ScheduleKind::polynomial;
        }
        at::Tensor rates = torch::zeros({kSteps}, torch::kDouble);
        for (std::int64_t step = 0; step < kSteps; ++step) {
            rates[step] = learning_rate(options, step);
        }
        CHECK(difference(rates, entry.second) <= 1e-13);
    }
    CHECK(expected.size() == 10);
}

TEST_CASE("mixup, cutmix and smoothed losses equal torchvision's") {
    if (!test::has_python()) {
        MESSAGE("skipped: no Python with torchvision");
        return;
    }
    const auto expected = test::reference("mixing");
    const at::Tensor images = wave(4 * 3 * 8 * 8).to(torch::kFloat).reshape({4, 3, 8, 8});
    const at::Tensor labels = torch::tensor({0, 2, 1, 2}, torch::kLong);
    MixPlan mixup;
    mixup.kind = MixKind::mixup;
    mixup.lambda = 0.3;
    const MixPlan cutmix{
        .kind = MixKind::cutmix,
        .lambda = 1.0 - 20.0 / 64.0,
        .top = 1,
        .left = 2,
        .bottom = 5,
        .right = 7};
    const MixedBatch first = mix(mixup, images, labels, 3);
    const MixedBatch second = mix(cutmix, images, labels, 3);
    CHECK(difference(first.images, expected.at("mixup-images")) == 0.0);
    CHECK(difference(first.labels, expected.at("mixup-labels")) == 0.0);
    CHECK(difference(second.images, expected.at("cutmix-images")) == 0.0);
    CHECK(difference(second.labels, expected.at("cutmix-labels")) == 0.0);
    const at::Tensor output = wave(12, 0.5).reshape({4, 3});
    const auto loss = [&output](const at::Tensor& targets) {
        return at::cross_entropy_loss(output, targets, {}, at::Reduction::Mean, -100, 0.1);
    };
    CHECK(difference(loss(labels), expected.at("smoothed")) <= 1e-15);
    CHECK(difference(loss(second.labels.to(torch::kDouble)), expected.at("mixed-loss")) <= 1e-15);
}

TEST_CASE("the moving average equals torchvision's") {
    if (!test::has_python()) {
        MESSAGE("skipped: no Python with torch");
        return;
    }
    const auto expected = test::reference("averages");
    Norm norm(3);
    norm->to(torch::kDouble);
    norm->num_batches_tracked = torch::zeros({}, torch::kLong);  // to() takes all that is a number
    Ema ema(
        {{"weight", norm->weight},
         {"bias", norm->bias},
         {"running_mean", norm->running_mean},
         {"running_var", norm->running_var},
         {"num_batches_tracked", norm->num_batches_tracked}},
        0.9
    );
    for (int step = 0; step < 6; ++step) {
        const torch::NoGradGuard no_grad;
        norm->weight.copy_(wave(3, step));
        norm->bias.copy_(wave(3, step + 1));
        norm->running_mean.copy_(wave(3, step + 2));
        norm->running_var.copy_(wave(3, step + 3));
        norm->num_batches_tracked += 1;
        ema.update();
    }
    CHECK(ema.updates() == 6);
    for (const auto& [key, tensor] : ema.average()) {
        const std::string name{key};
        CAPTURE(name);
        if (name == "num_batches_tracked") {
            CHECK(tensor.item<std::int64_t>() == 6);
        } else {
            CHECK(difference(tensor, expected.at(name)) <= 1e-15);
        }
    }
    const at::Tensor before = norm->weight.detach().clone();
    ema.swap();
    CHECK(difference(norm->weight, expected.at("weight")) <= 1e-15);
    ema.swap();
    CHECK(norm->weight.equal(before));
}

TEST_CASE("the average's decay is adjusted as torchvision does it") {
    // adjust = 8 * 128 * 32 / 600; alpha = min(1, 2e-5 * adjust)
    CHECK(
        adjusted_decay(0.99998, 1024, 32, 600.0) ==
        doctest::Approx(1.0 - 2e-5 * 1024.0 * 32.0 / 600.0).epsilon(1e-9)
    );
    CHECK(adjusted_decay(0.5, 1024, 32, 1.0) == 0.0);
}

TEST_CASE("the scale halves after gradients that aren't finite, and doubles after enough that are"
) {
    at::Tensor parameter = torch::zeros({2}).requires_grad_();
    GradScaler scaler({.scale = 8.0, .growth_interval = 2});
    const auto give = [&](float value) {
        parameter.mutable_grad() = torch::tensor({value, 8.0F});
        const bool finite = scaler.unscale({parameter});
        scaler.update();
        return finite;
    };
    CHECK(give(16.0F));
    CHECK(parameter.grad().equal(torch::tensor({2.0F, 1.0F})));
    CHECK_FALSE(give(std::numeric_limits<float>::infinity()));
    CHECK(scaler.state().scale == 4.0);
    CHECK(scaler.state().growth_tracker == 0);
    CHECK(give(1.0F));
    CHECK(give(1.0F));
    CHECK(scaler.state().scale == 8.0);
    CHECK_FALSE(give(std::numeric_limits<float>::quiet_NaN()));
}

TEST_CASE("autocast ends with its scope") {
    const at::Tensor a = torch::ones({4, 4});
    {
        const Autocast autocast(torch::kCPU, torch::kBFloat16);
        CHECK((torch::mm(a, a).scalar_type() == torch::kBFloat16));
    }
    CHECK((torch::mm(a, a).scalar_type() == torch::kFloat));
    const Autocast none(torch::kCPU, std::nullopt);
    CHECK((torch::mm(a, a).scalar_type() == torch::kFloat));
}

/// Input gradient, weight gradient, bias gradient and running statistics of a norm.
struct NormRun {
    at::Tensor output, input_gradient, weight_gradient, bias_gradient, mean, variance;
};

NormRun run_norm(Norm& norm, const at::Tensor& images, const at::Tensor& factors) {
    const at::Tensor input = images.clone().requires_grad_();
    const at::Tensor output = norm->forward(input);
    (output * factors).sum().backward();
    return {
        output.detach(),
        input.grad(),
        norm->weight.grad(),
        norm->bias.grad(),
        norm->running_mean.clone(),
        norm->running_var.clone()};
}

TEST_CASE("batch norm over two ranks equals batch norm of one process over all pictures") {
    const at::Tensor images = wave(7 * 3 * 4 * 4).reshape({7, 3, 4, 4}) * 2.0 + 0.7;
    const at::Tensor factors = wave(7 * 3 * 4 * 4, 2.0).reshape({7, 3, 4, 4});
    const auto make = [] {
        Norm norm(3);
        norm->to(torch::kDouble);
        const torch::NoGradGuard no_grad;
        norm->weight.copy_(wave(3, 0.5));
        norm->bias.copy_(wave(3, 1.5));
        return norm;
    };
    Norm whole_norm = make();
    const NormRun whole = run_norm(whole_norm, images, factors);
    whole_norm->eval();
    const at::Tensor evaluated = whole_norm->forward(images).detach();
    std::mutex mutex;
    at::Tensor weight_gradient = torch::zeros({3}, torch::kDouble);
    at::Tensor bias_gradient = torch::zeros({3}, torch::kDouble);
    test::run_ranks(2, [&](int rank, const ProcessGroupPtr& group) {
        Norm norm = make();
        norm->synchronise(group);
        // Ranks of different size: four pictures and three.
        const std::int64_t begin = rank * 4;
        const std::int64_t count = rank == 0 ? 4 : 3;
        const NormRun part =
            run_norm(norm, images.narrow(0, begin, count), factors.narrow(0, begin, count));
        const std::lock_guard lock(mutex);
        CHECK(torch::allclose(part.output, whole.output.narrow(0, begin, count), 1e-12, 1e-12));
        CHECK(torch::allclose(
            part.input_gradient, whole.input_gradient.narrow(0, begin, count), 1e-11, 1e-12
        ));
        CHECK(torch::allclose(part.mean, whole.mean, 1e-12, 1e-12));
        CHECK(torch::allclose(part.variance, whole.variance, 1e-12, 1e-12));
        CHECK(norm->num_batches_tracked.item<std::int64_t>() == 1);
        weight_gradient += part.weight_gradient;
        bias_gradient += part.bias_gradient;
        norm->eval();
        CHECK(torch::allclose(norm->forward(images), evaluated, 1e-12, 1e-12));
    });
    CHECK(torch::allclose(weight_gradient, whole.weight_gradient, 1e-12, 1e-12));
    CHECK(torch::allclose(bias_gradient, whole.bias_gradient, 1e-12, 1e-12));
}

TEST_CASE("a model cut into two halves gives what the whole one gives") {
    torch::manual_seed(5);
    const ResNetOptions options{.shape = resnet_shape("resnet18").value(), .num_classes = 7};
    const auto whole = std::make_shared<ResNet>(options);
    torch::manual_seed(5);
    const auto halves = std::make_shared<ResNet>(options);
    halves->split(torch::kCPU, torch::kCPU);
    const at::Tensor images = torch::randn({3, 3, 32, 32});
    whole->forward(images).sum().backward();
    halves->forward(images).sum().backward();
    const auto expected = whole->parameters();
    const auto gradients = halves->parameters();
    for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(gradients[i].grad().equal(expected[i].grad()));
    }
}

TEST_CASE("two replicas in a process give the outputs and gradients of each part's own pass") {
    const ResNetOptions options{.shape = resnet_shape("resnet18").value(), .num_classes = 7};
    torch::manual_seed(5);
    const auto model = std::make_shared<ResNet>(options);
    torch::manual_seed(5);
    const auto alone = std::make_shared<ResNet>(options);
    Replicas replicas(model, options, {torch::kCPU, torch::kCPU});
    const at::Tensor images = torch::randn({6, 3, 32, 32});
    const at::Tensor output = replicas.forward(images, [](const auto& pass) { return pass(); });
    output.sum().backward();
    const at::Tensor first = alone->forward(images.narrow(0, 0, 3));
    const at::Tensor mean = alone->buffers()[0].clone();
    const at::Tensor second = alone->forward(images.narrow(0, 3, 3));
    (first.sum() + second.sum()).backward();
    CHECK(torch::allclose(output, torch::cat({first, second}), 1e-4, 1e-5));
    CHECK(model->buffers()[0].equal(mean));
    CHECK(torch::allclose(model->parameters()[0].grad(), alone->parameters()[0].grad(), 1e-3, 1e-3)
    );
}

TEST_CASE("the counts of a batch are those of its largest and its five largest outputs") {
    const at::Tensor outputs = torch::arange(24, torch::kFloat).reshape({3, 8});
    const at::Tensor counts = count_top(outputs, torch::tensor({7, 3, 0}, torch::kLong));
    CHECK(counts.equal(torch::tensor({1.0, 2.0}, torch::kDouble)));
    const at::Tensor few = count_top(outputs.narrow(1, 0, 2), torch::tensor({1, 0, 1}));
    CHECK(few.equal(torch::tensor({2.0, 3.0}, torch::kDouble)));
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
