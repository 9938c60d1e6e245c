"""`python -m benchmarks acceptance_faults [--runs N] [FAULT…]`: faults of eight namespace nodes under CPU load, each to be named and nothing else."""

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tests.support.lab import missing, processes, running
from tests.support.shaped_lab import FULL, NODES, ShapedLab, parted, planted

_LIMIT = 900
"""Seconds of one run."""
_LOOK = 0.02
Run = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is planted, and what must be said of it."""

    plant: Callable[[ShapedLab, str, str], AbstractContextManager[None]]
    """Given two nodes by chance; in force inside the block."""
    subjects: Callable[[str, str], set[str]] = lambda _a, _b: set()
    """Any of these; none: there must be no verdict."""
    words: Sequence[str] = ()
    """In the sentence, `{a}` and `{b}` being the nodes."""
    bad: Callable[[str, str], list[str]] = lambda _a, _b: []
    """Nodes that are called bad."""
    count: int = 1
    """How many of the subjects must be named."""
    elsewhere: Callable[[Run, str], bool] = lambda run, _: not run["left_out"]
    """What else must be said, of what is seen before anything runs."""
    leaves: bool = False
    twice: bool = False
    """The cluster file has one host under a second name."""


@contextmanager
def _mtu(lab: ShapedLab, a: str, _b: str) -> Generator[None]:
    def set_to(bytes_: str) -> None:
        lab.as_root(["ip", "-n", a, "link", "set", "eth0", "mtu", bytes_])

    set_to("1400")
    try:
        yield
    finally:
        set_to("1500")


@contextmanager
def _hangs(lab: ShapedLab, a: str, b: str) -> Generator[None]:
    """Every iperf3 on `a` that sends to `b` is stopped as soon as it is seen."""
    over = threading.Event()
    wanted = f"\0-c\0{lab.address(b)}\0".encode()

    def watch() -> None:
        first, seen = lab.first_process(a), set[int]()
        while not over.wait(_LOOK):
            for pid in processes.descendants(first):
                if pid not in seen and wanted in processes.read(pid, "cmdline"):
                    seen.add(pid)
                    _stop(pid)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(5)


_SPELL = 1.5
"""Seconds for which a node that flaps is slow, then full."""


@contextmanager
def _flaps(lab: ShapedLab, a: str, _b: str) -> Generator[None]:
    """`a` is slow half of the time, in both directions."""
    over = threading.Event()

    def turn() -> None:
        rates = itertools.cycle(("30mbit", FULL))
        while not over.wait(_SPELL):
            rate = next(rates)
            lab.shape(a, rate, sending=True)
            lab.shape(a, rate, sending=False)

    thread = threading.Thread(target=turn, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(5)
        lab.heal()


@contextmanager
def _narrow_and_slow(lab: ShapedLab, a: str, _b: str) -> Generator[None]:
    """An uplink that is too narrow, and a node behind it that is slower still."""
    with (
        parted(lab, "160mbit", *NODES[4:]),
        planted(lab, ("sends", a, "20mbit"), ("receives", a, "20mbit")),
    ):
        yield


def _stop(pid: int) -> None:
    """SIGSTOP to iperf3 itself; the shell and `timeout` above it have its words, too."""
    if processes.read(pid, "cmdline").startswith(b"iperf3\0"):
        os.kill(pid, signal.SIGSTOP)


def _both_nodes(lab: ShapedLab, a: str, b: str) -> AbstractContextManager[None]:
    """Two slow nodes, the second one by little."""
    first = (("sends", a, "50mbit"), ("receives", a, "50mbit"))
    return planted(lab, *first, ("sends", b, "80mbit"), ("receives", b, "80mbit"))


def _node_and_pair(lab: ShapedLab, a: str, b: str) -> AbstractContextManager[None]:
    """A slow node, and a slow path between two others."""
    first, last = _others(a)
    return planted(
        lab, ("sends", a, "50mbit"), ("receives", a, "50mbit"), ("path", first, last, "40mbit")
    )


def _others(a: str) -> tuple[str, str]:
    """Two nodes that are not this one."""
    first, last, *_ = (node for node in NODES if node != a)
    return first, last


def _both(rate: str) -> Callable[[ShapedLab, str, str], AbstractContextManager[None]]:
    return lambda lab, a, _: planted(lab, ("sends", a, rate), ("receives", a, rate))


def _node(a: str, _b: str) -> set[str]:
    return {a}


def _pair(a: str, b: str) -> set[str]:
    return {f"{a}→{b}", f"{a}–{b}", f"{b}–{a}"}


def _ways(a: str, b: str) -> set[str]:
    """Both directions of a pair of which nothing was learned."""
    return {f"{a}→{b}, {b}→{a}", f"{b}→{a}, {a}→{b}"}


_UNHEARD = ("Connection timed out", "a firewall, an access list or a route between the two")
_WHOLE_NODE = ("{a} reaches", "with 7 of 7 partners", "its NIC, slot, CPU or clocks")
FAULTS: Mapping[str, Fault] = {
    "none": Fault(plant=lambda lab, _a, _b: planted(lab)),
    "half": Fault(plant=_both("50mbit"), subjects=_node, words=_WHOLE_NODE, bad=lambda a, _: [a]),
    "15-percent": Fault(plant=_both("85mbit"), subjects=_node, words=_WHOLE_NODE, bad=lambda a, _: [a]),
    "transmit": Fault(
        plant=lambda lab, a, _: planted(lab, ("sends", a, "65mbit")), subjects=_node, bad=lambda a, _: [a],
        words=("{a} sends at", "with 7 of 7 partners", "receives at full speed"),
    ),
    "pair": Fault(
        plant=lambda lab, a, b: planted(lab, ("path", a, b, "40mbit")), subjects=_pair,
        words=("{a}→{b} at", "twice", "one path between them"),
    ),
    "receive": Fault(
        plant=lambda lab, a, _: planted(lab, ("receives", a, "65mbit")), subjects=_node, bad=lambda a, _: [a],
        words=("{a} receives at", "with 7 of 7 partners", "sends at full speed"),
    ),
    "half-duplex": Fault(
        plant=lambda lab, a, _: planted(lab, ("sends", a, "65mbit"), ("receives", a, "40mbit")), subjects=_node, words=_WHOLE_NODE,
        bad=lambda a, _: [a],
    ),
    "two-nodes": Fault(
        plant=_both_nodes, subjects=lambda a, b: {a, b}, words=("its NIC, slot, CPU or clocks",), bad=lambda a, b: [a, b], count=2,
    ),
    "node-and-pair": Fault(
        plant=_node_and_pair, subjects=lambda a, _: {a} | {f"{x}→{y}" for x, y in [_others(a)]}, bad=lambda a, _: [a], count=2,
    ),
    "flapping": Fault(
        plant=_flaps, subjects=_node, words=("{a} ", "now and then slow with", "partners, in"), bad=lambda a, _: [a],
    ),
    "uplink-and-node": Fault(
        plant=_narrow_and_slow, leaves=True, subjects=lambda a, _: {a, "leaves A, B"}, bad=lambda a, _: [a], count=2,
    ),
    "uplink": Fault(
        plant=lambda lab, _a, _b: parted(lab, "160mbit", *NODES[4:]), leaves=True,
        subjects=lambda _a, _b: {"leaves A, B"}, words=("the uplink is too narrow", "one pair alone is full"),
    ),
    "mtu": Fault(
        plant=_mtu, elsewhere=lambda run, a: run["differing"] == {a: "its mtu is 1400, 7 of 8 have 1500"},
    ),
    "twice": Fault(
        plant=lambda lab, _a, _b: planted(lab), twice=True,
        elsewhere=lambda run, _: list(run["left_out"]) == ["n9"] and "the same machine as" in run["left_out"]["n9"],
    ),
    "loss": Fault(
        plant=lambda lab, a, _: planted(lab, ("loses", a, "0.01")), subjects=_node, bad=lambda a, _: [a],
        words=("{a} receives at full speed, but", "of the packets are lost and sent again", "of 7 partners"),
    ),
    "blocked": Fault(
        plant=lambda lab, a, b: planted(lab, ("blocked", a, b), ("blocked", b, a)), subjects=_ways, words=_UNHEARD,
    ),
    "blocked-one-way": Fault(
        plant=lambda lab, a, b: planted(lab, ("blocked", a, b)), subjects=_ways, words=_UNHEARD,
    ),
    "hang": Fault(plant=_hangs, subjects=_pair, words=("fails", "hung")),
}  # fmt: skip


@dataclass(kw_only=True)
class Count:
    """How often one fault was told."""

    right: int = 0
    wrong: int = 0
    else_: int = 0
    """Runs in which something else was named, whether or not the fault was."""
    seconds: list[float] = field(default_factory=list[float])
    rounds: int = 0
    """Most rounds of the pairs stage."""


def cluster_file(lab: ShapedLab, fault: Fault) -> Path:
    """The cluster file as the fault wants it."""
    file = lab.cluster_file()
    content = yaml.safe_load(file.read_text())
    if fault.leaves:
        for node in content["nodes"]:
            node["leaf"] = "B" if node["name"] in NODES[4:] else "A"
    if fault.twice:
        content["nodes"].append({**content["nodes"][0], "name": "n9"})
    file.write_text(yaml.safe_dump(content))
    return file


def one_run(lab: ShapedLab, fault: Fault, a: str, b: str) -> Run:
    """One whole run with the fault in force; raises RuntimeError with what was said where there is no object."""
    file = cluster_file(lab, fault)
    words = ("accept", "--recipe", "iperf3", "--seconds", "1", "--json")
    with fault.plant(lab, a, b):
        done = lab.rankdeck("-c", str(file), *words, limit=_LIMIT)
    if not done.stdout:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout)


def told(run: Run, fault: Fault, a: str, b: str) -> tuple[bool, list[str]]:
    """(whether the fault was named as it should be, what else was named)."""
    subjects = fault.subjects(a, b)
    words = [word.format(a=a, b=b) for word in fault.words]
    mine = [one for one in run["verdicts"] if one["subject"] in subjects]
    fitting = {one["subject"] for one in mine if all(word in one["sentence"] for word in words)}
    right = not subjects or len(fitting) >= fault.count
    others = [one["sentence"] for one in run["verdicts"] if one not in mine]
    others += [f"{node} is called bad" for node in run["bad"] if node not in fault.bad(a, b)]
    return right and fault.elsewhere(run, a), others


@contextmanager
def loaded(count: int) -> Generator[None]:
    """So many processes that compute meanwhile."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


def measure(lab: ShapedLab, name: str, chance: random.Random, count: Count) -> None:
    """One run, counted; what was not right is printed whole."""
    fault = FAULTS[name]
    a, b = chance.sample(NODES, 2)
    begin = time.monotonic()
    run = one_run(lab, fault, a, b)
    count.seconds.append(time.monotonic() - begin)
    right, others = told(run, fault, a, b)
    count.right, count.wrong, count.else_ = (
        count.right + right,
        count.wrong + (not right),
        count.else_ + bool(others),
    )
    pairs = {one["round"] for one in run["results"] if one["stage"] == "pairs"}
    count.rounds = max(count.rounds, len(pairs))
    if not right or others:
        said = [one["sentence"] for one in run["verdicts"]]
        print(f"# {name} {a} {b}: right {right}, said {said}, notes {run['notes']}", flush=True)
        kept = lab.folder.parent / f"wrong-{name}-{a}-{b}.json"
        kept.write_text(json.dumps(run))


def main(argv: Sequence[str]) -> int:
    """A line a fault; 1 where anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks acceptance_faults")
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=", ".join(FAULTS))
    parser.add_argument("--runs", type=int, default=20, metavar="N")
    parser.add_argument("--load", type=int, default=os.cpu_count() or 1, metavar="PROCESSES")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    if unknown := set(options.faults) - set(FAULTS):
        parser.error(f"no fault {', '.join(sorted(unknown))}; there are: {', '.join(FAULTS)}")
    if why := missing():
        print(f"skipped: {why}", file=sys.stderr)
        return 1
    names, chance = options.faults or list(FAULTS), random.Random(options.seed)
    counts = {name: Count() for name in names}
    with running(ShapedLab, NODES) as lab, loaded(options.load):
        for number in range(options.runs):
            for name in names:
                measure(lab, name, chance, counts[name])
            load = " ".join(Path("/proc/loadavg").read_text().split()[:3])
            print(f"# {number + 1} of {options.runs}, load {load}", flush=True)
            show(counts)
    return int(any(one.wrong or one.else_ for one in counts.values()))


def show(counts: Mapping[str, Count]) -> None:
    """The table so far."""
    print(f"{'fault':12} right wrong  else rounds  median s", flush=True)
    for name, one in counts.items():
        if one.seconds:
            middle = sorted(one.seconds)[len(one.seconds) // 2]
            print(
                f"{name:12} {one.right:5} {one.wrong:5} {one.else_:5} {one.rounds:6} {middle:9.0f}"
            )
    sys.stdout.flush()
