#include "trainer/sgd.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <vector>

namespace ddprun::trainer {
namespace {

std::vector<at::Tensor> make_parameters() {
    return {
        torch::arange(6, torch::kDouble).reshape({2, 3}).div(7).requires_grad_(),
        torch::arange(5, torch::kDouble).div(-3).requires_grad_(),
    };
}

void set_gradients(const std::vector<at::Tensor>& parameters, int step) {
    for (const auto& parameter : parameters) {
        parameter.mutable_grad() = torch::cos(parameter.detach() * 2 + step);
    }
}

TEST_CASE("steps equal those of torch::optim::SGD") {
    const std::vector<SgdOptions> cases = {
        {},
        {.momentum = 0.9},
        {.momentum = 0.9, .weight_decay = 0.01},
        {.momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
    };
    for (const auto& options : cases) {
        CAPTURE(options.momentum);
        CAPTURE(options.weight_decay);
        CAPTURE(options.nesterov);
        const auto ours = make_parameters();
        const auto theirs = make_parameters();
        Sgd sgd(ours, options);
        torch::optim::SGD reference(
            theirs,
            torch::optim::SGDOptions(0.1)
                .momentum(options.momentum)
                .weight_decay(options.weight_decay)
                .nesterov(options.nesterov)
        );
        for (int step = 0; step < 5; ++step) {
            set_gradients(ours, step);
            set_gradients(theirs, step);
            sgd.step(0.1);
            reference.step();
        }
        for (std::size_t i = 0; i < ours.size(); ++i) {
            CHECK(torch::allclose(ours[i], theirs[i], 1e-13, 1e-14));
        }
    }
}

TEST_CASE("restored momentum buffers continue a run bit by bit") {
    const auto unbroken = make_parameters();
    Sgd first(unbroken, {.momentum = 0.9, .weight_decay = 0.01});
    for (int step = 0; step < 2; ++step) {
        set_gradients(unbroken, step);
        first.step(0.1);
    }
    std::vector<at::Tensor> resumed;
    for (const auto& parameter : unbroken) {
        resumed.push_back(parameter.detach().clone().requires_grad_());
    }
    Sgd second(resumed, {.momentum = 0.9, .weight_decay = 0.01});
    second.restore(first.momentum_buffers());
    set_gradients(unbroken, 2);
    set_gradients(resumed, 2);
    first.step(0.1);
    second.step(0.1);
    for (std::size_t i = 0; i < resumed.size(); ++i) {
        CHECK(resumed[i].equal(unbroken[i]));
    }
}

TEST_CASE("a parameter without a gradient is left alone and gets no momentum") {
    const auto parameters = make_parameters();
    Sgd sgd(parameters, {.momentum = 0.9});
    parameters[0].mutable_grad() = torch::ones_like(parameters[0]);
    const auto before = parameters[1].detach().clone();
    sgd.step(0.1);
    CHECK(parameters[1].equal(before));
    CHECK(sgd.momentum_buffers()[0].defined());
    CHECK_FALSE(sgd.momentum_buffers()[1].defined());
}

TEST_CASE("clear_gradients leaves no parameter with a gradient") {
    const auto parameters = make_parameters();
    Sgd sgd(parameters, {});
    set_gradients(parameters, 0);
    sgd.clear_gradients();
    for (const auto& parameter : parameters) {
        CHECK_FALSE(parameter.grad().defined());
    }
}

}  // namespace
}  // namespace ddprun::trainer
