"""Readers given wrong input without end, by two engines: small
changes of the corpus, and hypothesis.

`python -m benchmarks fuzz [--seconds S] [--count N] [--only NAME,…] [--seed WORD] [--keep]`

Prints one JSON object per block of inputs. The same seed gives the same inputs in the same order.
"""

import argparse
import hashlib
import json
import logging
import resource
import sys
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from tests.support.targets import CORPUS, TARGETS, Target

from benchmarks.matrix.mutator import block
from benchmarks.measure import ROOT
from rankdeck.values import value_table

SLICE = 1.0
"""Seconds of one target before the next has its turn."""
SHARE = 8
"""One in so many blocks is made by hypothesis: it knows the grammar, and is slower."""
EXAMPLES = 50
"""Inputs of such a block."""
SLOW = 5.0
"""CPU seconds that no input may take."""
ROOM = 4 << 30
"""Bytes of memory for all of it: an input that wants more breaks
its reader, and not the machine.
"""


@dataclass(frozen=True, slots=True)
class Found:
    """An input that broke a reader."""

    what: str
    """The error and where it was raised."""
    raw: str
    """The input, in hex."""


@dataclass(slots=True)
class Block:
    """What came of one block of inputs."""

    target: str
    engine: str
    number: int
    inputs: int = 0
    slowest: float = 0.0
    """CPU seconds of the slowest input."""
    found: list[Found] = field(default_factory=list[Found])


def main(words: Sequence[str]) -> int:
    """Run until the time is over or the count reached; 1 where something was found."""
    options = _options(words)
    logging.disable()
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, resource.getrlimit(resource.RLIMIT_AS)[1]))
    warnings.simplefilter("ignore")
    known: set[str] = set()
    for done in run(options):
        done.found = [one for one in done.found if one.what not in known]
        known.update(one.what for one in done.found)
        for one in done.found if options.keep else ():
            keep(done.target, bytes.fromhex(one.raw))
        print(json.dumps(value_table(done)), flush=True)
    return 1 if known else 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long, over all targets")
    parser.add_argument("--count", type=int, default=0, help="stop after so many inputs; 0: never")
    parser.add_argument("--only", default="", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--seed", default="0", help="any word")
    parser.add_argument(
        "--keep", action="store_true", help="put what breaks a reader into the corpus"
    )
    options = parser.parse_args(words)
    wanted = [name for name in options.only.split(",") if name] or [*TARGETS]
    if unknown := [name for name in wanted if name not in TARGETS]:
        parser.error(f"no target {unknown[0]}; there are: {', '.join(TARGETS)}")
    options.targets = [TARGETS[name] for name in wanted]
    return options


def run(options: argparse.Namespace) -> Iterator[Block]:
    """One block after the other; every target has its turn of a second."""
    end = time.monotonic() + options.seconds
    blocks = {one.name: _blocks(one, options.seed) for one in options.targets}
    turn = min(SLICE, options.seconds / len(blocks))
    total = 0
    while True:
        for name in blocks:
            stop = time.monotonic() + turn
            while True:
                yield (done := next(blocks[name]))
                total += done.inputs
                now = time.monotonic()
                if now >= end or (options.count and total >= options.count):
                    return
                if now >= stop:
                    break


def _blocks(one: Target, word: str) -> Iterator[Block]:
    """Blocks of a target without end."""
    seeds, number = [*one.seeds().values()], 0
    while True:
        if number % SHARE == SHARE - 1:
            yield _by_hypothesis(one, word, number)
        else:
            inputs = block(seeds, one.words, f"{word}/{one.name}", number)
            yield attempt(one, Block(one.name, "changes", number), inputs)
        number += 1


def _by_hypothesis(one: Target, word: str, number: int) -> Block:
    drawn: list[bytes] = []
    digest = hashlib.sha256(f"{word}/{one.name}/{number}".encode()).digest()

    @seed(int.from_bytes(digest[:8], "big"))
    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
    )
    @given(one.made)
    def draw(raw: bytes) -> None:
        drawn.append(raw)

    draw()
    return attempt(one, Block(one.name, "hypothesis", number), drawn)


def attempt(one: Target, done: Block, inputs: Iterable[bytes]) -> Block:
    """Give a fresh reader these inputs, and note what must not be."""
    take, found = one.begin(), dict[str, bytes]()
    clock = time.thread_time
    for raw in inputs:
        began = clock()
        try:
            take(raw)
        except one.own:
            pass
        except Exception as error:  # noqa: BLE001 - that is what we look for
            what = sentence(error)
            if len(raw) < len(found.setdefault(what, raw)):
                found[what] = raw
        spent = clock() - began
        done.slowest = max(done.slowest, spent)
        if spent > SLOW:
            found.setdefault("takes too long", raw)
        done.inputs += 1
    done.found = [Found(what, raw.hex()) for what, raw in found.items()]
    return done


def sentence(error: BaseException) -> str:
    """The error, and the last line of ours in which it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if f.filename.startswith(str(ROOT))]
    at = ours[-1] if ours else frames[-1]
    name = Path(at.filename)
    place = name.relative_to(ROOT) if name.is_relative_to(ROOT) else name
    return f"{type(error).__name__} at {place}:{at.lineno}"


def keep(target: str, raw: bytes) -> Path:
    """Put an input into the corpus, where every test run tries it again."""
    path = CORPUS / target / f"broke-{hashlib.sha256(raw).hexdigest()[:12]}"
    path.write_bytes(raw)
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
