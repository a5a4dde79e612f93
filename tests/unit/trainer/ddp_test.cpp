#include "trainer/ddp.h"

#include "tests/unit/trainer/rank_threads.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <array>
#include <mutex>
#include <string>
#include <vector>

namespace ddprun::trainer {
namespace {

using test::run_ranks;
using Gradients = std::vector<at::Tensor>;

constexpr std::int64_t kInputs = 6;
constexpr std::int64_t kHidden = 16;
constexpr std::int64_t kClasses = 3;
constexpr std::int64_t kBatchPerRank = 4;
constexpr double kExact = 1e-12;

/// Smooth activations: nothing can tip over between two orders of summation.
class Mlp final : public torch::nn::Module {
public:
    explicit Mlp(std::uint64_t seed) {
        torch::manual_seed(seed);
        first_ = register_module("first", torch::nn::Linear(kInputs, kHidden));
        second_ = register_module("second", torch::nn::Linear(kHidden, kHidden));
        third_ = register_module("third", torch::nn::Linear(kHidden, kClasses));
        spare_ = register_module("spare", torch::nn::Linear(kInputs, kClasses));
        offset_ = register_buffer("offset", torch::zeros({kHidden}));
        to(torch::kDouble);
    }

    at::Tensor forward(const at::Tensor& x, bool use_spare = true) {
        const at::Tensor hidden = torch::tanh(first_->forward(x)) + offset_;
        const at::Tensor out = third_->forward(torch::tanh(second_->forward(hidden)));
        return use_spare ? out + spare_->forward(x) : out;
    }

    torch::nn::Linear first_ = nullptr, second_ = nullptr, third_ = nullptr, spare_ = nullptr;
    at::Tensor offset_;
};

/// manual_seed sets one generator for the whole process, and ranks are threads here.
std::shared_ptr<Mlp> make_model(std::uint64_t seed) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    return std::make_shared<Mlp>(seed);
}

/// The batch of all ranks in step `step`, a smooth function of its indices.
at::Tensor whole_batch(int world_size, int step) {
    const std::int64_t rows = kBatchPerRank * world_size;
    const auto numbers = torch::arange(rows * kInputs, torch::kDouble).reshape({rows, kInputs});
    return torch::sin(numbers * 0.37 + step);
}

at::Tensor part_of(const at::Tensor& batch, int rank) {
    return batch.narrow(0, rank * kBatchPerRank, kBatchPerRank);
}

at::Tensor loss_of(const at::Tensor& output) {
    return torch::square(output - 0.3).sum(1).mean();
}

Gradients copy_gradients(const torch::nn::Module& module) {
    Gradients gradients;
    for (const auto& parameter : module.parameters()) {
        gradients.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
    }
    return gradients;
}

void zero_gradients(const torch::nn::Module& module) {
    for (const auto& parameter : module.parameters()) {
        if (parameter.grad().defined()) {
            parameter.mutable_grad().zero_();
        }
    }
}

Gradients whole_batch_gradients(int world_size, int step, bool use_spare = true) {
    const auto model = make_model(1);
    loss_of(model->forward(whole_batch(world_size, step), use_spare)).backward();
    return copy_gradients(*model);
}

/// The largest difference over all gradients, relative to the largest gradient.
double difference(const Gradients& a, const Gradients& b) {
    REQUIRE(a.size() == b.size());
    double largest = 0.0;
    double scale = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        REQUIRE(a[i].defined() == b[i].defined());
        if (a[i].defined()) {
            largest = std::max(largest, (a[i] - b[i]).abs().max().item<double>());
            scale = std::max(scale, b[i].abs().max().item<double>());
        }
    }
    REQUIRE(scale > 0.0);
    return largest / scale;
}

struct Case {
    std::string name;
    DdpOptions options;
    double tolerance = kExact;
};

std::vector<Case> exact_cases() {
    std::vector<Case> cases(7);
    cases[0].name = "defaults";
    cases[1].name = "gradients as bucket views";
    cases[1].options.gradient_as_bucket_view = true;
    cases[2].name = "many small buckets";
    cases[2].options.bucket_cap_mb = 0.0002;
    cases[3].name = "many small buckets as views";
    cases[3].options.bucket_cap_mb = 0.0002;
    cases[3].options.gradient_as_bucket_view = true;
    cases[4].name = "static graph";
    cases[4].options.static_graph = true;
    cases[5].name = "unused parameters are looked for";
    cases[5].options.find_unused_parameters = true;
    cases[6].name = "all-reduce as a hook";
    cases[6].options.comm_hook = CommHook::allreduce;
    return cases;
}

std::vector<Case> lossy_cases() {
    std::vector<Case> cases(2);
    cases[0].name = "fp16 hook";
    cases[0].options.comm_hook = CommHook::fp16_compress;
    cases[0].tolerance = 2e-3;
    cases[1].name = "bf16 hook";
    cases[1].options.comm_hook = CommHook::bf16_compress;
    cases[1].tolerance = 2e-2;
    return cases;
}

/// Four steps on `world_size` ranks; the largest difference from one process on the whole batch.
double worst_difference(int world_size, const DdpOptions& options) {
    constexpr int kSteps = 4;
    std::array<Gradients, kSteps> expected;
    for (int step = 0; step < kSteps; ++step) {
        expected[static_cast<std::size_t>(step)] = whole_batch_gradients(world_size, step);
    }
    std::mutex mutex;
    double worst = 0.0;
    run_ranks(world_size, [&](int rank, const ProcessGroupPtr& group) {
        const auto model = make_model(static_cast<std::uint64_t>(rank) + 1);
        DistributedDataParallel ddp(model, group, options);
        for (int step = 0; step < kSteps; ++step) {
            zero_gradients(*model);
            const auto x = part_of(whole_batch(world_size, step), rank);
            loss_of(ddp.forward([&] { return model->forward(x); })).backward();
            const std::lock_guard lock(mutex);
            worst = std::max(
                worst, difference(copy_gradients(*model), expected[static_cast<std::size_t>(step)])
            );
        }
    });
    return worst;
}

TEST_CASE("gradients of two ranks equal those of one process on the whole batch") {
    for (const auto& c : exact_cases()) {
        CAPTURE(c.name);
        CHECK(worst_difference(2, c.options) <= c.tolerance);
    }
}

TEST_CASE("gradients of three ranks equal those of one process on the whole batch") {
    CHECK(worst_difference(3, exact_cases()[3].options) <= kExact);
}

TEST_CASE("compressing hooks stay within the rounding of their type, and do round") {
    for (const auto& c : lossy_cases()) {
        CAPTURE(c.name);
        const double worst = worst_difference(2, c.options);
        CHECK(worst <= c.tolerance);
        CHECK(worst > 1e-6);
    }
}

TEST_CASE("all ranks start with rank 0's parameters and buffers") {
    run_ranks(2, [&](int rank, const ProcessGroupPtr& group) {
        const auto model = make_model(static_cast<std::uint64_t>(rank) + 1);
        model->offset_.fill_(rank + 0.5);
        const DistributedDataParallel ddp(model, group, {});
        const auto reference = make_model(1);
        for (std::size_t i = 0; i < reference->parameters().size(); ++i) {
            CHECK(model->parameters()[i].equal(reference->parameters()[i]));
        }
        CHECK(model->offset_.equal(torch::full({kHidden}, 0.5, torch::kDouble)));
    });
}

TEST_CASE("rank 0's buffers are sent before each forward pass, unless that is switched off") {
    for (const bool broadcast_buffers : {true, false}) {
        CAPTURE(broadcast_buffers);
        run_ranks(2, [&](int rank, const ProcessGroupPtr& group) {
            const auto model = make_model(1);
            DdpOptions options;
            options.broadcast_buffers = broadcast_buffers;
            DistributedDataParallel ddp(model, group, options);
            model->offset_.fill_(rank);
            const auto x = part_of(whole_batch(2, 0), rank);
            loss_of(ddp.forward([&] { return model->forward(x); })).backward();
            CHECK(model->offset_[0].item<double>() == (broadcast_buffers ? 0.0 : rank));
        });
    }
}

TEST_CASE("buckets are one at first and rebuilt to the cap after the first backward pass") {
    run_ranks(2, [&](int rank, const ProcessGroupPtr& group) {
        const auto model = make_model(1);
        DdpOptions options;
        options.bucket_cap_mb = 0.0002;
        DistributedDataParallel ddp(model, group, options);
        CHECK(ddp.bucket_indices().size() == 1);
        CHECK_FALSE(ddp.buckets_rebuilt());
        for (int step = 0; step < 2; ++step) {
            const auto x = part_of(whole_batch(2, step), rank);
            loss_of(ddp.forward([&] { return model->forward(x); })).backward();
        }
        CHECK(ddp.buckets_rebuilt());
        CHECK(ddp.bucket_indices().size() > 2);
    });
}

TEST_CASE("inside NoSync gradients only add up, and the next backward pass synchronises the sum") {
    auto expected = whole_batch_gradients(2, 0);
    const auto second = whole_batch_gradients(2, 1);
    for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] += second[i];
    }
    for (const bool view : {false, true}) {
        CAPTURE(view);
        run_ranks(2, [&](int rank, const ProcessGroupPtr& group) {
            const auto model = make_model(1);
            DdpOptions options;
            options.gradient_as_bucket_view = view;
            DistributedDataParallel ddp(model, group, options);
            const auto backward = [&](int step) {
                const auto x = part_of(whole_batch(2, step), rank);
                loss_of(ddp.forward([&] { return model->forward(x); })).backward();
            };
            {
                const DistributedDataParallel::NoSync no_sync(ddp);
                backward(0);
                CHECK(difference(copy_gradients(*model), whole_batch_gradients(2, 0)) > 1e-3);
            }
            backward(1);
            CHECK(difference(copy_gradients(*model), expected) <= kExact);
        });
    }
}

TEST_CASE("a parameter that no rank uses keeps no gradient, one that one rank uses is averaged") {
    run_ranks(2, [&](int rank, const ProcessGroupPtr& group) {
        const auto model = make_model(1);
        DdpOptions options;
        options.find_unused_parameters = true;
        DistributedDataParallel ddp(model, group, options);
        const auto x = part_of(whole_batch(2, 0), rank);
        loss_of(ddp.forward([&] { return model->forward(x, false); })).backward();
        CHECK_FALSE(model->spare_->weight.grad().defined());
        CHECK(difference(copy_gradients(*model), whole_batch_gradients(2, 0, false)) <= kExact);
        zero_gradients(*model);
        loss_of(ddp.forward([&] { return model->forward(x, rank == 0); })).backward();
        const auto alone = make_model(1);
        loss_of(alone->forward(part_of(whole_batch(2, 0), 0))).backward();
        REQUIRE(model->spare_->weight.grad().defined());
        CHECK(torch::allclose(
            model->spare_->weight.grad(), alone->spare_->weight.grad() / 2, kExact, kExact
        ));
    });
}

TEST_CASE("a static graph learns by itself which parameters are unused") {
    run_ranks(2, [&](int rank, const ProcessGroupPtr& group) {
        const auto model = make_model(1);
        DdpOptions options;
        options.static_graph = true;
        DistributedDataParallel ddp(model, group, options);
        for (int step = 0; step < 3; ++step) {
            zero_gradients(*model);
            const auto x = part_of(whole_batch(2, step), rank);
            loss_of(ddp.forward([&] { return model->forward(x, false); })).backward();
            const auto expected = whole_batch_gradients(2, step, false);
            CHECK(torch::allclose(model->first_->weight.grad(), expected[0], kExact, kExact));
        }
    });
}

TEST_CASE("without looking for unused parameters, leaving one out is an error and not a hang") {
    run_ranks(2, [&](int rank, const ProcessGroupPtr& group) {
        const auto model = make_model(1);
        DistributedDataParallel ddp(model, group, {});
        const auto x = part_of(whole_batch(2, 0), rank);
        loss_of(ddp.forward([&] { return model->forward(x, false); })).backward();
        CHECK_THROWS_AS(
            static_cast<void>(ddp.forward([&] { return model->forward(x, false); })), c10::Error
        );
    });
}

TEST_CASE("ranks with different models are told so") {
    run_ranks(2, [&](int rank, const ProcessGroupPtr& group) {
        auto model = std::make_shared<torch::nn::LinearImpl>(rank == 0 ? 3 : 4, 2);
        CHECK_THROWS(DistributedDataParallel(model, group, {}));
    });
}

TEST_CASE("with the recorded buckets a restarted run goes on bit by bit on three ranks") {
    constexpr int kWorld = 3;
    run_ranks(kWorld, [&](int rank, const ProcessGroupPtr& group) {
        DdpOptions options;
        options.bucket_cap_mb = 0.002;
        const auto model = make_model(1);
        model->to(torch::kFloat);
        const auto gradients_of = [&](DistributedDataParallel& ddp, int step) {
            zero_gradients(*model);
            const auto x = part_of(whole_batch(kWorld, step), rank).to(torch::kFloat);
            loss_of(ddp.forward([&] { return model->forward(x); })).backward();
            return copy_gradients(*model);
        };
        Gradients unbroken;
        {
            DistributedDataParallel ddp(model, group, options);
            for (int step = 0; step < 3; ++step) {
                unbroken = gradients_of(ddp, step);
            }
            options.initial_buckets = ddp.bucket_indices();
        }
        for (const auto& parameter : model->parameters()) {
            parameter.mutable_grad() = at::Tensor();
        }
        DistributedDataParallel resumed(model, group, options);
        const auto gradients = gradients_of(resumed, 2);
        for (std::size_t i = 0; i < gradients.size(); ++i) {
            CHECK(gradients[i].equal(unbroken[i]));
        }
        static_cast<void>(gradients_of(resumed, 3));
        CHECK(resumed.bucket_indices() == options.initial_buckets);
    });
}

}  // namespace
}  // namespace ddprun::trainer
