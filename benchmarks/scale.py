"""`python -m benchmarks scale [--nodes N …] [--seconds S]`: a console end to end on a
simulated fleet of 1,000, 5,000 and 20,000 nodes.

One other process simulates the agents, with the code of the real agent. Up to MOST_PRIVATE nodes
each has a connection to the broker inside the console; above that they publish to mosquitto. The
console is the whole program in a terminal.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.ports import free_port, wait_for_port
from tests.support.programs import search_path

from benchmarks.measure import PYTHONPATH, ROOT, environment, machine_factor, resident_of, running
from benchmarks.paint_app import longest
from benchmarks.result import Result, show
from benchmarks.terminal import Terminal, terminal

MOST_PRIVATE = 5000
CPU = {1000: 4.0, 5000: 10.0, 20000: 30.0}
"""Nodes -> percent of a core."""
RESIDENT = {1000: 80.0, 5000: 140.0, 20000: 350.0}
"""Nodes -> MiB."""
STRETCH = 20.0
"""Milliseconds of CPU between two looks at the keyboard."""
STORM, WITHIN, STORM_NODES = 0.2, 5.0, 5000
"""Share of the nodes that fall ill, within how many seconds, and with how many nodes."""
HALF, MOST_LATE = 0.5, 1.2
"""Seconds from a change on a node to the screen: median, 99th percentile."""
ALL_SEEN = 2.0
"""Seconds after a storm until the screen shows all of it."""
KEY = 50.0
"""Milliseconds from a key to its paint: 99th percentile."""
KEYS, PAUSE = 60, 0.11
WARM, SECONDS = 12.0, 20.0
UP, ANSWER = 240.0, 240.0
"""Most seconds until all nodes are heard, and until an order is answered."""
KINDS = ("health", "sample", "hello", "event")


@dataclass(frozen=True, slots=True)
class Console:
    """A running console, and the means to ask it."""

    screen: Terminal
    folder: Path

    def ask(self, watch: float = 0.0) -> dict[str, Any]:
        """Have the console measure for `watch` seconds; returns its answer.

        Its screen is read in that time.
        """
        self.begin(watch)
        return self.answer(watch + ANSWER)

    def begin(self, watch: float, **told: object) -> None:
        fresh = self.folder / "asking"
        fresh.write_text(json.dumps({"measure": watch, **told}))
        fresh.rename(self.folder / "ask")

    def answer(self, limit: float) -> dict[str, Any]:
        file, until = self.folder / "answer", time.monotonic() + limit
        while not file.exists():
            if time.monotonic() > until:
                raise TimeoutError("the console does not answer")
            self.screen.read_for(0.1)
        answer: dict[str, Any] = json.loads(file.read_text())
        file.unlink()
        return answer


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks scale", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=list(CPU))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the steady fleet")
    parser.add_argument("--json", action="store_true", help="one object a line")
    options = parser.parse_args(argv)
    missed = False
    for nodes in options.nodes:
        results = _measure(nodes, options.seconds)
        show(results, {}, as_json=options.json)
        missed = missed or any(result.ok is False for result in results)
    return 1 if missed else 0


def _measure(nodes: int, seconds: float) -> list[Result]:
    factor = machine_factor()
    slower = max(factor, 1.0)
    with _console(nodes) as console:
        opened = _until_all_are_heard(console, nodes)
        console.screen.read_for(WARM)
        steady = console.ask(seconds)
        resident = resident_of(console.screen.pid)
        console.begin(0.0, record=True)
        console.answer(ANSWER)
        since = time.monotonic()
        keys = _keys(console.screen)
        work = longest(console.folder / "work", since)
        found = [
            Result(name=f"scale.{nodes}.machine", value=factor, unit="x", note="JSON decode loop; above 1 budgets are multiplied by it"),
            Result(name=f"scale.{nodes}.open", value=opened, unit="s", note="until every node was heard"),
            *_steady(nodes, steady, resident, slower),
            *_keyboard(f"scale.{nodes}", keys, work, slower),
        ]  # fmt: skip
        if nodes == STORM_NODES:
            found += _storm(console, slower)
    return found


def _steady(nodes: int, steady: dict[str, Any], resident: float, factor: float) -> list[Result]:
    before, after = steady["fleet"]["before"], steady["fleet"]["after"]
    rates = {
        kind: (after["sent"][kind] - before["sent"][kind]) / steady["seconds"] for kind in KINDS
    }
    told = ", ".join(f"{rate:.0f} {kind}/s" for kind, rate in rates.items() if rate >= 1)
    size = sum(after["bytes"][kind] - before["bytes"][kind] for kind in KINDS) / steady["seconds"]
    cpu, memory = CPU.get(nodes), RESIDENT.get(nodes)
    return [
        Result(name=f"scale.{nodes}.cpu", value=100 * steady["cpu"] / steady["seconds"], unit="% core",
               budget=cpu and cpu * factor, on_ratio=False, note=f"{told}; {size / 1024:.0f} KiB/s"),
        Result(name=f"scale.{nodes}.resident", value=resident, unit="MiB", budget=memory, on_ratio=False),
        *_seen(f"scale.{nodes}", steady["painted"]),
    ]  # fmt: skip


def _seen(name: str, painted: list[float]) -> list[Result]:
    return [
        Result(name=f"{name}.change_seen_p50", value=_at(painted, 0.5), unit="s", budget=HALF, on_ratio=False),
        Result(name=f"{name}.change_seen_p99", value=_at(painted, 0.99), unit="s", budget=MOST_LATE,
               on_ratio=False, note=f"{len(painted)} changes, from the reading on the node"),
    ]  # fmt: skip


def _keyboard(name: str, keys: list[float], work: tuple[float, str], factor: float) -> list[Result]:
    return [
        Result(name=f"{name}.key_p99", value=_at(keys, 0.99), unit="ms", budget=KEY * factor,
               on_ratio=False, note=f"p50 {_at(keys, 0.5):.0f} ms"),
        Result(name=f"{name}.longest_work", value=work[0], unit="ms CPU", budget=STRETCH * factor,
               on_ratio=False, note=work[1]),
    ]  # fmt: skip


def _storm(console: Console, factor: float) -> list[Result]:
    """A fifth of the nodes falls ill within five seconds, while keys are typed."""
    name = f"scale.{STORM_NODES}.storm"
    since = time.monotonic()
    console.begin(WITHIN, ill=STORM, seconds=WITHIN, longest=600.0, change=0.0)
    keys = _keys(console.screen)
    answer = console.answer(ANSWER)
    work = longest(console.folder / "work", since)
    begin = time.monotonic()
    while (last := console.ask())["fleet"]["after"]["waves"] and time.monotonic() - begin < ANSWER:
        begin = time.monotonic()
    while not _alike(last) and time.monotonic() - begin < ANSWER:
        last = console.ask()
    lost = abs(last["levels"][3] - last["fleet"]["after"]["levels"][3])
    return [
        Result(name=f"{name}.lost", value=lost, unit="nodes", budget=0, on_ratio=False, note=f"levels {last['levels']}"),
        Result(name=f"{name}.all_seen", value=time.monotonic() - begin, unit="s", budget=ALL_SEEN, on_ratio=False,
               note="after the last of them; asked every 0.2 s"),
        Result(name=f"{name}.cpu", value=100 * answer["cpu"] / answer["seconds"], unit="% core"),
        *_seen(name, answer["painted"]),
        *_keyboard(name, keys, work, factor),
    ]  # fmt: skip


def _alike(answer: dict[str, Any]) -> bool:
    """Whether the console has as many bad nodes as there are; of drift,
    a warning, only the console knows.
    """
    return answer["levels"][3] == answer["fleet"]["after"]["levels"][3]


def _until_all_are_heard(console: Console, nodes: int) -> float:
    begin = time.monotonic()
    while (levels := console.ask()["levels"])[1] > nodes // 100:
        if time.monotonic() - begin > UP:
            raise TimeoutError(f"not all nodes were heard within {UP:.0f} s: {levels}")
    return time.monotonic() - begin


def _keys(screen: Terminal) -> list[float]:
    """Milliseconds from each key to the first byte that it paints."""
    found: list[float] = []
    for _ in range(KEYS):
        # From the top: at the lower end of the table rows move under
        # a cursor that stays where it is.
        screen.write(b"g")
        screen.read_for(PAUSE)
        begin = time.monotonic()
        screen.write(b"j")
        if not screen.wait_for("▸".encode(), 5.0):
            raise RuntimeError("a key was not painted")
        found.append((time.monotonic() - begin) * 1000)
        screen.read_for(PAUSE)
    return found


def _at(found: list[float], share: float) -> float:
    return sorted(found)[min(int(share * len(found)), len(found) - 1)] if found else float("nan")


@contextmanager
def _console(nodes: int) -> Generator[Console]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        argv = [sys.executable, "-m", "benchmarks.scale_app", "private", str(nodes), str(folder)]
        if nodes > MOST_PRIVATE:
            argv[3:] = ["site", str(nodes), str(folder), str(_mosquitto(stack, folder))]
        own = {f"XDG_{name}_HOME": str(folder / name) for name in ("CONFIG", "STATE", "CACHE")}
        env = environment(PYTHONPATH=f"{ROOT}:{PYTHONPATH}", LC_ALL="C.UTF-8", **own)
        screen = stack.enter_context(terminal(argv, env))
        if not screen.wait_for(b"sim0"):
            raise RuntimeError("the console never came on the screen")
        yield Console(screen, folder)


def _mosquitto(stack: ExitStack, folder: Path) -> int:
    """The port of a site's broker."""
    program = shutil.which("mosquitto", path=search_path())
    if program is None:
        raise RuntimeError(f"above {MOST_PRIVATE} nodes: apt-get install mosquitto")
    port, file = free_port(), folder / "mosquitto.conf"
    file.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n")
    stack.enter_context(running((program, "-c", str(file))))
    wait_for_port(port)
    return port
