"""Numbered lines that ranks write, and the count of what was lost or doubled on the way."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

WRITER = r"""
import os, sys, time
count, pause = int(sys.argv[1]), float(sys.argv[2])
rank = os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
wrote = os.open(f"{sys.argv[3]}/wrote.{rank}", os.O_CREAT | os.O_WRONLY) if sys.argv[3:] else -1
for number in range(count):
    sys.stdout.write(f"line {rank} {number:09d} " + "x" * (number % 40) + "\n")
    if pause:
        sys.stdout.flush()
    if wrote >= 0:
        os.pwrite(wrote, b"%012d" % (number + 1), 0)
    if pause:
        time.sleep(pause)
"""
"""python3 -c WRITER COUNT PAUSE [FOLDER]: so many lines, with a pause in seconds after each.

In FOLDER the file `wrote.RANK` says how many lines were written: to be trusted where PAUSE > 0.
"""


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
    return missed_of(seen, dict.fromkeys(range(ranks), count))


def missed_of(seen: Iterable[str], wrote: Mapping[int, int]) -> Missed:
    """The same for ranks that wrote so many lines each, and may have been killed."""
    shown = Counter(seen)
    lines = {line(rank, number) for rank, count in wrote.items() for number in range(count)}
    # Whoever is killed may have written one more line than he could count.
    known = lines | {line(rank, count) for rank, count in wrote.items()}
    lost = sum(len(one) + 1 for one in lines if not shown[one])
    doubled = sum((n - (one in known)) * (len(one) + 1) for one, n in shown.items())
    return Missed(lost, doubled)
