"""Rows with hostile nodes: agents that lie, and text that would steer a terminal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks.fault_plants import processes
from benchmarks.fault_sites import DemoSite
from benchmarks.matrix.lying import (
    LIAR,
    Ended,
    clean_up,
    job_file,
    launched,
    lying,
    on_terminal,
    rankdeck,
)
from benchmarks.matrix.model import Group, Row, Tally
from benchmarks.matrix.sites import Sites
from benchmarks.matrix.steering import planted, reached

SLEEPS = "for i in 1 2 3 4 5 6 7 8 9; do echo line $i of $RANKDECK_NODE; done; sleep 600"
QUICK = "for i in 1 2 3 4 5 6 7 8 9; do echo line $i of $RANKDECK_NODE; done; sleep 1"
Judge = Callable[[Ended, str], Iterator[str]]


# ---- what must be right, whatever one node says ------------------------------------------


def nothing(ended: Ended, job: str) -> Iterator[str]:
    """Only what holds for every command."""
    del ended, job
    yield from ()


def others_heard(ended: Ended, _: str) -> Iterator[str]:
    """The honest nodes have been heard, and their numbers are their own."""
    told = {node["name"]: node for one in ended.objects() for node in one.get("nodes", ())}
    for name, node in told.items():
        if name != LIAR and (node["heard_s"] is None or node["values"]["gpu.temp"].keys() != GPUS):
            yield f"{name} is wrong in `status`"
    if len(told) != 3:
        yield f"`status` names {len(told)} of 3 nodes"


GPUS = {"0": 0, "1": 0, "2": 0, "3": 0}.keys()


def others_run(ended: Ended, job: str) -> Iterator[str]:
    """The job is listed, and the ranks of honest nodes run."""
    ranks = [r for one in ended.objects() if one.get("job") == job for r in one["ranks"]]
    for rank in ranks:
        if rank["node"] != LIAR and rank["state"] != "running":
            yield f"rank {rank['rank']} on {rank['node']} is {rank['state']} in `jobs`"
    if not ranks:
        yield "`jobs` does not list the job"


def others_said(ended: Ended, _: str) -> Iterator[str]:
    """Every line of the honest nodes is there."""
    for node in ("sakuya", "sakura"):
        for number in range(1, 10):
            if f"line {number} of {node}".encode() not in ended.written:
                yield f"line {number} of {node} is lost"


def others_end(_: Ended, job: str) -> Iterator[str]:
    """No process of the job is left on an honest node."""
    left = [one.name for one in processes(job) if one.node != LIAR]
    if left:
        yield f"left on honest nodes after cancel: {', '.join(left)}"


@dataclass(frozen=True, slots=True)
class Verb:
    """A command tried against the lie."""

    words: tuple[str, ...]
    judge: Judge = nothing
    only: tuple[str, ...] = ()
    """The agent's words that lie; () for all."""
    short: bool = False
    limit: float = 90.0
    stops: bool = True
    """It ends by itself."""


JOB, FILE = "JOB", "FILE"
VERBS: tuple[Verb, ...] = (
    Verb(("status", "--json", "--wait", "8"), others_heard, short=True),
    Verb(("health", "--wait", "8")),
    Verb(("nodes", "--live", "--json", "--wait", "8")),
    Verb(("check",)),
    Verb(("jobs", "--json"), others_run, short=True),
    Verb(("logs", JOB), others_said, short=True),
    Verb(("logs", JOB, "--merge"), others_said),
    Verb(("logs", JOB, "--collapse")),
    Verb(("logs", JOB, "--follow"), others_said, stops=False, limit=20),
    Verb(("inspect", JOB), short=True),
    Verb(("report", JOB)),
    Verb(("images", "--image", "/etc/hostname")),
    Verb(("preflight", FILE)),
    Verb(("run", FILE, "--no-preflight"), only=("job", "run")),
    Verb(("run", FILE, "--no-preflight"), others_said, ("job", "follow"), stops=False, limit=30),
    Verb(("cancel", JOB, "--grace", "1"), others_end, short=True),
)
LIES = (
    "types", "null", "nan", "huge", "beyond", "negative", "sizes", "deep", "many", "halves",
    "text", "other", "spawn", "noise", "cut", "long", "endless", "silent",
)  # fmt: skip


def lie(kinds: Sequence[str], verbs: Sequence[Verb]) -> Callable[[Sites], Tally]:
    """A run of verbs while one node lies, each time in the next of these ways."""

    def run(sites: Sites) -> Tally:
        site = sites.demo
        job = launched(site, "lied-to", SLEEPS)
        try:
            pairs = zip(verbs, cycle(kinds))
            tried = [_tried(site, kind, verb, job) for verb, kind in pairs]
        finally:
            clean_up(site, job)
        left = [one.name for one in processes(job)]
        return _tally(tried, len(left))

    return run


@dataclass(frozen=True, slots=True)
class Tried:
    """One command, and what was wrong with it."""

    ended: Ended
    wrong: Sequence[str]


def _tried(site: DemoSite, kind: str, verb: Verb, job: str) -> Tried:
    words = [{JOB: job, FILE: job_file(site, "quick", QUICK)}.get(w, w) for w in verb.words]
    texts = planted(lines=True, colours=False)
    names = {LIAR: "sakuya", job: "lied-to-x"}
    more: Mapping[str, Any] = {"names": names, "command": f"touch {_proof(site)}"}
    with lying(site, kind, verb.only, texts, **more):
        argv, cwd = rankdeck(site, *words), str(site.place())
        ended = on_terminal(argv, site.environment(), verb.limit, cwd)
    said = [*(ended.faults() if verb.stops else ()), *reached(ended.written, screen=False)]
    said += verb.judge(ended, job)
    if _proof(site).exists():
        said += ["a command of the lying node was run elsewhere"]
    who = " ".join((*verb.words, *verb.only))
    return Tried(ended, [f"{who}: {one}" for one in said])


def _proof(site: DemoSite) -> Path:
    return site.place() / "forged"


def _tally(tried: Sequence[Tried], left: int) -> Tally:
    return Tally(
        left=left,
        wrong=[text for one in tried for text in one.wrong],
        memory=max(one.ended.memory for one in tried),
        inputs=len(tried),
        note=f"slowest {max(one.ended.seconds for one in tried):.0f} s",
    )


SHORT = [verb for verb in VERBS if verb.short]
ROWS: tuple[Row, ...] = (
    Row(
        name="lies",
        group=Group.NODES,
        does="one node of three lies in five ways to five verbs",
        run=lie(["types", "huge", "text", "cut", "deep"], SHORT),
        short=True,
    ),
    *(
        Row(
            name=f"lie-{kind}",
            group=Group.NODES,
            does=f"one node of three lies to every verb: {kind}",
            run=lie([kind], VERBS),
        )
        for kind in LIES
    ),
)
