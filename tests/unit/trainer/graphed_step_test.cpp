// Steps that are recorded and replayed, with a stand-in for the graph that runs the work again.
#include "trainer/graphed_step.h"

#include "tests/unit/trainer/rank_threads.h"

#include <ATen/CPUGeneratorImpl.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace ddprun::trainer {
namespace {

constexpr double kRate = 0.125;  // the same in float
constexpr int kSteps = GraphedStep::kWarmUpSteps + 4;

struct Calls {
    int captures = 0;
    int replays = 0;
};

/// Executes nothing when it records, as a device does, and the work when it replays.
class StandInGraph final : public StepGraph {
public:
    explicit StandInGraph(Calls& calls) : calls_(calls) {}

    void capture(const std::function<void()>& work) override {
        ++calls_.captures;
        work_ = work;
    }

    void replay() override {
        ++calls_.replays;
        work_();
    }

private:
    Calls& calls_;
    std::function<void()> work_;
};

struct Batch {
    at::Tensor images;
    at::Tensor labels;
};

Batch batch_of(int step, int rank, std::int64_t size) {
    // Not the process's generator, which both ranks' threads would draw from.
    auto random =
        at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(100 * rank + step));
    return {
        torch::randn({size, 3, 32, 32}, random),
        torch::randint(0, 10, {size}, random, torch::kLong)};
}

/// The same one each time.
std::shared_ptr<ResNet> draw_model() {
    static std::mutex one_at_a_time;  // the process's generator
    const std::lock_guard lock(one_at_a_time);
    torch::manual_seed(7);
    return std::make_shared<ResNet>(ResNetOptions{
        .shape = resnet_shape("resnet18").value(), .num_classes = 10});
}

/// A small model with all that a step needs.
struct Job {
    Job(const Options& given, const ProcessGroupPtr& group, int rank) : options(given) {
        model = draw_model();
        model->train();
        OptimizerOptions choice;
        choice.momentum = 0.9;
        if (options.optimizer == OptimizerChoice::adamw) {
            choice.kind = OptimizerKind::adamw;
        } else if (options.optimizer == OptimizerChoice::lars) {
            choice.kind = OptimizerKind::lars;
        }
        optimizer.emplace(
            std::vector<ParameterGroup>{{.parameters = model->parameters(), .weight_decay = 1e-4}},
            choice
        );
        if (group) {
            ddp = std::make_unique<DistributedDataParallel>(model, group, DdpOptions{});
        }
        step.emplace(
            options,
            StepParts{.model = *model, .optimizer = *optimizer, .ddp = ddp.get()},
            StepPlace{.rank = rank, .num_classes = 10}
        );
    }

    Options options;
    std::shared_ptr<ResNet> model;
    std::optional<Optimizer> optimizer;
    std::unique_ptr<DistributedDataParallel> ddp;
    std::optional<TrainStep> step;
};

std::int64_t size_of_batch(int step) {
    return step == GraphedStep::kWarmUpSteps + 1 ? 3 : 4;  // one that doesn't fit
}

/// Trains both ways; the losses and weights must be the same bits.
Calls check_equal(const Options& options, const ProcessGroupPtr& group = {}, int rank = 0) {
    Calls calls;
    Job plain(options, group, rank);
    std::vector<double> losses;
    for (int i = 1; i <= kSteps; ++i) {
        const Batch batch = batch_of(i, rank, size_of_batch(i));
        losses.push_back(plain.step->backward({.step = i}, batch.images, batch.labels).loss_sum);
        plain.step->update(kRate);
    }
    plain.ddp.reset();
    Job graphed(options, group, rank);
    GraphedStep step(*graphed.step, std::make_unique<StandInGraph>(calls), c10::kCPU);
    for (int i = 1; i <= kSteps; ++i) {
        const Batch batch = batch_of(i, rank, size_of_batch(i));
        const auto result = step.run({.step = i}, batch.images, batch.labels, kRate);
        CHECK(result.loss_sum == losses[static_cast<std::size_t>(i - 1)]);
        CHECK(step.recorded() == (i > GraphedStep::kWarmUpSteps + 1));
    }
    const auto expected = plain.model->parameters();
    const auto parameters = graphed.model->parameters();
    for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(parameters[i].equal(expected[i]));
    }
    return calls;
}

TEST_SUITE_BEGIN("trainer/graphed_step");

TEST_CASE("a recorded step is recorded once and trains as one that isn't, to the bit") {
    const Calls calls = check_equal({});

    CHECK(calls.captures == 1);
    CHECK(calls.replays == kSteps - GraphedStep::kWarmUpSteps - 1);  // one batch was smaller
}

TEST_CASE("mixed and clipped batches, AdamW and LARS are recorded, too") {
    Options options;
    options.mixup_alpha = 0.4;
    options.label_smoothing = 0.1;
    options.clip_grad_norm = 0.5;
    for (const auto optimizer : {OptimizerChoice::adamw, OptimizerChoice::lars}) {
        options.optimizer = optimizer;
        CHECK(check_equal(options).captures == 1);
    }
}

TEST_CASE("with DDP the sums over the ranks are in it") {
    std::mutex mutex;  // doctest's checks from two threads
    std::vector<Calls> all;
    test::run_ranks(2, [&](int rank, const ProcessGroupPtr& group) {
        const Calls calls = check_equal({}, group, rank);
        const std::lock_guard lock(mutex);
        all.push_back(calls);
    });

    REQUIRE(all.size() == 2);
    CHECK(all[0].captures == 1);
    CHECK(all[1].captures == 1);
}

TEST_CASE("gradients are clipped to the norm that Python's clip_grad_norm_ gives") {
    Options options;
    options.clip_grad_norm = 1e-3;
    Job job(options, {}, 0);
    const Batch batch = batch_of(1, 0, 4);
    static_cast<void>(job.step->backward({.step = 1}, batch.images, batch.labels));
    const auto norm = [&job] {
        double squares = 0.0;
        for (const auto& parameter : job.model->parameters()) {
            squares += parameter.grad().to(at::kDouble).square().sum().item<double>();
        }
        return std::sqrt(squares);
    };
    const double before = norm();
    REQUIRE(before > 1e-3);

    job.step->update(kRate);

    CHECK(norm() == doctest::Approx(1e-3 * before / (before + 1e-6)).epsilon(1e-4));
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
