"""`python -m benchmarks swap`: 20 faults of nodes and 20 of programs on the demo's nodes, each told
apart by a swap proof: planted in a real job, which is then run again with its ranks elsewhere.

What is planted on a node: files that lack, are broken or full, a helper that does not load, a pipe
that nobody feeds, ranks that are killed there or held back by a CPU quota. What a program does:
rank R exits, raises, crashes, is killed, sleeps, broadcasts where others reduce, or works longer.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support import cpu_quota

from benchmarks.fault_plants import processes
from benchmarks.fault_sites import DemoSite, demo_site
from rankdeck.config.clusters import read_cluster
from rankdeck.demo.cluster import NODES
from rankdeck.model.job import Job
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.opening import open_cluster_session
from rankdeck.session import Session
from rankdeck.swap.fault import fault_in
from rankdeck.swap.planning import SwapError
from rankdeck.swap.table import result_line, verdict_headline
from rankdeck.swap.trial import RunWatch
from rankdeck.swap.values import Blame, FaultKind, JobFault, SwapVerdict
from rankdeck_agent.wire import RUN_TOKEN

GOAL = 0.95
LIMIT = 200.0
"""Seconds within which the fault must show in the job."""
_LOOK = 0.2
_SHARE = 0.02
"""Of a core, for all ranks on a node that is held back."""
_HEAD = """\
import importlib.util, json, os, signal, sys, time
HERE, VICTIM = os.path.expanduser("~/swap"), int(sys.argv[1])
LAST = time.time() + 280
"""
_MEETS = {
    Launch.PLAIN: """\
RANK = int(os.environ["RANKDECK_RANK"])
def meet():
    pass
""",
    Launch.MPI: """\
import mpi4py
mpi4py.rc.finalize = False
from mpi4py import MPI
RANK = MPI.COMM_WORLD.Get_rank()
def meet():
    MPI.COMM_WORLD.allreduce(1)
""",
}
_STEPS = """\
def use_node():
    with open(HERE + "/data") as file:
        json.load(file)
    found = importlib.util.spec_from_file_location("helper", HERE + "/helper.py")
    found.loader.exec_module(importlib.util.module_from_spec(found))
    with open(HERE + "/scratch", "w") as file:
        file.write("x" * 4096)
    with open(HERE + "/feed") as file:
        file.read()

for step in range(2000):
    if time.time() > LAST:
        sys.exit(0)
    meet()
    print("step", step, flush=True)
    if step >= 12 and step %% 4 == 0:
        use_node()
    busy = time.thread_time() + %(work)s
    while time.thread_time() < busy:
        pass
    if step >= 14 and RANK == VICTIM:
        %(wrong)s
    time.sleep(0.1)
"""
_WRONGS = {
    "exit": "sys.exit(3)",
    "assert": "assert step < 14, 'sample 17 has no label'",
    "segv": "os.kill(os.getpid(), signal.SIGSEGV)",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "sleep": "time.sleep(1000)",
    "collective": "MPI.COMM_WORLD.bcast(1)",
    "slow": "end = time.time() + 1.5\n        while time.time() < end: pass",
}
_WORK = 0.02
"""Seconds of CPU in each step where a rank may be slow."""


def _write(name: str, text: str) -> Callable[[Path], None]:
    return lambda here: _put(here, name, text)


def _put(here: Path, name: str, text: str) -> None:
    (here / name).unlink(missing_ok=True)
    (here / name).write_text(text)


def _full(here: Path) -> None:
    (here / "scratch").unlink(missing_ok=True)
    (here / "scratch").symlink_to("/dev/full")


def _pipe(here: Path) -> None:
    (here / "feed").unlink()
    os.mkfifo(here / "feed")


_PLANTS: dict[str, Callable[[Path], None]] = {
    "missing": lambda here: (here / "data").unlink(),
    "corrupt": _write("data", '{"samples": ['),
    "library": _write("helper.py", "import ctypes\nctypes.CDLL('libof_another_release.so.3')\n"),
    "full": _full,
    "pipe": _pipe,
}
_USUAL = {"data": '{"samples": 17}', "helper.py": "VALUE = 1\n", "scratch": "", "feed": "fed"}


@dataclass(frozen=True)
class Trial:
    """One fault: of a node, or of a rank of the program."""

    what: str
    launch: Launch
    node: str = ""
    rank: int = -1

    @property
    def name(self) -> str:
        return f"{self.launch.value}.{self.what}@{self.node or f'rank{self.rank}'}"

    def is_right(self, verdict: SwapVerdict) -> bool:
        if self.node:
            return verdict.blame is Blame.NODE and verdict.node == self.node
        return verdict.blame is Blame.PROGRAM and verdict.rank in (None, self.rank)


def _nodes(what: str, *launches: Launch) -> list[Trial]:
    return [Trial(what, one, node=NODES[(len(what) + at) % 3]) for at, one in enumerate(launches)]


def _ranks(what: str, *launches: Launch) -> list[Trial]:
    return [Trial(what, one, rank=(len(what) * 2 + at) % 6) for at, one in enumerate(launches)]


P, M = Launch.PLAIN, Launch.MPI
NODE_FAULTS = [
    *_nodes("missing", P, M, P), *_nodes("corrupt", M, P, M), *_nodes("library", P, M, P),
    *_nodes("full", M, P, M), *_nodes("signal", P, M, P), *_nodes("pipe", M, P, M),
    *_nodes("quota", M, M),
]  # fmt: skip
PROGRAM_FAULTS = [
    *_ranks("exit", P, M, P), *_ranks("assert", M, P, M, P), *_ranks("segv", P, M, P),
    *_ranks("killed", M, P, M), *_ranks("sleep", M, P, M), *_ranks("collective", M, M),
    *_ranks("slow", M, M),
]  # fmt: skip


def _spec(trial: Trial) -> JobSpec:
    wrong = _WRONGS.get(trial.what, "pass")
    work = _WORK if trial.what in ("quota", "slow") else 0.0
    text = _HEAD + _MEETS[trial.launch] + _STEPS % {"wrong": wrong, "work": work}
    return JobSpec(
        name="swap-bench", launch=trial.launch, nodes=3, ranks_per_node=2, grace=1.0,
        command=("python3", f"{RUN_TOKEN}/prog.py", str(trial.rank)), files={"prog.py": text},
    )  # fmt: skip


def _home(site: DemoSite, node: str) -> Path:
    return site.layout.node(node) / "home/swap"


@asynccontextmanager
async def _planted(site: DemoSite, trial: Trial) -> AsyncGenerator[None]:
    for node in NODES:
        _home(site, node).mkdir(exist_ok=True)
        for name, text in _USUAL.items():
            _put(_home(site, node), name, text)
    if trial.what in _PLANTS:
        _PLANTS[trial.what](_home(site, trial.node))
    plants = {"signal": _kill_there, "quota": _hold_back}
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(plants[trial.what](trial.node)) if trial.what in plants else None
        try:
            yield
        finally:
            if task is not None:
                task.cancel()


async def _kill_there(node: str) -> None:
    """Kill a rank of each job on this node, three seconds after it is first seen."""
    seen: dict[int, float] = {}
    while True:
        await asyncio.sleep(0.3)
        now, there = time.monotonic(), await asyncio.to_thread(_programs, node)
        seen = {pid: seen.get(pid, now) for pid in there}
        for pid in [pid for pid, since in seen.items() if now > since + 3][:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


async def _hold_back(node: str) -> None:
    """Hold back the ranks of each job on this node."""
    groups: list[Path] = []
    held: set[int] = set()
    try:
        while True:
            await asyncio.sleep(0.5)
            fresh = set(await asyncio.to_thread(_programs, node)) - held
            if fresh:
                await asyncio.sleep(2)
                name = f"swap-{os.getpid()}-{len(groups)}"
                with suppress(ProcessLookupError):
                    groups.append(cpu_quota.limit_cpu(sorted(fresh), _SHARE, name))
                held |= fresh
    finally:
        for group in groups:
            with suppress(OSError):
                cpu_quota.release(group)


def _programs(node: str) -> list[int]:
    found = (one for name in tuple(_RUNNING) for one in processes(name))
    return [one.pid for one in found if one.node == node and one.rank is not None]


_RUNNING: set[str] = set()
"""The jobs that run now."""


async def _shown(session: Session, spec: JobSpec) -> tuple[str, JobFault | None]:
    """Start the job; its id, and its fault once that stands."""
    job_id = await session.control.launch(spec)
    until = time.monotonic() + LIMIT
    watches = [RunWatch(JobFault(kind=kind), LIMIT) for kind in FaultKind]
    while time.monotonic() < until:
        await asyncio.sleep(_LOOK)
        job, now = session.jobs.job(job_id), time.time()
        for watch in watches:
            watch.take_in(job, now)
        if any(watch.fault is not None and watch.is_decided(job, now) for watch in watches):
            break
        if job.state.final:
            break
    job: Job = session.jobs.job(job_id)
    if job.state.final:
        job = await session.following.finished(job_id)
    return job_id, fault_in(job)


async def _tried(session: Session, site: DemoSite, trial: Trial) -> dict[str, object]:
    began = time.monotonic()
    async with _planted(site, trial), asyncio.TaskGroup() as tasks:
        names = tasks.create_task(_name_jobs(session))
        try:
            job_id, fault = await _shown(session, _spec(trial))
            row: dict[str, object] = {"trial": trial.name, "first": fault.sentence if fault else ""}
            try:
                await session.swaps.plan(job_id)
                swap = await session.swaps.start()
            except SwapError as error:
                return {**row, "answer": f"not made: {error}", "right": False, "sure": 0.0}
            verdict = swap.verdict
            assert verdict is not None
            return {
                **row, "answer": verdict_headline(verdict), "blame": verdict.blame.value,
                "right": trial.is_right(verdict), "sure": verdict.sure,
                "runs": [result_line(at, one) for at, one in enumerate(swap.results, 1)],
                "shares": dict(verdict.shares), "seconds": round(time.monotonic() - began),
                "left": any(one.left for one in swap.results),
            }  # fmt: skip
        finally:
            names.cancel()


async def _name_jobs(session: Session) -> None:
    while True:
        _RUNNING.clear()
        _RUNNING.update(job.id for job in session.jobs.all() if not job.state.final)
        await asyncio.sleep(0.2)


async def _all(site: DemoSite, trials: list[Trial]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    async with open_cluster_session(read_cluster(Path(site.cluster))) as session:
        for trial in trials:
            row = await _tried(session, site, trial)
            rows.append(row)
            print(json.dumps(row), flush=True)
            for job in session.jobs.all():
                if not job.state.final:
                    await session.control.cancel(job.id)
    return rows


def summary(rows: list[dict[str, object]]) -> str:
    """Counts of all trials, and how right sure answers were."""
    right = sum(bool(row["right"]) for row in rows)
    undecided = sum(row.get("blame") in (Blame.UNDECIDED.value, None) for row in rows)
    sure = [row for row in rows if row.get("blame") not in (Blame.UNDECIDED.value, None)]
    good = sum(bool(row["right"]) for row in sure)
    return (
        f"{right} of {len(rows)} told apart, {undecided} undecided, {len(rows) - right - undecided} wrong;"
        f" of {len(sure)} sure answers {good} right"
    )


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks swap", description=__doc__)
    parser.add_argument("--only", default="", help="trials whose name has this")
    parser.add_argument(
        "--part", default="1/1", metavar="K/N", help="each N-th trial from the K-th"
    )
    options = parser.parse_args(argv)
    first, _, count = options.part.partition("/")
    trials = [one for one in (*NODE_FAULTS, *PROGRAM_FAULTS) if options.only in one.name]
    if cpu_quota.lacking():
        print(f"# without quota: {cpu_quota.lacking()}", file=sys.stderr)
        trials = [one for one in trials if one.what != "quota"]
    with demo_site() as site:
        rows = asyncio.run(_all(site, trials[int(first) - 1 :: int(count)]))
    print(summary(rows), flush=True)
    return 0 if sum(bool(row["right"]) for row in rows) >= GOAL * len(rows) else 1
