"""A program of torch whose rank 3 leaves the others waiting."""


def hanging_torch(patience: int, holds: str = "time.sleep(1000)") -> str:
    """The program: rank 3 does `holds` in place of its ninth all_reduce; the others give up after
    `patience` seconds.
    """
    return f"""\
import datetime, time
import torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds={patience}))
for step in range(1000):
    if step == 8 and dist.get_rank() == 3:
        {holds}
    dist.all_reduce(torch.ones(1))
    print("step", step, flush=True)
    time.sleep(0.2)
"""
