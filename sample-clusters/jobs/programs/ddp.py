"""Data-parallel training of a small network on made-up data: gloo on CPUs, nccl on GPUs."""

import argparse
import os
import platform

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    gpu = torch.cuda.is_available()
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local % torch.cuda.device_count()) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpu else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    print(
        f"rank {rank} of {size} on {platform.node()}, {device}, {dist.get_backend()}",
        flush=True,
    )
    train(rank, device, options.steps, options.batch)
    # Who leaves while others still read from it makes them abort.
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank} is done", flush=True)


def train(rank: int, device: torch.device, steps: int, batch: int) -> None:
    """Learn y = sin(sum x); every rank draws its own samples."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
    parallel = DistributedDataParallel(
        model, device_ids=[device] if device.type == "cuda" else None
    )
    optimizer = torch.optim.Adam(parallel.parameters(), lr=3e-3)
    torch.manual_seed(1 + rank)
    for step in range(1, steps + 1):
        x = torch.randn(batch, 8, device=device)
        loss = nn.functional.mse_loss(parallel(x), torch.sin(x.sum(1, keepdim=True)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step == steps:
            print(f"step {step:5d}  loss {loss.item():.5f}", flush=True)


if __name__ == "__main__":
    main()
