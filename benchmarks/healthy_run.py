"""One healthy job: launched as a user does, watched by a second console, and cancelled when its
time is over.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fault_model import Seen, Shape
from benchmarks.fault_plants import processes
from benchmarks.fault_run import Watching, wait
from benchmarks.fault_sites import DemoSite
from benchmarks.healthy_programs import Program
from rankdeck.config.document import write_documents
from rankdeck_agent.rules.levels import Level

_START, _END = 90.0, 60.0
_LOOK = 1.0
_BEFORE, _ENDED = ("unseen", "pending", "starting"), ("done", "failed", "cancelled")
_TRUE = "cpu.load"
"""A finding that is right: the virtual nodes share the cores of one machine."""
_JOB_ID = re.compile(r"^(healthy-\S+): ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Piece:
    """One job of a program, and what was said against it."""

    program: str
    at: float
    """When it began, in epoch seconds."""
    seconds: float
    load: float
    """The load of the machine when it ended."""
    state: str
    """How it ended: `done`, `cut` when its time was over; any other was not healthy."""
    told: tuple[str, ...] = ()
    """Every accusation, once, with the second of the job in which it came."""

    @property
    def counts(self) -> bool:
        return self.state in ("done", "cut")


@dataclass(frozen=True, slots=True)
class HealthyRun:
    """What one job needs."""

    program: Program
    site: DemoSite
    watch: Watching
    number: int
    """Of this job, in its folder's name."""
    starting: threading.Lock
    """Held while a job starts: only one does at a time."""
    over: threading.Event
    """Set if all jobs are to end."""

    def go(self, until: float) -> Piece:
        """Run the job until it ends, or until this time (monotonic); nothing of it stays."""
        folder = self.site.place() / f"healthy.{self.number}"
        folder.mkdir()
        try:
            with self.starting:
                at, process = time.time(), self._start(folder)
                job = self._follow(process, folder / "run.err")
            try:
                return self._watched(job, process, at, until)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(_END)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _start(self, folder: Path) -> subprocess.Popen[bytes]:
        for name, text in self.program.files.items():
            (folder / name).write_text(text())
        job = {"job": "healthy", "grace": 1, "workdir": str(folder), **self.program.job}
        (folder / "job.yaml").write_text(write_documents([job]))
        words = ("run", str(folder / "job.yaml"), "--json", "--no-preflight")
        with (folder / "run.out").open("w") as out, (folder / "run.err").open("w") as err:
            return subprocess.Popen(
                [sys.executable, "-m", "rankdeck", "-c", self.site.cluster, *words],
                env=self.site.environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True,
            )  # fmt: skip

    def _follow(self, process: subprocess.Popen[bytes], err: Path) -> str:
        """Wait until the job has begun; returns its id, "" if it did not start."""
        over = process.poll
        wait(lambda: _JOB_ID.search(err.read_text()) or over() is not None, _START)
        found = _JOB_ID.search(err.read_text())
        if found is None:
            return ""
        self.watch.order(follow=found[1])
        wait(lambda: self._state(found[1]) not in _BEFORE or over() is not None, _START)
        return found[1]

    def _watched(
        self, job: str, process: subprocess.Popen[bytes], at: float, until: float
    ) -> Piece:
        if not job:
            return self._piece(at, "not started", ())
        while process.poll() is None and time.monotonic() < until and not self.over.is_set():
            self.over.wait(_LOOK)
        cut = process.poll() is None
        if not cut:
            wait(lambda: self._state(job) in _ENDED, _END)
        # What comes after we cancel it is our doing.
        told = _accusations(self.watch.seen.get(job, ()), at)
        state = self._state(job)
        piece = self._piece(at, "cut" if state == "running" else state, told)
        if cut:
            self._cancel(job, process)
        self.watch.seen.pop(job, None)
        return piece

    def _cancel(self, job: str, process: subprocess.Popen[bytes]) -> None:
        self.watch.order(cancel=job)
        wait(lambda: process.poll() is not None, _END)
        wait(lambda: not [*processes(job)], _END)
        for one in processes(job):
            os.kill(one.pid, signal.SIGKILL)

    def _state(self, job: str) -> str:
        seen = self.watch.seen.get(job)
        if not seen:
            return "unseen"
        # While others go on, a rank that has ended badly is no healthy one.
        ends = {rank["exit_code"] or rank["signal"] for rank in seen[-1].job["ranks"]}
        return str(seen[-1].job["state"]) if ends <= {None, 0} else "failed"

    def _piece(self, at: float, state: str, told: Iterable[str]) -> Piece:
        load = os.getloadavg()[0]
        return Piece(self.program.name, at, time.time() - at, load, state, tuple(told))


def _accusations(seen: Iterable[Seen], begun: float) -> Iterator[str]:
    """Everything that was said against the job, its ranks or nodes, each once."""
    known: set[str] = set()
    for one in seen:
        for key, text in _told(one.job):
            if key not in known:
                known.add(key)
                yield f"{key}, at {one.at - begun:.0f} s: {text}"


def _told(job: Shape) -> Iterator[tuple[str, str]]:
    """What is said now: a key without numbers that change, and the words."""
    if failure := job["first_failure"]:
        yield f"failure of {failure['what']} {failure['rank']}", " ".join(failure["evidence"])
    for stall in job["stalled"]:
        yield f"{stall['kind']} {stall['ranks']} {stall['node']}".rstrip(), stall["text"]
    for trouble in job["troubles"]:
        yield "trouble", trouble
    for note in job["nodes_said"]:
        if note["level"] != Level.OK.word and note["check"] != _TRUE:
            yield f"node {note['node']}", f"{note['level']}: {note['text']}"
