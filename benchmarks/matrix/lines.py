"""Numbered lines that ranks write, and the count of what was lost or doubled on the way."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

WRITER = r"""
import os, sys, time
count, pause = int(sys.argv[1]), float(sys.argv[2])
rank = os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
for number in range(count):
    sys.stdout.write(f"line {rank} {number:09d} " + "x" * (number % 40) + "\n")
    if pause:
        sys.stdout.flush()
        time.sleep(pause)
"""
"""python3 -c WRITER COUNT PAUSE: so many lines, with a pause in seconds after each."""


@dataclass(frozen=True, slots=True)
class Missed:
    """Bytes of lines, their ends included."""

    lost: int
    doubled: int


def line(rank: int, number: int) -> str:
    """The line that WRITER prints, without its end."""
    return f"line {rank} {number:09d} " + "x" * (number % 40)


def missed(seen: Iterable[str], ranks: int, count: int) -> Missed:
    """Compare the lines that a console showed with those that `ranks` ranks wrote, `count` each.

    A line that nobody wrote counts as doubled: it was cut, or mixed with another.
    """
    shown = Counter(seen)
    wrote = {line(rank, number) for rank in range(ranks) for number in range(count)}
    lost = sum(len(one) + 1 for one in wrote if not shown[one])
    doubled = sum((n - (one in wrote)) * (len(one) + 1) for one, n in shown.items())
    return Missed(lost, doubled)
