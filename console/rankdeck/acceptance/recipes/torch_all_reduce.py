# pyright: basic, reportMissingImports=false
"""Runs on the nodes under torchrun: all_reduce on gloo or NCCL, printed as nccl-tests prints it."""

import os
import platform
import sys
import time

import torch
import torch.distributed as dist

SIZES = tuple(4096 * 4**step for step in range(7))
WARMUP, ROUNDS = 3, 10


def gathered(text: str) -> "list[str]":
    """The text of every rank, without the pickling that needs numpy."""
    mine = torch.zeros(256, dtype=torch.uint8)
    raw = text.encode()[:256]
    mine[: len(raw)] = torch.tensor(list(raw), dtype=torch.uint8)
    mine = mine.to(device())
    parts = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    return [bytes(part.cpu().tolist()).rstrip(b"\0").decode("utf-8", "replace") for part in parts]


def device() -> torch.device:
    """The GPU of this rank for NCCL, or else the CPU."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    return torch.device("cuda", local) if dist.get_backend() == "nccl" else torch.device("cpu")


def measured(count: int) -> "tuple[float, int]":
    """(seconds of one all_reduce, wrong elements) for that many floats."""
    world = dist.get_world_size()
    values = torch.ones(count, device=device())
    dist.all_reduce(values)
    wrong = int((values != world).sum().item())
    for _ in range(WARMUP):
        dist.all_reduce(values)
    begin = waited()
    for _ in range(ROUNDS):
        dist.all_reduce(values)
    return (waited() - begin) / ROUNDS, wrong


def waited() -> float:
    """The time after the GPU has finished its work, in seconds."""
    if device().type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def line(size: int, seconds: float, wrong: int) -> str:
    """One row; busbw = algbw x 2(n-1)/n."""
    algbw = size / seconds / 1e9
    busbw = algbw * 2 * (dist.get_world_size() - 1) / dist.get_world_size()
    return (
        f"{size:12d}  {size // 4:12d}     float     sum      -1"
        f"  {seconds * 1e6:8.1f}  {algbw:6.3f}  {busbw:6.3f}  {wrong:6d}"
    )


def main() -> None:
    """Print the heading, the devices, a row for each size, and the footer."""
    backend = sys.argv[1] if len(sys.argv) > 1 else "gloo"
    dist.init_process_group(backend)
    if backend == "nccl":
        torch.cuda.set_device(device())
    name = torch.cuda.get_device_name(device()) if backend == "nccl" else "CPU"
    rank, local = dist.get_rank(), os.environ.get("LOCAL_RANK", "0")
    mine = f"#  Rank {rank:2d} Group  0 Pid {os.getpid():6d} on {platform.node():>10} device {local:>2} [cpu] {name}"
    devices, rates, bad = gathered(mine), [], 0
    say(f"# {backend} all_reduce torch {torch.__version__} nranks {dist.get_world_size()}")
    say("\n".join(devices))
    say("#       size         count      type   redop    root      time   algbw   busbw  #wrong")
    for size in SIZES:
        seconds, wrong = measured(size // 4)
        bad += wrong
        rates.append(float(line(size, seconds, wrong).split()[7]))
        say(line(size, seconds, wrong))
    say(f"# Out of bounds values : {bad} {'FAILED' if bad else 'OK'}")
    say(f"# Avg bus bandwidth    : {sum(rates) / len(rates):g}")
    dist.destroy_process_group()


def say(text: str) -> None:
    """Print on rank 0 only."""
    if dist.get_rank() == 0:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
