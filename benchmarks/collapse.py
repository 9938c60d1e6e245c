"""Collapse 40 lines of each of 512 ranks, then more lines: ours
against a Counter of masked lines.
"""

import re
import time
from collections import Counter
from statistics import median

from benchmarks.result import Result
from rankdeck.logs.collapse import Collapse, fold_groups
from rankdeck.model.rank_output import Chunk
from rankdeck.state.lines import RankLog

RANKS, LINES, ROUNDS = 512, 40, 5
BUDGET = 1.2
"""Of the CPU of the peer, which keeps neither values nor ranks."""


def run() -> list[Result]:
    """CPU seconds to collapse everything, and to collapse 5,000 further lines."""
    ours: list[float] = []
    peer: list[float] = []
    later: list[float] = []
    for _ in range(ROUNDS):
        logs = _logs()
        begin = time.process_time()
        collapse = Collapse(logs)
        while collapse.update():
            pass
        fold_groups(collapse)
        ours.append(time.process_time() - begin)
        for rank in range(125):
            _write(logs[rank], rank, 40)
        begin = time.process_time()
        while collapse.update():
            pass
        later.append(time.process_time() - begin)
        texts = [_text(rank, 0) for rank in range(RANKS)]
        begin = time.process_time()
        _naive(texts)
        peer.append(time.process_time() - begin)
    return [
        Result(
            name="collapse 512 ranks",
            value=median(ours),
            unit="CPU s",
            peer="re.sub and Counter",
            peer_value=median(peer),
            budget=BUDGET,
            limit="lines are kept by rank, each with its time and place",
        ),
        Result(
            name="collapse 5,000 more lines",
            value=median(later),
            unit="CPU s",
            budget=0.05,
            on_ratio=False,
        ),
    ]


def _text(rank: int, start: int) -> str:
    return "".join(
        f"step {n} loss 2.{n:03} {11_800 + (rank * 7 + n) % 90} tok/s rank {rank}\n"
        for n in range(start, start + LINES)
    )


def _write(log: RankLog, rank: int, start: int) -> None:
    offset = log.read.at()["out"]
    log.add(Chunk("j", "n", rank, "out", offset, 1.0, _text(rank, start).encode()))


def _logs() -> dict[int, RankLog]:
    logs = {rank: RankLog(rank) for rank in range(RANKS)}
    for rank, log in logs.items():
        _write(log, rank, 0)
    return logs


def _naive(texts: list[str]) -> None:
    number = re.compile(r"-?\d+(?:\.\d+)?")
    Counter(number.sub("#", line) for text in texts for line in text.splitlines())
