"""Any Python program that uses torch.distributed: sums the ranks of all workers."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo", init_method="env://")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
world_size = dist.get_world_size()
assert total.item() == world_size * (world_size + 1) / 2, total
print(f"rank {dist.get_rank()} of {world_size}: sum {total.item():.0f}", flush=True)
dist.destroy_process_group()
