"""The loss of each step of a training in Python, for the test that compares the trainer's:
python_curve.py FASHION_MNIST_FOLDER STEPS BATCH. Alone, or under a launcher with DDP over Gloo.

resnet18 on Fashion-MNIST with torchvision's ToTensor and Normalize, DistributedSampler with seed 3, SGD with
momentum, fp32. Rank 0 prints a loss a line (mean over ranks), all its digits.
"""

import gzip
import os
import sys

import numpy
import torch
import torch.distributed as dist
import torchvision
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

folder, steps, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.set_num_threads(1)
torch.manual_seed(3)
model = torchvision.models.resnet18(num_classes=10)
if world > 1:
    dist.init_process_group("gloo", init_method="env://")
    model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)


def idx(name, header):
    with gzip.open(f"{folder}/train-{name}-ubyte.gz") as file:
        return torch.from_numpy(numpy.frombuffer(file.read(), numpy.uint8, offset=header).copy())


images = idx("images-idx3", 16).reshape(-1, 1, 28, 28)
data = TensorDataset(images, idx("labels-idx1", 8).long())
sampler = DistributedSampler(data, num_replicas=world, rank=rank, seed=3)
sampler.set_epoch(0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=True)
criterion = torch.nn.CrossEntropyLoss()
mean, deviation = torch.tensor(0.2860), torch.tensor(0.3530)
model.train()
for step, (x, y) in enumerate(DataLoader(data, batch_size=batch, sampler=sampler)):
    if step == steps:
        break
    x = x.float().div(255).sub_(mean).div_(deviation).expand(-1, 3, -1, -1).contiguous()
    optimizer.zero_grad(set_to_none=True)
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    total = loss.detach().double()
    if world > 1:
        dist.all_reduce(total)
    if rank == 0:
        print(repr(total.item() / world), flush=True)
if world > 1:
    dist.destroy_process_group()
