"""Rows of the matrix: every reader of what others write, given the
corpus and millions of wrong inputs.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.targets import TARGETS

from benchmarks.matrix.fuzz import Block, attempt
from benchmarks.matrix.meter import metered
from benchmarks.matrix.model import Group, Row, Tally
from benchmarks.matrix.sites import Sites
from benchmarks.measure import ROOT
from rankdeck.values import replace

SHORT, WHOLE = 20.0, 7200.0
"""Seconds of the short row, and at most of the whole one."""
COUNT = 10_000_000
"""Inputs of the whole row."""
PATIENCE = 90.0
"""Seconds without a word after which a reader hangs; a block takes a second or two."""
_STARVED = 4
"""So many times PATIENCE: on a machine that others use, a program with
this niceness may not get its turn.
"""
_NICE = 10
_CHUNK = 1 << 16


def corpus(_: Sites) -> Tally:
    """Every file of the corpus, once."""
    wrong: list[str] = []
    inputs = 0
    for target in TARGETS.values():
        done = attempt(target, Block(target.name, "corpus", 0), target.seeds().values())
        inputs += done.inputs
        wrong += [f"{target.name}: {one.what}" for one in done.found]
    return Tally(wrong=wrong, inputs=inputs, note=f"{len(TARGETS)} readers")


def fuzzed(seconds: float, count: int) -> Callable[[Sites], Tally]:
    """A row that fuzzes in a process of its own: it may hang, or fall over."""

    def run(_: Sites) -> Tally:
        words = ["fuzz", "--seconds", str(seconds), "--count", str(count)]
        words += ["--seed", str(time.time_ns())]
        with (
            subprocess.Popen(
                ["nice", "-n", str(_NICE), sys.executable, "-m", "benchmarks", *words],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT}/console:{ROOT}/agents:{ROOT}"},
                stdout=subprocess.PIPE,
            ) as worker,
            metered(worker.pid) as cost,
        ):
            try:
                tally = _heard(worker, " ".join(words))
            finally:
                worker.kill()
        # It is no console: 32 readers with all that they keep.
        note = f"{tally.note}; {cost.memory or 0:.0f} MiB in one process"
        return replace(tally, cpu=cost.cpu, note=note)

    return run


def _heard(worker: "subprocess.Popen[bytes]", command: str) -> Tally:
    """What the worker told, block by block."""
    counts, wrong, slowest = Counter[str](), list[str](), (0.0, "")
    last = "the first"
    for block in _blocks(worker):
        last = f"{block['target']} {block['number']}"
        counts[block["target"]] += block["inputs"]
        slowest = max(slowest, (block["slowest"], block["target"]))
        wrong += [f"{block['target']}: {one['what']}: {one['raw']}" for one in block["found"]]
    if worker.poll() not in (0, 1):
        wrong.append(f"nothing came after block {last} of `{command}`")
    least = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
    note = f"slowest {slowest[0]:.2f} s ({slowest[1]}); {least}"
    return Tally(wrong=wrong, inputs=counts.total(), note=note)


def _blocks(worker: "subprocess.Popen[bytes]") -> Iterator[dict[str, Any]]:
    """The lines of the worker until it ends or is silent for too long."""
    assert worker.stdout is not None
    rest, out = b"", worker.stdout.fileno()
    while any(select.select([out], [], [], PATIENCE)[0] for _ in range(_STARVED)):
        data = os.read(out, _CHUNK)
        if not data:
            worker.wait(PATIENCE)
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from map(json.loads, lines)


ROWS = (
    Row(
        name="corpus",
        group=Group.FUZZING,
        does="every input of the corpus, all readers",
        run=corpus,
        short=True,
    ),
    Row(
        name="fuzz-short",
        group=Group.FUZZING,
        does=f"{SHORT:.0f} s of wrong inputs, all readers",
        run=fuzzed(SHORT, 0),
        short=True,
    ),
    Row(
        name="fuzz",
        group=Group.FUZZING,
        does=f"{COUNT:,} wrong inputs, all readers",
        run=fuzzed(WHOLE, COUNT),
    ),
)
