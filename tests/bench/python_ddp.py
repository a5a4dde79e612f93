"""The training that scripts/bench and scripts/gpu_check compare the trainer with: torchvision's model,
torch's DDP over Gloo (NCCL on a GPU), synthetic data, SGD with momentum. Launched by torchrun; rank 0
prints one JSON object: images_per_second of the whole job, the median over the steps after the warm-up. With
--log_json it writes an object a line for every step, as the trainer does."""

import argparse
import contextlib
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="resnet50")
parser.add_argument("--batch_size", type=int, default=8)
parser.add_argument("--image_size", type=int, default=224)
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--warm_up", type=int, default=3)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
parser.add_argument("--amp", choices=("none", "bf16"), default="none")
parser.add_argument("--channels_last", action="store_true")
parser.add_argument("--log_json")
args = parser.parse_args()

torch.set_num_threads(args.threads)
device = torch.device(args.device)
if args.device == "cuda":
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    torch.backends.cudnn.benchmark = True
layout = torch.channels_last if args.channels_last else torch.contiguous_format
dist.init_process_group("nccl" if args.device == "cuda" else "gloo", init_method="env://")
torch.manual_seed(0)
model = DistributedDataParallel(
    torchvision.models.get_model(args.model, num_classes=1000).to(device, memory_format=layout),
    gradient_as_bucket_view=True,
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
criterion = torch.nn.CrossEntropyLoss()
images = torch.randn(args.batch_size, 3, args.image_size, args.image_size).to(device, memory_format=layout)
labels = torch.randint(1000, (args.batch_size,), device=device)


def precision():
    if args.amp == "none":
        return contextlib.nullcontext()
    return torch.autocast(args.device, dtype=torch.bfloat16)


rates = []
log = open(args.log_json, "w") if args.log_json and dist.get_rank() == 0 else None
model.train()
for step in range(args.steps):
    start = time.monotonic()
    optimizer.zero_grad(set_to_none=True)
    with precision():
        loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    loss.item()
    rate = args.batch_size * dist.get_world_size() / (time.monotonic() - start)
    if log:
        print(json.dumps({"step": step + 1, "images_per_second": rate}), file=log, flush=True)
    if step >= args.warm_up:
        rates.append(rate)
if dist.get_rank() == 0:
    print(json.dumps({"images_per_second": statistics.median(rates)}), flush=True)
dist.destroy_process_group()
