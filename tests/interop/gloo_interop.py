"""Gloo process groups that find each other over our store: 2 and 8 ranks, eager and lazy.

Usage: gloo_interop.py STORE_DAEMON.
"""

import os
import signal

import torch

from cases import LONG, case, dist, expect, run_cases


def run_rank(port, rank, world_size):
    store = dist.TCPStore("127.0.0.1", port, world_size, is_master=False, timeout=3 * LONG)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor)
    expect(tensor.item() == world_size * (world_size - 1) / 2, f"sum {tensor}")
    half = dist.new_group(list(range(world_size // 2)))
    if rank < world_size // 2:
        dist.all_reduce(tensor, group=half)
    dist.barrier()
    dist.destroy_process_group()


def start_rank(port, rank, world_size):
    """A fork of this process, which has PyTorch loaded and no threads yet."""
    pid = os.fork()
    if pid != 0:
        return pid
    status = 1
    try:
        signal.alarm(100)  # no rank outlives its case
        torch.set_num_threads(1)
        run_rank(port, rank, world_size)
        status = 0
    except BaseException as error:  # noqa: BLE001: the parent counts it
        print(f"rank {rank}: {error}", flush=True)
    os._exit(status)


def meet(daemon, world_size):
    ranks = [start_rank(daemon.port, rank, world_size) for rank in range(world_size)]
    statuses = [os.waitpid(pid, 0)[1] for pid in ranks]
    expect(statuses == [0] * world_size, f"all ranks of {world_size} succeed: {statuses}")


def meet_lazily(daemon, world_size):
    os.environ["TORCH_GLOO_LAZY_INIT"] = "1"
    try:
        meet(daemon, world_size)
    finally:
        del os.environ["TORCH_GLOO_LAZY_INIT"]


@case
def two_ranks(daemon):
    meet(daemon, 2)


@case
def eight_ranks(daemon):
    meet(daemon, 8)


@case
def two_ranks_that_connect_lazily(daemon):
    meet_lazily(daemon, 2)


@case
def eight_ranks_that_connect_lazily(daemon):
    meet_lazily(daemon, 8)


if __name__ == "__main__":
    run_cases()
