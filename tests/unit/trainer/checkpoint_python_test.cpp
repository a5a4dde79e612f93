#include "tests/unit/trainer/checkpoint_samples.h"
#include "trainer/checkpoint_reader.h"
#include "trainer/resnet.h"
#include "trainer/safetensors_file.h"
#include "trainer/weights.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <sstream>

namespace ddprun::trainer {
namespace {

TEST_SUITE_BEGIN("trainer/checkpoint_python");

TEST_CASE("Python loads a checkpoint with weights_only and torchvision takes the model strictly") {
    if (!has_python()) {
        return;
    }
    const TempFolder folder;
    torch::manual_seed(5);
    ResNetOptions options;
    options.shape = resnet_shape("resnet18").value();
    options.num_classes = 10;
    const auto model = std::make_shared<ResNet>(options);
    model->eval();
    TrainingState state = small_state();
    state.model = state_dict_of(*model);
    state.model_ema = state.model;
    state.optimizer.state.clear();
    for (const at::Tensor& parameter : model->parameters()) {
        state.optimizer.state.push_back({{"momentum_buffer", torch::full_like(parameter, 0.25)}});
    }
    state.optimizer.groups = {
        {.parameters = state.optimizer.state.size(),
         .lr = 0.05,
         .initial_lr = 0.1,
         .weight_decay = 1e-4}};
    REQUIRE(write_checkpoint(state, folder / "a.pt").has_value());
    const torch::NoGradGuard no_grad;
    const at::Tensor logits = model->forward(torch::ones({1, 3, 64, 64})).to(torch::kDouble);

    const std::string out = run_python(
        R"(
import sys, torch, torchvision
c = torch.load(sys.argv[1], weights_only=True)
assert [k for k in ("model", "optimizer", "lr_scheduler", "epoch", "args") if k not in c] == []
assert type(c["args"]) is dict and c["args"]["model"] == "resnet18"
assert c["epoch"] == 2 and c["step"] == 123 and c["position"] == 4096
assert c["ddp_buckets"] == [[2, 1], [0]] and c["rng"].dtype == torch.uint8
m = torchvision.models.resnet18(num_classes=10)
m.load_state_dict(c["model"], strict=True)
o = torch.optim.SGD(m.parameters(), lr=1.0)
o.load_state_dict(c["optimizer"])
g = o.param_groups[0]
assert (g["lr"], g["momentum"], g["weight_decay"], g["nesterov"]) == (0.05, 0.9, 1e-4, True)
for p in m.parameters():
    assert bool((o.state[p]["momentum_buffer"] == 0.25).all())
    p.grad = torch.zeros_like(p)
s = torch.optim.lr_scheduler.StepLR(o, step_size=30)
s.load_state_dict(c["lr_scheduler"])
m.eval()
with torch.no_grad():
    print(" ".join("%.17g" % v for v in m(torch.ones(1, 3, 64, 64))[0].double().tolist()))
o.step(); s.step()
)",
        {(folder / "a.pt").string()}
    );

    std::istringstream numbers(out);
    for (int i = 0; i < 10; ++i) {
        double value = 0.0;
        REQUIRE((numbers >> value));
        CHECK(value == doctest::Approx(logits[0][i].item<double>()).epsilon(1e-5));
    }
}

TEST_CASE("a checkpoint of torchvision's scripts is read with its optimizer and its epoch") {
    if (!has_python()) {
        return;
    }
    const TempFolder folder;
    run_python(
        R"(
import argparse, sys, torch, torchvision
torch.manual_seed(5)
m = torchvision.models.resnet18(num_classes=10)
o = torch.optim.SGD(m.parameters(), lr=0.2, momentum=0.8, weight_decay=1e-3, nesterov=True)
m(torch.ones(2, 3, 64, 64)).sum().backward()
o.step()
s = torch.optim.lr_scheduler.StepLR(o, step_size=30)
torch.save({"model": m.state_dict(), "optimizer": o.state_dict(), "lr_scheduler": s.state_dict(),
            "epoch": 4, "args": argparse.Namespace(model="resnet18", lr=0.2, big=1 << 100)}, sys.argv[1])
d = {("module." + k): v for k, v in m.state_dict().items()}
torch.save(d, sys.argv[2])
torch.save({"state_dict": d, "other": {1, 2}}, sys.argv[3])
torch.save(m.half().state_dict(), sys.argv[4])
)",
        {(folder / "a.pt").string(),
         (folder / "ddp.pth").string(),
         (folder / "level.pth").string(),
         (folder / "half.pth").string()}
    );
    ResNetOptions options;
    options.shape = resnet_shape("resnet18").value();
    options.num_classes = 10;
    const auto model = std::make_shared<ResNet>(options);
    const NamedTensors target = state_dict_of(*model);

    const auto state = read_checkpoint(folder / "a.pt");

    REQUIRE_MESSAGE(state.has_value(), state.error().context);
    CHECK(state->epoch == 4);
    REQUIRE(state->optimizer.groups.size() == 1);
    CHECK(state->optimizer.groups[0].lr == 0.2);
    CHECK(state->optimizer.groups[0].weight_decay == 1e-3);
    CHECK(state->optimizer.options.momentum == 0.8);
    CHECK(state->optimizer.options.nesterov);
    REQUIRE(state->optimizer.state.size() == model->parameters().size());
    REQUIRE(state->optimizer.state[0].size() == 1);
    CHECK(state->optimizer.state[0][0].second.sizes() == model->parameters()[0].sizes());
    REQUIRE(load_weights(target, state->model, "a.pt").has_value());
    for (const char* name : {"ddp.pth", "level.pth"}) {
        const auto weights = read_weights(folder / name);
        REQUIRE_MESSAGE(weights.has_value(), weights.error().context);
        check_equal(*weights, state->model);
    }
    const auto half = read_weights(folder / "half.pth");
    REQUIRE(half.has_value());
    CHECK(load_weights(target, *half, "half.pth").has_value());
}

TEST_CASE("Python resumes AdamW, warm-up and cosine, average and scaler as torchvision's scripts do"
) {
    if (!has_python()) {
        return;
    }
    const TempFolder folder;
    TrainingState state = small_state();
    state.model = {{"weight", torch::full({2, 3}, 1.5)}, {"bias", torch::full({2}, 2.5)}};
    state.model_ema = {{"weight", torch::full({2, 3}, 3.5)}, {"bias", torch::full({2}, 4.5)}};
    state.optimizer.options = {.kind = OptimizerKind::adamw, .beta1 = 0.8, .beta2 = 0.95};
    // 10 steps an epoch, 2 epochs of warm-up, 12 in all, 3 done.
    state.schedule = ScheduleRecord{
        .options =
            {.kind = ScheduleKind::cosine, .lr = 0.1, .total_steps = 120, .warmup_steps = 20},
        .steps_per_epoch = 10,
        .epochs_done = 3,
        .groups = 2};
    const double lr = learning_rate(state.schedule->options, 30);
    state.optimizer.groups = {
        {.parameters = 1, .lr = lr, .initial_lr = 0.1, .weight_decay = 0.25},
        {.parameters = 1, .lr = lr, .initial_lr = 0.1, .weight_decay = 0.0}};
    state.optimizer.state.clear();
    for (const auto& entry : state.model) {
        state.optimizer.state.push_back(
            {{"step", torch::tensor(7.0F)},
             {"exp_avg", torch::full_like(entry.second, 0.5)},
             {"exp_avg_sq", torch::full_like(entry.second, 0.75)}}
        );
    }
    REQUIRE(write_checkpoint(state, folder / "a.pt").has_value());

    const std::string out = run_python(
        R"(
import sys, torch
from torch import nn
from torch.optim import lr_scheduler as s
c = torch.load(sys.argv[1], weights_only=True)
m = nn.Linear(3, 2)
m.load_state_dict(c["model"])
o = torch.optim.AdamW([{"params": [m.weight]}, {"params": [m.bias]}], lr=9.0)
both = s.SequentialLR(
    o, [s.LinearLR(o, start_factor=0.01, total_iters=2), s.CosineAnnealingLR(o, T_max=10)], milestones=[2])
ema = torch.optim.swa_utils.AveragedModel(m, avg_fn=lambda a, b, n: a, use_buffers=True)
scaler = torch.amp.GradScaler("cpu")
o.load_state_dict(c["optimizer"])
both.load_state_dict(c["lr_scheduler"])
ema.load_state_dict(c["model_ema"])
scaler.load_state_dict(c["scaler"])
g = o.param_groups
assert (g[0]["weight_decay"], g[1]["weight_decay"], g[0]["betas"]) == (0.25, 0.0, (0.8, 0.95))
assert o.state[m.weight]["step"] == 7 and float(o.state[m.bias]["exp_avg_sq"][0]) == 0.75
assert float(ema.module.bias[0]) == 4.5 and int(ema.n_averaged) == 5
assert scaler.get_scale() == 1024.0
assert c["best_top1"] == 71.25
for p in m.parameters():
    p.grad = torch.zeros_like(p)
o.step(); both.step()
want = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
ref = s.SequentialLR(
    want, [s.LinearLR(want, start_factor=0.01, total_iters=2), s.CosineAnnealingLR(want, T_max=10)],
    milestones=[2])
for _ in range(4):
    want.step(); ref.step()
print(abs(g[0]["lr"] / want.param_groups[0]["lr"] - 1.0) < 1e-9, g[0]["lr"], want.param_groups[0]["lr"])
)",
        {(folder / "a.pt").string()}
    );

    CHECK_MESSAGE(out.starts_with("True"), out);
}

TEST_CASE("Python reads exported safetensors byte for byte") {
    if (!has_python()) {
        return;
    }
    const TempFolder folder;
    const NamedTensors tensors{
        {"a", torch::arange(6, torch::kFloat).reshape({2, 3})},
        {"n", torch::tensor(std::int64_t{7})}};
    REQUIRE(write_safetensors(tensors, folder / "w.safetensors").has_value());

    // The format's own description, read by hand: the package need not be there.
    const std::string out = run_python(
        R"(
import json, struct, sys
b = open(sys.argv[1], "rb").read()
n, = struct.unpack("<Q", b[:8])
h = json.loads(b[8:8 + n])
assert h["__metadata__"] == {"format": "pt"}
d = b[8 + n:]
f = lambda k: d[slice(*h[k]["data_offsets"])]
assert h["a"]["dtype"] == "F32" and h["a"]["shape"] == [2, 3] and h["n"]["dtype"] == "I64"
print(struct.unpack("<6f", f("a")), struct.unpack("<q", f("n")))
)",
        {(folder / "w.safetensors").string()}
    );

    CHECK(out == "(0.0, 1.0, 2.0, 3.0, 4.0, 5.0) (7,)\n");
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
