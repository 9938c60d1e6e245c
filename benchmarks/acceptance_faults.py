"""`python -m benchmarks acceptance_faults [--runs N] [--nodes N] [FAULT…]`: plants faults in
namespace nodes under CPU load; acceptance must name each fault and nothing else.
"""

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
from tests.support import processes
from tests.support.lab import missing, running
from tests.support.shaped_lab import FULL, NODES, ShapedLab, parted, planted

from rankdeck.config.document import write_documents

_LIMIT = 900
"""Most seconds of one run."""
_LOOK = 0.02
_SECOND = "second-name"
Run = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class At:
    """Randomly chosen nodes: `a`, or its path to `b`, has the fault; `c` is another node."""

    a: str
    b: str
    c: str
    nodes: tuple[str, ...]

    @property
    def far(self) -> tuple[str, ...]:
        """The second half of the nodes, for faults with a second leaf."""
        return self.nodes[len(self.nodes) // 2 :]

    def say(self, word: str) -> str:
        """Fill in the nodes' names and numbers in a word of a verdict's sentence."""
        count = len(self.nodes)
        return word.format(a=self.a, b=self.b, others=count - 1, nodes=count)


Plant = Callable[[ShapedLab, At], AbstractContextManager[None]]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A planted fault, and what acceptance must say about it."""

    plant: Plant
    """The fault is in force inside the block."""
    subjects: Callable[[At], set[str]] = lambda _: set()
    """Subjects of which `count` must be named; empty: there must be no verdict."""
    words: Sequence[str] = ()
    """Words that the sentence must contain, as formats for `At.say`."""
    bad: Callable[[At], list[str]] = lambda _: []
    """Nodes that must be called bad."""
    count: int = 1
    """How many of the subjects must be named."""
    elsewhere: Callable[[Run, At], bool] = lambda run, _: not run["left_out"]
    """Checks what else the run says, such as what is seen before anything is measured."""
    leaves: bool = False
    twice: bool = False
    """The cluster file has one host under a second name."""


@contextmanager
def _meanwhile(step: Callable[[], object], pause: float) -> Generator[None]:
    """Call `step` every `pause` seconds until the end of the block."""
    over = threading.Event()

    def go() -> None:
        while not over.wait(pause):
            step()

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(5)


@contextmanager
def _mtu(lab: ShapedLab, at: At) -> Generator[None]:
    def set_to(bytes_: str) -> None:
        lab.as_root(["ip", "-n", at.a, "link", "set", "eth0", "mtu", bytes_])

    set_to("1400")
    try:
        yield
    finally:
        set_to("1500")


def _hangs(lab: ShapedLab, at: At) -> AbstractContextManager[None]:
    """Every iperf3 on `a` that sends to `b` is stopped as soon as it is seen."""
    wanted = f"\0-c\0{lab.address(at.b)}\0".encode()
    first, seen = lab.first_process(at.a), set[int]()

    def look() -> None:
        for pid in processes.descendants(first):
            if pid not in seen and wanted in processes.read(pid, "cmdline"):
                seen.add(pid)
                _stop(pid)

    return _meanwhile(look, _LOOK)


def _stop(pid: int) -> None:
    """SIGSTOP to iperf3 itself; the shell and `timeout` above it have its words, too."""
    if processes.read(pid, "cmdline").startswith(b"iperf3\0"):
        os.kill(pid, signal.SIGSTOP)


_SPELL = 1.5
"""Seconds for which a flapping node is slow, then fast."""


@contextmanager
def _flaps(lab: ShapedLab, at: At) -> Generator[None]:
    """`a` is slow half of the time, in both directions."""
    rates = itertools.cycle(("30mbit", FULL))

    def turn() -> None:
        rate = next(rates)
        lab.shape(at.a, rate, sending=True)
        lab.shape(at.a, rate, sending=False)

    try:
        with _meanwhile(turn, _SPELL):
            yield
    finally:
        lab.heal()


@contextmanager
def _in_mounts(lab: ShapedLab, node: str, script: str) -> Generator[None]:
    """Its changes to the mounts of a node are gone when the node starts again."""
    lab.in_mounts(node, script)
    try:
        yield
    finally:
        lab.crash(node)
        lab.boot(node)


_HIDE = """mkdir -p /tmp/over; mount -t tmpfs tmpfs /tmp/over; mkdir /tmp/over/up /tmp/over/work
mount -t overlay overlay -o userxattr,lowerdir=/usr/bin,upperdir=/tmp/over/up,workdir=/tmp/over/work /usr/bin
rm /usr/bin/iperf3"""
_FILL = "mount -o remount,size=1M /tmp; dd if=/dev/zero of=/tmp/fill bs=64k || true"
_ALIVE = 15.0
"""Seconds after which a node dies: some of its pairs were measured then."""


@contextmanager
def _dies(lab: ShapedLab, at: At) -> Generator[None]:
    timer = threading.Timer(_ALIVE, lab.crash, (at.a,))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if not lab.first_process(at.a):
            lab.boot(at.a)


def _uplink(lab: ShapedLab, at: At) -> AbstractContextManager[None]:
    """Two fifths of the bandwidth of all pairs that cross at once."""
    return parted(lab, f"{20 * len(at.nodes)}mbit", *at.far)


@contextmanager
def _narrow_and_slow(lab: ShapedLab, at: At) -> Generator[None]:
    """An uplink that is too narrow, and a node that is even slower."""
    with _uplink(lab, at), planted(lab, *_slow(at.a, "20mbit")):
        yield


def _slow(node: str, sends: str, receives: str = "") -> tuple[tuple[str, ...], ...]:
    return ("sends", node, sends), ("receives", node, receives or sends)


def _faults(of: Callable[[At], Sequence[tuple[str, ...]]]) -> Plant:
    return lambda lab, at: planted(lab, *of(at))


def _node(at: At) -> set[str]:
    return {at.a}


def _bad(at: At) -> list[str]:
    return [at.a]


def _pair(at: At) -> set[str]:
    return {f"{at.a}→{at.b}", f"{at.a}–{at.b}", f"{at.b}–{at.a}"}


def _ways(at: At) -> set[str]:
    """Both directions of a pair that cannot be measured."""
    there, back = f"{at.a}→{at.b}", f"{at.b}→{at.a}"
    return {f"{there}, {back}", f"{back}, {there}"}


_UNHEARD = ("Connection timed out", "a firewall, an access list or a route between the two")
_WHOLE_NODE = ("{a} reaches", "with {others} of {others} partners", "its NIC, slot, CPU or clocks")
_LEAVES = {"leaves A, B"}
FAULTS: Mapping[str, Fault] = {
    "none": Fault(plant=_faults(lambda _: ())),
    "half": Fault(plant=_faults(lambda at: _slow(at.a, "50mbit")), subjects=_node, words=_WHOLE_NODE, bad=_bad),
    "15-percent": Fault(plant=_faults(lambda at: _slow(at.a, "85mbit")), subjects=_node, words=_WHOLE_NODE, bad=_bad),
    "transmit": Fault(
        plant=_faults(lambda at: [("sends", at.a, "65mbit")]), subjects=_node, bad=_bad,
        words=("{a} sends at", "with {others} of {others} partners", "receives at full speed"),
    ),
    "receive": Fault(
        plant=_faults(lambda at: [("receives", at.a, "65mbit")]), subjects=_node, bad=_bad,
        words=("{a} receives at", "with {others} of {others} partners", "sends at full speed"),
    ),
    "half-duplex": Fault(plant=_faults(lambda at: _slow(at.a, "65mbit", "40mbit")), subjects=_node, words=_WHOLE_NODE, bad=_bad),
    "pair": Fault(
        plant=_faults(lambda at: [("path", at.a, at.b, "40mbit")]), subjects=_pair,
        words=("{a}→{b} at", "one path between them"),
    ),
    "two-nodes": Fault(
        plant=_faults(lambda at: [*_slow(at.a, "50mbit"), *_slow(at.b, "80mbit")]), subjects=lambda at: {at.a, at.b},
        words=("its NIC, slot, CPU or clocks",), bad=lambda at: [at.a, at.b], count=2,
    ),
    "node-and-pair": Fault(
        plant=_faults(lambda at: [*_slow(at.a, "50mbit"), ("path", at.b, at.c, "40mbit")]),
        subjects=lambda at: {at.a, f"{at.b}→{at.c}"}, bad=_bad, count=2,
    ),
    "flapping": Fault(plant=_flaps, subjects=_node, words=("{a} ", "now and then slow with", "partners, in"), bad=_bad),
    "uplink-and-node": Fault(plant=_narrow_and_slow, leaves=True, subjects=lambda at: {at.a} | _LEAVES, bad=_bad, count=2),
    "uplink": Fault(
        plant=_uplink, leaves=True, subjects=lambda _: _LEAVES, words=("the uplink is too narrow", "one pair alone is full"),
    ),
    "mtu": Fault(
        plant=_mtu, elsewhere=lambda run, at: run["differing"] == {at.a: at.say("its mtu is 1400, {others} of {nodes} have 1500")},
    ),
    "twice": Fault(
        plant=_faults(lambda _: ()), twice=True,
        elsewhere=lambda run, _: list(run["left_out"]) == [_SECOND] and "the same machine as" in run["left_out"][_SECOND],
    ),
    "loss": Fault(
        plant=_faults(lambda at: [("loses", at.a, "0.01")]), subjects=_node, bad=_bad,
        words=("{a} receives at full speed, but", "of the packets are lost and sent again", "of {others} partners"),
    ),
    "blocked": Fault(
        plant=_faults(lambda at: [("blocked", at.a, at.b), ("blocked", at.b, at.a)]), subjects=_ways, words=_UNHEARD,
    ),
    "blocked-one-way": Fault(plant=_faults(lambda at: [("blocked", at.a, at.b)]), subjects=_ways, words=_UNHEARD),
    "missing": Fault(
        plant=lambda lab, at: _in_mounts(lab, at.a, _HIDE), subjects=_node,
        words=("iperf3 was not measured with {others} of {others} partners", "No such file or directory"),
    ),
    "full-disk": Fault(
        plant=lambda lab, at: _in_mounts(lab, at.a, _FILL),
        elsewhere=lambda run, at: list(run["left_out"]) == [at.a] and "No space left on device" in run["left_out"][at.a],
    ),
    "dies": Fault(plant=_dies, subjects=_node, words=("{a}", "refused the connection; is sshd running there?")),
    "hang": Fault(plant=_hangs, subjects=_pair, words=("fails", "hung")),
}  # fmt: skip


@dataclass(kw_only=True)
class Count:
    """Counts the results of all runs of one fault."""

    right: int = 0
    wrong: int = 0
    else_: int = 0
    """Runs in which something else was named, with or without the fault."""
    seconds: list[float] = field(default_factory=list[float])
    rounds: int = 0
    """Most rounds of the pairs stage."""


def cluster_file(lab: ShapedLab, fault: Fault, at: At) -> Path:
    """The cluster file that the fault needs."""
    file = lab.cluster_file()
    content = yaml.safe_load(file.read_text())
    if fault.leaves:
        for node in content["nodes"]:
            node["leaf"] = "B" if node["name"] in at.far else "A"
    if fault.twice:
        content["nodes"].append({**content["nodes"][0], "name": _SECOND})
    file.write_text(write_documents([content]))
    return file


def one_run(lab: ShapedLab, fault: Fault, at: At) -> Run:
    """One whole run with the fault in force; raises RuntimeError with the
    output if that is not a JSON object.
    """
    file = cluster_file(lab, fault, at)
    words = ("accept", "--recipe", "iperf3", "--seconds", "1", "--json")
    with fault.plant(lab, at):
        done = lab.rankdeck("-c", str(file), *words, limit=_LIMIT)
    if not done.stdout:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout)


def told(run: Run, fault: Fault, at: At) -> tuple[bool, list[str]]:
    """(whether the fault was named as it should be, what else was named)."""
    subjects = fault.subjects(at)
    words = [at.say(word) for word in fault.words]
    mine = [one for one in run["verdicts"] if one["subject"] in subjects]
    fitting = {one["subject"] for one in mine if all(word in one["sentence"] for word in words)}
    right = not subjects or len(fitting) >= fault.count
    others = [one["sentence"] for one in run["verdicts"] if one not in mine]
    others += [f"{node} is called bad" for node in run["bad"] if node not in fault.bad(at)]
    return right and fault.elsewhere(run, at), others


@contextmanager
def loaded(count: int) -> Generator[None]:
    """Keep this many CPU-bound processes running inside the block."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


def measure(lab: ShapedLab, name: str, chance: random.Random, count: Count) -> None:
    """Do one run and count it; prints all of a run that was not right."""
    fault = FAULTS[name]
    a, b, c = chance.sample(lab.nodes, 3)
    at = At(a, b, c, lab.nodes)
    begin = time.monotonic()
    run = one_run(lab, fault, at)
    count.seconds.append(time.monotonic() - begin)
    right, others = told(run, fault, at)
    count.right, count.wrong, count.else_ = (
        count.right + right,
        count.wrong + (not right),
        count.else_ + bool(others),
    )
    pairs = {one["round"] for one in run["results"] if one["stage"] == "pairs"}
    count.rounds = max(count.rounds, len(pairs))
    if not right or others:
        said = [one["sentence"] for one in run["verdicts"]]
        print(f"# {name} {a} {b} {c}: right {right}, said {said}, notes {run['notes']}", flush=True)
        kept = lab.folder.parent / f"wrong-{name}-{a}-{b}.json"
        kept.write_text(json.dumps(run))


def main(argv: Sequence[str]) -> int:
    """Print one line per fault; returns 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks acceptance_faults")
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=", ".join(FAULTS))
    parser.add_argument("--runs", type=int, default=20, metavar="N")
    parser.add_argument("--load", type=int, default=os.cpu_count() or 1, metavar="PROCESSES")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=len(NODES), metavar="N", help="3 or more")
    options = parser.parse_args(argv)
    if unknown := set(options.faults) - set(FAULTS):
        parser.error(f"no fault {', '.join(sorted(unknown))}; there are: {', '.join(FAULTS)}")
    if why := missing():
        print(f"skipped: {why}", file=sys.stderr)
        return 1
    nodes = tuple(f"n{number}" for number in range(1, options.nodes + 1))
    if options.nodes < 3:
        parser.error("--nodes: a fault needs three to choose from")
    # A leaf of one node cannot be told from that node.
    names = [name for name in options.faults or FAULTS if len(nodes) > 3 or not FAULTS[name].leaves]
    chance = random.Random(options.seed)
    counts = {name: Count() for name in names}
    with running(ShapedLab, nodes) as lab, loaded(options.load):
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
