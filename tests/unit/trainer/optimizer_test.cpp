#include "trainer/optimizer.h"

#include "tests/unit/trainer/reference.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

namespace ddprun::trainer {
namespace {

std::vector<at::Tensor> make_parameters() {
    return {
        test::wave(6).reshape({2, 3}).requires_grad_(),
        test::wave(5, 1.0).requires_grad_(),
    };
}

void set_gradients(const std::vector<at::Tensor>& parameters, int step) {
    for (const auto& parameter : parameters) {
        parameter.mutable_grad() = torch::cos(parameter.detach() * 2 + step);
    }
}

Optimizer make(
    const std::vector<at::Tensor>& parameters, const OptimizerOptions& options, double decay = 0.0
) {
    return {{{.parameters = parameters, .weight_decay = decay}}, options};
}

std::vector<std::pair<std::string, OptimizerOptions>> all_kinds() {
    return {
        {"sgd", {}},
        {"momentum", {.momentum = 0.9}},
        {"nesterov", {.momentum = 0.9, .nesterov = true}},
        {"adamw", {.kind = OptimizerKind::adamw}},
        {"lars", {.kind = OptimizerKind::lars, .momentum = 0.9, .trust = 0.02}},
    };
}

TEST_SUITE_BEGIN("trainer/optimizer");

TEST_CASE("five steps of each optimizer equal Python's") {
    if (!test::has_python()) {
        MESSAGE("skipped: no Python with torch");
        return;
    }
    const auto expected = test::reference("optimizers");
    for (const auto& [kind, options] : all_kinds()) {
        const std::string name{kind};
        CAPTURE(name);
        const auto parameters = make_parameters();
        Optimizer optimizer = make(parameters, options, name == "sgd" ? 0.0 : 0.01);
        for (int step = 0; step < 5; ++step) {
            set_gradients(parameters, step);
            optimizer.step(0.1);
        }
        const at::Tensor flat = torch::cat({parameters[0].reshape({-1}), parameters[1]});
        CHECK(test::difference(flat, expected.at(name)) <= 1e-15);
    }
}

TEST_CASE("a restored state continues a run bit by bit, with each optimizer") {
    for (const auto& [kind, options] : all_kinds()) {
        const std::string name{kind};
        CAPTURE(name);
        const auto unbroken = make_parameters();
        Optimizer first = make(unbroken, options, 0.01);
        for (int step = 0; step < 2; ++step) {
            set_gradients(unbroken, step);
            first.step(0.1);
        }
        std::vector<at::Tensor> resumed;
        for (const auto& parameter : unbroken) {
            resumed.push_back(parameter.detach().clone().requires_grad_());
        }
        Optimizer second = make(resumed, options, 0.01);
        REQUIRE(second.restore(first.state()));
        set_gradients(unbroken, 2);
        set_gradients(resumed, 2);
        first.step(0.1);
        second.step(0.1);
        for (std::size_t i = 0; i < resumed.size(); ++i) {
            CHECK(resumed[i].equal(unbroken[i]));
        }
    }
}

TEST_CASE("a state of another optimizer, count or shape is refused and changes nothing") {
    const auto parameters = make_parameters();
    Optimizer optimizer = make(parameters, {.momentum = 0.9});
    const NamedTensors right{{"momentum_buffer", torch::ones({2, 3}, torch::kDouble)}};

    CHECK_FALSE(optimizer.restore({right}));
    CHECK_FALSE(optimizer.restore({right, right}));
    CHECK_FALSE(optimizer.restore({{{"exp_avg", torch::ones({2, 3})}}, {}}));
    CHECK(optimizer.state()[0].empty());
    CHECK(optimizer.restore({right, {}}));
    CHECK(optimizer.state()[0].front().second.equal(right.front().second));
}

TEST_CASE("each group has a weight decay of its own") {
    const auto parameters = make_parameters();
    const at::Tensor before = parameters[1].detach().clone();
    Optimizer optimizer(
        {{.parameters = {parameters[0]}, .weight_decay = 0.5},
         {.parameters = {parameters[1]}, .weight_decay = 0.0}},
        {}
    );
    for (const auto& parameter : parameters) {
        parameter.mutable_grad() = torch::zeros_like(parameter);
    }
    const at::Tensor decayed = parameters[0].detach().clone() * (1.0 - 0.1 * 0.5);
    optimizer.step(0.1);
    CHECK(torch::allclose(parameters[0], decayed, 1e-14, 1e-14));
    CHECK(parameters[1].equal(before));
}

TEST_CASE("a parameter without a gradient is left alone and gets no state") {
    for (const auto& [kind, options] : all_kinds()) {
        const std::string name{kind};
        CAPTURE(name);
        const auto parameters = make_parameters();
        Optimizer optimizer = make(parameters, options);
        parameters[0].mutable_grad() = torch::ones_like(parameters[0]);
        const auto before = parameters[1].detach().clone();
        optimizer.step(0.1);
        CHECK(parameters[1].equal(before));
        CHECK(optimizer.state()[0].empty() == (name == "sgd"));
        CHECK(optimizer.state()[1].empty());
    }
}

TEST_CASE("LARS leaves a gradient or a weight of zero at its scale") {
    at::Tensor parameter = torch::zeros({3}, torch::kDouble).requires_grad_();
    Optimizer optimizer = make({parameter}, {.kind = OptimizerKind::lars});
    parameter.mutable_grad() = torch::ones({3}, torch::kDouble);
    optimizer.step(0.1);
    CHECK(parameter.equal(torch::full({3}, -0.1, torch::kDouble)));
}

TEST_CASE("clear_gradients leaves no parameter with a gradient") {
    const auto parameters = make_parameters();
    Optimizer optimizer = make(parameters, {});
    set_gradients(parameters, 0);
    optimizer.clear_gradients();
    for (const auto& parameter : parameters) {
        CHECK_FALSE(parameter.grad().defined());
    }
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
