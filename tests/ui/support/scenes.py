"""Failing and stalled jobs, 90 s after their start."""

from rankdeck.model.stall import Explained, Stall
from rankdeck.rules.inspect import Look
from tests.ui.support import sample
from tests.ui.support.stage import Stage

JOB = "train-1121-143005-3f2a"
TRACEBACK = """Traceback (most recent call last):
  File "/home/ml/train.py", line 190, in main
    loss.backward()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.
"""


def training(nodes: int = 4, per_node: int = 4, steps: int = 30) -> Stage:
    """All ranks at step 300 of 1000."""
    stage = sample.fleet(max(nodes, 2))[0]
    stage.start(JOB, nodes, per_node)
    begun = stage.jobs.job(JOB).created
    text = "".join(map(_line, range(1, steps + 1)))
    for rank in range(nodes * per_node):
        stage.write(JOB, rank, text, at=begun + 62)
    return stage


def _line(step: int) -> str:
    return f"step {step * 10:5}/1000  loss {2.9 / (1 + step / 20):.4f}  11800 tok/s  ok\n"


def failing(bad: int = 5) -> Stage:
    """One rank of 16 ran out of memory; eleven others were ended."""
    stage = training()
    begun = stage.jobs.job(JOB).created
    stage.write(JOB, bad, TRACEBACK, "err", at=begun + 70)
    stage.tell(JOB, _node(bad), "exited", begun + 70.2, rank=bad, code=1, signal=None)
    for rank in range(16):
        if rank != bad and rank % 4 != 3:
            stage.tell(JOB, _node(rank), "exited", begun + 73, rank=rank, code=None, signal=15)
    return stage


def hanging(bad: int = 6, nodes: int = 4, per_node: int = 4) -> Stage:
    """One rank stopped at step 300 in its data loader; the others wait for it."""
    stage = training(nodes, per_node)
    begun = stage.jobs.job(JOB).created
    count = nodes * per_node
    others = [rank for rank in range(count) if rank != bad]
    for rank in others:
        stage.write(JOB, rank, _line(31) + _line(32), at=begun + 82)
    text = f"rank {bad} is silent for 20 s; the {count - 1} others go on"
    hint = Explained("one rank stands still", "look where it is, then at its node")
    stall = Stall(kind="rank", ranks=(bad,), since=begun + 62, text=text, explained=(hint,))
    stage.jobs.set_stalled(JOB, (stall,))
    stage.looks = [_look(rank, stuck=rank == bad) for rank in range(count)]
    return stage


def _node(rank: int, per_node: int = 4) -> str:
    return f"node{rank // per_node + 1:02}"


def _look(rank: int, *, stuck: bool) -> Look:
    where = ("load_batch", "train.py", 88) if stuck else ("all_reduce", "dist.py", 2501)
    main = ("main", "train.py", 181 if stuck else 190)
    return Look(
        rank=rank,
        node=_node(rank),
        pid=4000 + rank,
        state="S" if stuck else "R",
        wchan="pipe_read" if stuck else "0",
        cpu=0.0 if stuck else 1.0,
        threads={"S": 12},
        stacks=((where, main),),
        last=_line(30 if stuck else 32).strip(),
        silent=20.0 if stuck else 1.0,
    )
