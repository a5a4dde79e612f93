"""What PyTorch and torchvision compute, for the trainer's tests that compare: trainer_reference.py CASE.

Prints lines of a name and numbers; each CASE is described at its function. Inputs are smooth functions of
their indices, so that both sides have them without files.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def show(name, values):
    if isinstance(values, torch.Tensor):
        values = values.detach().double().reshape(-1).tolist()
    print(name, *(float(v).hex() for v in values))


def wave(count, phase=0.0, dtype=torch.double):
    return torch.sin(torch.arange(count, dtype=torch.double) * 0.37 + phase).to(dtype)


def schedules():
    """The rate of each of 40 steps of several schedules."""
    from torch.optim import lr_scheduler as s

    warm = 6
    cases = {
        "constant": lambda o: s.ConstantLR(o, factor=1.0, total_iters=0),
        "step": lambda o: s.StepLR(o, step_size=7, gamma=0.3),
        "exponential": lambda o: s.ExponentialLR(o, gamma=0.9),
        "cosine": lambda o: s.CosineAnnealingLR(o, T_max=40 - warm, eta_min=0.01),
        "polynomial": lambda o: s.PolynomialLR(o, total_iters=40 - warm, power=2.0),
    }
    for name, make in cases.items():
        for warmup in ("linear", "constant"):
            optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
            first = (
                s.LinearLR(optimizer, start_factor=0.1, total_iters=warm)
                if warmup == "linear"
                else s.ConstantLR(optimizer, factor=0.1, total_iters=warm)
            )
            both = s.SequentialLR(optimizer, [first, make(optimizer)], milestones=[warm])
            rates = []
            for _ in range(40):
                rates.append(optimizer.param_groups[0]["lr"])
                optimizer.step()
                both.step()
            show(f"{name}-{warmup}", rates)


def lars_gradient(p, decay, trust, eps):
    w, g = p.norm(), p.grad.norm()
    ratio = trust * w / (g + decay * w + eps) if w > 0 and g > 0 else 1.0
    return (p.grad + decay * p.detach()) * ratio


def optimizers():
    """Two parameters after five steps of each optimizer."""
    def parameters():
        return [nn.Parameter(wave(6).reshape(2, 3)), nn.Parameter(wave(5, 1.0))]

    cases = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
        "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, fused=True),
        "nesterov": lambda p: torch.optim.SGD(
            p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True, fused=True),
        "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.01, fused=True),
        "lars": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    }
    for name, make in cases.items():
        p = parameters()
        optimizer = make(p)
        for step in range(5):
            for each in p:
                each.grad = torch.cos(each.detach() * 2 + step)
            if name == "lars":
                for each in p:
                    each.grad = lars_gradient(each, 0.01, 0.02, 1e-8)
            optimizer.step()
        show(name, torch.cat([each.reshape(-1) for each in p]))


def mixing():
    """Mixup and cutmix of torchvision with given weights."""
    from torchvision.transforms import v2

    images, labels = wave(4 * 3 * 8 * 8, dtype=torch.float).reshape(4, 3, 8, 8), torch.tensor([0, 2, 1, 2])
    mixup = v2.MixUp(num_classes=3)
    mixup.make_params = lambda _: {"lam": 0.3}
    cutmix = v2.CutMix(num_classes=3)
    cutmix.make_params = lambda _: {"box": (2, 1, 7, 5), "lam_adjusted": 1.0 - 20 / 64}
    for name, transform in (("mixup", mixup), ("cutmix", cutmix)):
        mixed, targets = transform(images, labels)
        show(name + "-images", mixed)
        show(name + "-labels", targets)
    output = wave(4 * 3, 0.5).reshape(4, 3)
    show("smoothed", [nn.CrossEntropyLoss(label_smoothing=0.1)(output, labels)])
    show("mixed-loss", [nn.CrossEntropyLoss(label_smoothing=0.1)(output, targets.double())])


def averages():
    """torchvision's moving average over six updates, and its adjusted decay."""
    def average(a, m, _):
        return 0.9 * a + 0.1 * m

    model = nn.BatchNorm2d(3).double()
    ema = torch.optim.swa_utils.AveragedModel(model, avg_fn=average, use_buffers=True)
    for step in range(6):
        with torch.no_grad():
            for i, each in enumerate((model.weight, model.bias, model.running_mean, model.running_var)):
                each.copy_(wave(3, step + i))
        ema.update_parameters(model)
    state = ema.module.state_dict()
    for name in ("weight", "bias", "running_mean", "running_var"):
        show(name, state[name])


class Net(nn.Module):
    """Smooth; the last layer is left out of some steps where a case asks for it."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(12, 32), nn.Linear(32, 24), nn.Linear(24, 4)
        self.spare = nn.Linear(12, 4)
        self.double()
        with torch.no_grad():
            for i, p in enumerate(self.parameters()):
                p.copy_((wave(p.numel(), i) * 0.3).reshape(p.shape))

    def forward(self, x, use_spare=True):
        y = self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))
        return y + self.spare(x) if use_spare else y


def batch_of(step, rank):
    return wave(5 * 12, step + 0.25 * rank).reshape(5, 12)


STEPS = 6
CASES = {
    "defaults": {},
    "view": {"gradient_as_bucket_view": True},
    "small-buckets": {"bucket_cap_mb": 0.002},
    "static": {"static_graph": True},
    "unused": {"find_unused_parameters": True},
    "no-sync": {},
    "allreduce": {},
    "fp16": {},
    "bf16": {},
    # One bucket: with several, callbacks of Gloo's threads wait for each other and Python's hook hangs.
    "powersgd1": {},
    "powersgd3": {"gradient_as_bucket_view": True},
}


def register_hook(ddp, name):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

    plain = {"allreduce": default_hooks.allreduce_hook, "fp16": default_hooks.fp16_compress_hook,
             "bf16": default_hooks.bf16_compress_hook}
    if name in plain:
        ddp.register_comm_hook(None, plain[name])
    elif name.startswith("powersgd"):
        state = power.PowerSGDState(None, matrix_approximation_rank=int(name[-1]), start_powerSGD_iter=2,
                                    min_compression_rate=1.5, random_seed=7)
        ddp.register_comm_hook(state, power.powerSGD_hook)


def run_case(name, options, rank):
    model = Net()
    ddp = nn.parallel.DistributedDataParallel(model, **options)
    register_hook(ddp, name)
    for step in range(STEPS):
        model.zero_grad(set_to_none=False)
        spare = name != "unused" or step % 2 == 0
        if name == "no-sync":
            with ddp.no_sync():
                (ddp(batch_of(step + 50, rank)) - 0.3).square().sum(1).mean().backward()
        (ddp(batch_of(step, rank), use_spare=spare) - 0.3).square().sum(1).mean().backward()
        if rank == 0:
            show(f"{name}/{step}", torch.cat([p.grad.reshape(-1) for p in model.parameters()]))


def ddp_rank(rank, path):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=2)
    for name, options in CASES.items():
        run_case(name, options, rank)
    dist.destroy_process_group()
    # Not the interpreter's own end: with threads of Gloo that still hold a hook it has been seen to abort.
    sys.stdout.flush()
    os._exit(0)


def ddp():
    """The gradients of two ranks of DDP, for each option and hook, of each step."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(ddp_rank, (folder + "/store",), nprocs=2)


if __name__ == "__main__":
    torch.set_num_threads(1)
    {f.__name__: f for f in (schedules, optimizers, mixing, averages, ddp)}[sys.argv[1]]()
