// Each DDP option and hook against Python's DistributedDataParallel on the same model and data.
#include "tests/unit/trainer/rank_threads.h"
#include "tests/unit/trainer/reference.h"
#include "trainer/ddp.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <mutex>
#include <string>
#include <vector>

namespace ddprun::trainer {
namespace {

using test::wave;

constexpr int kSteps = 6;

/// The script's Net.
class Net final : public torch::nn::Module {
public:
    Net() {
        a_ = register_module("a", torch::nn::Linear(12, 32));
        b_ = register_module("b", torch::nn::Linear(32, 24));
        c_ = register_module("c", torch::nn::Linear(24, 4));
        spare_ = register_module("spare", torch::nn::Linear(12, 4));
        to(torch::kDouble);
        const torch::NoGradGuard no_grad;
        double phase = 0.0;
        for (auto& parameter : parameters()) {
            parameter.copy_((wave(parameter.numel(), phase) * 0.3).reshape(parameter.sizes()));
            phase += 1.0;
        }
    }

    at::Tensor forward(const at::Tensor& x, bool use_spare) {
        const at::Tensor hidden = torch::tanh(b_->forward(torch::tanh(a_->forward(x))));
        const at::Tensor y = c_->forward(hidden);
        return use_spare ? y + spare_->forward(x) : y;
    }

private:
    torch::nn::Linear a_ = nullptr, b_ = nullptr, c_ = nullptr, spare_ = nullptr;
};

at::Tensor batch_of(int step, int rank) {
    return wave(60, step + 0.25 * rank).reshape({5, 12});
}

struct Case {
    const char* name;
    DdpOptions options;
    double tolerance = 1e-12;
};

std::vector<Case> cases() {
    std::vector<Case> all(11);
    all[0] = {"defaults", {}};
    all[1] = {"view", {.gradient_as_bucket_view = true}};
    all[2] = {"small-buckets", {.bucket_cap_mb = 0.002}};
    all[3] = {"static", {.static_graph = true}};
    all[4] = {"unused", {.find_unused_parameters = true}};
    all[5] = {"no-sync", {}};
    all[6] = {"allreduce", {.comm_hook = CommHook::allreduce}};
    all[7] = {"fp16", {.comm_hook = CommHook::fp16_compress}, 2e-3};
    all[8] = {"bf16", {.comm_hook = CommHook::bf16_compress}, 2e-2};
    all[9] = {"powersgd1", {.comm_hook = CommHook::power_sgd}, 1e-10};
    all[10] = {
        "powersgd3",
        {.bucket_cap_mb = 0.005, .gradient_as_bucket_view = true, .comm_hook = CommHook::power_sgd},
        1e-10};
    for (const std::size_t i : {9U, 10U}) {
        auto& power = all[i].options.power_sgd;
        power.rank = i == 9 ? 1 : 3;
        power.start_step = 2;
        power.min_compression_rate = 1.5;
        power.seed = 7;
    }
    return all;
}

void run_step(Net& net, DistributedDataParallel& ddp, const std::string& name, int step, int rank) {
    const auto backward = [&](int which, bool use_spare) {
        const at::Tensor output =
            ddp.forward([&] { return net.forward(batch_of(which, rank), use_spare); });
        torch::square(output - 0.3).sum(1).mean().backward();
    };
    for (const auto& parameter : net.parameters()) {
        if (parameter.grad().defined()) {
            parameter.mutable_grad().zero_();
        }
    }
    if (name == "no-sync") {
        const DistributedDataParallel::NoSync no_sync(ddp);
        backward(step + 50, true);
    }
    backward(step, name != "unused" || step % 2 == 0);
}

at::Tensor gradients_of(const Net& net) {
    std::vector<at::Tensor> flat;
    for (const auto& parameter : net.parameters()) {
        flat.push_back(parameter.grad().reshape({-1}).clone());
    }
    return torch::cat(flat);
}

TEST_CASE("every option and hook gives the gradients of Python's DDP, step by step") {
    if (!test::has_python()) {
        MESSAGE("skipped: no Python with torch");
        return;
    }
    const auto expected = test::reference("ddp");
    for (const Case& each : cases()) {
        const std::string name = each.name;
        CAPTURE(name);
        std::vector<double> worst(kSteps, 0.0);
        test::run_ranks(2, [&](int rank, const ProcessGroupPtr& group) {
            const auto net = std::make_shared<Net>();
            DistributedDataParallel ddp(net, group, each.options);
            for (int step = 0; step < kSteps; ++step) {
                run_step(*net, ddp, name, step, rank);
                if (rank == 0) {
                    worst[static_cast<std::size_t>(step)] = test::difference(
                        gradients_of(*net), expected.at(name + "/" + std::to_string(step))
                    );
                }
            }
        });
        for (int step = 0; step < kSteps; ++step) {
            CAPTURE(step);
            CHECK(worst[static_cast<std::size_t>(step)] <= each.tolerance);
        }
    }
}

TEST_CASE("PowerSGD loses something, and its error feedback gives it back") {
    const auto run = [](bool feedback) {
        at::Tensor sum;
        test::run_ranks(2, [&](int rank, const ProcessGroupPtr& group) {
            const auto net = std::make_shared<Net>();
            DdpOptions options;
            options.comm_hook = CommHook::power_sgd;
            options.power_sgd = {.rank = 1, .start_step = 2, .error_feedback = feedback};
            DistributedDataParallel ddp(net, group, options);
            at::Tensor all;
            for (int step = 0; step < 30; ++step) {
                // The same batch each time: the errors would add up.
                run_step(*net, ddp, "", 0, rank);
                const at::Tensor mine = gradients_of(*net);
                if (step >= 2) {
                    all = all.defined() ? all + mine : mine;
                }
            }
            if (rank == 0) {
                sum = all / 28.0;
            }
        });
        return sum;
    };
    at::Tensor exact;
    test::run_ranks(2, [&](int rank, const ProcessGroupPtr& group) {
        const auto net = std::make_shared<Net>();
        DistributedDataParallel ddp(net, group, {});
        run_step(*net, ddp, "", 0, rank);
        if (rank == 0) {
            exact = gradients_of(*net);
        }
    });
    const double with = (run(true) - exact).norm().item<double>();
    const double without = (run(false) - exact).norm().item<double>();
    CHECK(without > 1e-3 * exact.norm().item<double>());
    CHECK(with < 0.5 * without);
}

TEST_CASE("PowerSGD runs with many buckets, on which Python's hook hangs with Gloo") {
    test::run_ranks(3, [&](int rank, const ProcessGroupPtr& group) {
        const auto net = std::make_shared<Net>();
        DdpOptions options;
        options.bucket_cap_mb = 0.0005;
        options.comm_hook = CommHook::power_sgd;
        options.power_sgd = {.rank = 2, .start_step = 2, .min_compression_rate = 1.5};
        DistributedDataParallel ddp(net, group, options);
        for (int step = 0; step < kSteps; ++step) {
            run_step(*net, ddp, "", step, rank);
        }
        CHECK(ddp.bucket_indices().size() > 2);
        CHECK(gradients_of(*net).isfinite().all().item<bool>());
    });
}

}  // namespace
}  // namespace ddprun::trainer
