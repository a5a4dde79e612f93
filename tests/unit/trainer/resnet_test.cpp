#include "trainer/resnet.h"

#include "tests/support/command.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <zlib.h>

#include <chrono>
#include <map>
#include <sstream>
#include <string>

namespace ddprun::trainer {
namespace {

constexpr int kSeed = 7;

/// "SHAPE CRC" of each entry of the state dict.
using Sums = std::map<std::string, std::string>;

std::string sum_of(const at::Tensor& tensor) {
    const at::Tensor bytes = tensor.detach().contiguous();
    const auto crc =
        ::crc32(0, static_cast<const Bytef*>(bytes.data_ptr()), static_cast<uInt>(bytes.nbytes()));
    std::string shape;
    for (const auto size : bytes.sizes()) {
        shape += fmt::format("{}x", size);
    }
    return fmt::format("{} {}", shape.empty() ? "scalar" : shape, crc);
}

Sums sums_here(const std::string& name, std::int64_t num_classes, bool zero_init_residual) {
    torch::manual_seed(kSeed);
    const ResNet model({
        .shape = resnet_shape(name).value(),
        .num_classes = num_classes,
        .zero_init_residual = zero_init_residual,
    });
    Sums sums;
    for (const auto& entry : model.named_parameters()) {
        sums[entry.key()] = sum_of(entry.value());
    }
    for (const auto& entry : model.named_buffers()) {
        sums[entry.key()] = sum_of(entry.value());
    }
    return sums;
}

std::string run_python(const std::string& program) {
    const auto result = test::run_command(
        {.argv = {DDPRUN_PYTHON, "-c", program},
         .env = {"OMP_NUM_THREADS=1"},
         .deadline = std::chrono::seconds(100)}
    );
    REQUIRE_MESSAGE(result.exit_code == 0, test::describe(result), result.err);
    return result.out;
}

/// model -> sums, for all that the test compares, in one start of Python.
std::map<std::string, Sums> sums_in_python() {
    const std::string program = fmt::format(
        R"(
import torch, torchvision, zlib
cases = [("resnet18", 10, False), ("resnet34", 1000, False), ("resnet50", 1000, False),
         ("resnet50", 10, True), ("resnet101", 7, False), ("resnet152", 10, False)]
for name, classes, zero in cases:
    torch.manual_seed({})
    model = getattr(torchvision.models, name)(num_classes=classes, zero_init_residual=zero)
    for key, t in model.state_dict().items():
        shape = "".join(str(n) + "x" for n in t.shape) or "scalar"
        print("%s/%d/%d" % (name, classes, zero), key, shape, zlib.crc32(t.numpy().tobytes()))
)",
        kSeed
    );
    std::map<std::string, Sums> result;
    std::istringstream lines(run_python(program));
    std::string model;
    std::string key;
    std::string shape;
    std::string crc;
    while (lines >> model >> key >> shape >> crc) {
        result[model][key] = shape + " " + crc;
    }
    return result;
}

TEST_CASE("names, shapes and weights equal torchvision's from the same seed, bit by bit") {
    if (std::string(DDPRUN_PYTHON).empty()) {
        MESSAGE("skipped: no Python with torchvision");
        return;
    }
    const auto expected = sums_in_python();
    REQUIRE(expected.size() == 6);
    for (const auto& [each, sums] : expected) {
        const std::string label{each};  // clang 14 captures no structured binding
        CAPTURE(label);
        std::istringstream parts(label);
        std::string name;
        std::string classes;
        std::string zero;
        std::getline(parts, name, '/');
        std::getline(parts, classes, '/');
        std::getline(parts, zero);
        CHECK(sums_here(name, std::stoll(classes), zero == "1") == sums);
    }
}

TEST_CASE("resnet50 has torchvision's counts of parameters, tensors and buffers") {
    const ResNet model({.shape = resnet_shape("resnet50").value()});
    std::int64_t elements = 0;
    for (const auto& parameter : model.parameters()) {
        elements += parameter.numel();
    }
    CHECK(elements == 25'557'032);
    CHECK(model.parameters().size() == 161);
    CHECK(model.buffers().size() == 159);
}

TEST_CASE("every image size down to one pixel gives one row of classes a picture") {
    ResNet model({.shape = resnet_shape("resnet18").value(), .num_classes = 10});
    model.eval();
    const torch::NoGradGuard no_grad;
    for (const std::int64_t size : {1, 28, 33, 64}) {
        CAPTURE(size);
        CHECK(model.forward(torch::zeros({2, 3, size, size})).sizes() == at::IntArrayRef({2, 10}));
    }
}

TEST_CASE("an unknown model's name is refused with the names that there are") {
    const auto shape = resnet_shape("resnet51");
    REQUIRE_FALSE(shape);
    CHECK(shape.error().context.find("resnet51") != std::string::npos);
    CHECK(shape.error().context.find("resnet50") != std::string::npos);
}

}  // namespace
}  // namespace ddprun::trainer
