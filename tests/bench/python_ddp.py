"""The training that scripts/bench compares the trainer with: torchvision's model, torch's DDP, Gloo,
synthetic data, SGD with momentum. Launched by torchrun; rank 0 prints one JSON object:
images_per_second of the whole job, the median over the steps after the warm-up."""

import argparse
import json
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
args = parser.parse_args()

torch.set_num_threads(args.threads)
dist.init_process_group("gloo", init_method="env://")
torch.manual_seed(0)
model = DistributedDataParallel(
    torchvision.models.get_model(args.model, num_classes=1000), gradient_as_bucket_view=True
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
criterion = torch.nn.CrossEntropyLoss()
images = torch.randn(args.batch_size, 3, args.image_size, args.image_size)
labels = torch.randint(1000, (args.batch_size,))

rates = []
model.train()
for step in range(args.steps):
    start = time.monotonic()
    optimizer.zero_grad(set_to_none=True)
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    loss.item()
    if step >= args.warm_up:
        rates.append(args.batch_size * dist.get_world_size() / (time.monotonic() - start))
if dist.get_rank() == 0:
    print(json.dumps({"images_per_second": statistics.median(rates)}), flush=True)
dist.destroy_process_group()
