"""One run of a fault: launch the job as a user does, plant the fault, watch a console, clean up."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.processes import descendants

from benchmarks import fault_judge as judge
from benchmarks.fault_corpus import is_recorded, record_case
from benchmarks.fault_list import PLACE
from benchmarks.fault_model import Fault, Kind, Outcome, Seen, Shape
from benchmarks.fault_plants import processes
from benchmarks.fault_sites import AnySite
from rankdeck.drill.judge import launcher_named

START_LIMIT = 90.0
"""Seconds until the ranks are at work and the fault has happened."""
ANSWER_LIMIT = 60.0
"""Seconds after the fault within which the console must answer, or else it counts as silent."""
HEALTHY_LIMIT = 180.0
STANDS = 5.0
"""Seconds for which the answer to a hang must not change."""
END_LIMIT = 45.0
"""Seconds within which a job ends after its failure was shown or it was cancelled."""
LATE = 0.5
"""Seconds that the second console has to catch up after `run` has ended."""
WATCHER_LIMIT = 5.0
_JOB_ID = re.compile(r"^(fault-\S+): ", re.MULTILINE)
_LOOK = 0.05


def wait(condition: Callable[[], object], limit: float) -> bool:
    """Wait until the condition is true; False if it is not within `limit` seconds."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK)
    return True


@dataclass(slots=True)
class Watching:
    """The console that follows all jobs of a site; made by `watching`."""

    process: subprocess.Popen[str]
    seen: dict[str, list[Seen]] = field(default_factory=dict[str, list[Seen]])
    cancelled: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def order(self, **order: str) -> None:
        """Send an order; raises RuntimeError if the console is gone."""
        assert self.process.stdin
        if self.process.poll() is not None:
            raise RuntimeError(f"the console that watches ended: {self.process.returncode}")
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def listen(self) -> None:
        """Keep everything that the console prints, until it ends."""
        assert self.process.stdout
        for line in self.process.stdout:
            told = json.loads(line)
            if "cancelled" in told:
                self.cancelled[told["cancelled"]] = told
            else:
                one = Seen(told["at"], told["job"])
                self.seen.setdefault(one.job["job"], []).append(one)


@contextmanager
def watching(site: AnySite) -> Generator[Watching]:
    """Start a console that follows the jobs it is told to; ended with the block."""
    argv = [sys.executable, "-m", "benchmarks.fault_watch", site.cluster]
    with subprocess.Popen(
        site.command(argv), env=site.environment(), text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        watch = Watching(process)
        listener = threading.Thread(target=watch.listen, daemon=True)
        listener.start()
        try:
            yield watch
        finally:
            _end_watcher(process, listener)


def _end_watcher(process: subprocess.Popen[str], listener: threading.Thread) -> None:
    """End it, and in the lab what `nsenter` has started: whoever holds the pipe holds us up."""
    assert process.stdin
    process.stdin.close()
    listener.join(WATCHER_LIMIT)
    for pid in reversed(descendants(process.pid)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    listener.join(WATCHER_LIMIT)


class Run:
    """One job of one fault."""

    def __init__(
        self, fault: Fault, site: AnySite, watch: Watching, record: Path | None = None
    ) -> None:
        """`record`: the folder into which the failure is recorded."""
        self._fault, self._site, self._watch = fault, site, watch
        self._record = record
        self._folder = site.place()
        self._job = ""
        self._at: float | None = None
        self._notes: list[str] = []
        self._seen: list[Seen] = []
        self._said = judge.NOBODY

    def go(self) -> Outcome:
        """Do the whole run and judge it; everything that was started is ended."""
        undo = self._fault.prepare(self._site)
        out, err = self._folder / "run.out", self._folder / "run.err"
        try:
            with out.open("w") as stdout, err.open("w") as stderr:
                process = self._start(stdout.fileno(), stderr.fileno())
            try:
                self._look(process, err)
                jobs = self._end(process)
            finally:
                self._clean(process)
        finally:
            undo()
            self._site.mend()
        return self._judge(process.returncode, _last_object(out), jobs)

    # ---- launch

    def _start(self, out: int, err: int) -> subprocess.Popen[bytes]:
        file = self._folder / "job.yaml"
        file.write_text(self._fault.job.replace(PLACE, str(self._folder)))
        argv = self._rankdeck("run", str(file), "--json", "--no-preflight")
        return subprocess.Popen(
            argv, env=self._site.environment(), stdin=subprocess.DEVNULL, stdout=out,
            stderr=err, start_new_session=True,
        )  # fmt: skip

    def _rankdeck(self, *words: str) -> list[str]:
        argv = [sys.executable, "-m", "rankdeck", "-c", self._site.cluster, *words]
        return self._site.command(argv)

    def _look(self, process: subprocess.Popen[bytes], err: Path) -> None:
        """Follow the job, plant the fault, and wait for the console's answer."""
        if (
            not wait(lambda: self._name(err) or process.poll() is not None, START_LIMIT)
            or not self._job
        ):
            self._notes.append("did not start: " + err.read_text()[-200:].strip())
            return
        self._watch.order(follow=self._job)
        if not self._fault.at_start:
            wait(lambda: self._at_work() or process.poll() is not None, START_LIMIT)
        if process.poll() is None:
            self._plant()
        if self._fault.kind is Kind.HEALTHY:
            wait(lambda: process.poll() is not None, HEALTHY_LIMIT)
            return
        wait(lambda: self._happened() or process.poll() is not None, START_LIMIT)
        self._await_answer(process)

    def _name(self, err: Path) -> bool:
        if found := _JOB_ID.search(err.read_text()):
            self._job = found[1]
        return bool(self._job)

    def _at_work(self) -> bool:
        """Whether every rank has reported in its run folder that it is at work."""
        folders = [self._site.folder(self._job, node) for node in self._site.nodes()]
        ready = sum(len(list(folder.glob("ready.*[0-9]"))) for folder in folders)
        seen = self._watch.seen.get(self._job)
        return bool(seen) and ready >= len(seen[-1].job["ranks"])

    def _plant(self) -> None:
        try:
            self._at = self._fault.plant(self._site, self._job)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            self._notes.append(f"not planted: {error}")

    def _happened(self) -> bool:
        """Note when the fault happened; for a fault at the start without a
        time: when the first rank ended.
        """
        if self._at is None:
            self._at = self._told() or (self._first_end() if self._fault.at_start else None)
        return self._at is not None

    def _told(self) -> float | None:
        folders = [self._site.folder(self._job, node) for node in self._site.nodes()]
        files = [folder / "fault" for folder in folders]
        told = [file.read_text() for file in files if file.exists()]
        return min((float(text) for text in told if text.strip()), default=None)

    def _first_end(self) -> float | None:
        seen = self._watch.seen.get(self._job)
        if not seen:
            return None
        ends = [rank["ended"] for rank in seen[-1].job["ranks"] if rank["ended"]]
        ends += [seen[-1].job["ended"]] if seen[-1].job["ended"] else []
        return min(ends, default=None)

    def _named(self) -> bool:
        seen = self._watch.seen.get(self._job)
        return bool(seen) and judge.answer_to(self._fault, seen[-1].job) is not None

    def _await_answer(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the job has ended; if it goes on, until an
        answer has not changed for a while.
        """
        over = process.poll
        wait(lambda: self._named() or over() is not None, ANSWER_LIMIT)
        if self._fault.kind is Kind.HANG and over() is None:
            wait(lambda: over() is not None, STANDS)
        elif self._named():
            wait(lambda: over() is not None, END_LIMIT)

    # ---- the end

    def _end(self, process: subprocess.Popen[bytes]) -> Shape | None:
        """What `jobs` says: during a hang, otherwise at the end."""
        if not self._job:
            return None
        if process.poll() is not None:
            wait(lambda: self._state() in ("done", "failed", "cancelled"), END_LIMIT)
            time.sleep(LATE)
            self._happened()  # `run` may end before the watcher has seen the job
        return self._listed()

    def _state(self) -> str:
        seen = self._watch.seen.get(self._job)
        return seen[-1].job["state"] if seen else ""

    def _listed(self) -> Shape | None:
        try:
            done = subprocess.run(
                self._rankdeck("jobs", "--json"), env=self._site.environment(),
                capture_output=True, text=True, timeout=END_LIMIT, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            self._notes.append("`jobs` gave no answer")
            return None
        found = (json.loads(line) for line in done.stdout.splitlines())
        return next((job for job in found if job["job"] == self._job), None)

    def _clean(self, process: subprocess.Popen[bytes]) -> None:
        """End the job if it still runs, and check that nothing of it is left."""
        self._seen = [*self._watch.seen.get(self._job, ())]  # what comes now is our doing
        launchers = self._launcher_texts()
        self._said = launcher_named("\n".join(launchers.values())) or judge.NOBODY
        if self._record and self._seen and self._at is not None and is_recorded(self._fault):
            self._keep(self._record, launchers)
        try:
            self._site.mend()
            if self._job and process.poll() is None:
                self._watch.order(cancel=self._job)
                wait(lambda: process.poll() is not None, END_LIMIT)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                self._notes.append("`run` did not end")
            process.wait(END_LIMIT)
        if self._job and not wait(lambda: not [*processes(self._job)], 5):
            self._force()

    def _force(self) -> None:
        """Cancel, then kill, processes that outlived their job."""
        self._watch.order(cancel=self._job)
        wait(lambda: not [*processes(self._job)], END_LIMIT)
        left = [*processes(self._job)]
        for one in left:
            os.kill(one.pid, signal.SIGKILL)
        names = ", ".join(sorted({one.name for one in left}))
        self._notes.append(f"left after cancel: {names}" if left else "ended by a second cancel")

    # ---- judgement

    def _judge(self, code: int, ran: Shape | None, listed: Shape | None) -> Outcome:
        seen = self._seen
        others = [one for one in (ran, listed) if one is not None]
        if self._fault.kind is Kind.HANG and seen and seen[-1].job["state"] == "running":
            others = [listed] if listed else []
        alike = bool(seen) and judge.same(seen[-1].job, code, others)
        healthy = self._fault.kind is Kind.HEALTHY
        if healthy and seen and seen[-1].job["state"] != "done":
            self._notes.append(f"ended as {seen[-1].job['state']}")
        note = "; ".join(self._notes)
        return judge.outcome(self._fault, seen, self._at, self._said, alike=alike, note=note)

    def _launcher_texts(self) -> dict[str, str]:
        """Node -> what its launcher has written."""
        if not self._job:
            return {}
        folders = {node: self._site.folder(self._job, node) for node in self._site.nodes()}
        return {node: _written(folder / "launcher") for node, folder in folders.items()}

    def _keep(self, record: Path, launchers: Mapping[str, str]) -> None:
        """Record the failure as it is now."""
        job = self._seen[-1].job
        texts = {
            str(one["rank"]): _written(
                self._site.folder(self._job, one["node"]) / f"rank.{one['rank']}"
            )
            for one in job["ranks"]
        }
        case = record_case(self._fault, job, launchers, texts, judge.answer_to(self._fault, job))
        record.mkdir(parents=True, exist_ok=True)
        (record / f"{self._fault.name}.json").write_text(json.dumps(case, indent=1) + "\n")


def _written(folder: Path) -> str:
    """What was written there, stdout after stderr."""
    files = [folder / name for name in ("err", "out")]
    return "\n".join(file.read_text(errors="replace") for file in files if file.exists())


def _last_object(file: Path) -> Shape | None:
    lines: Sequence[str] = file.read_text().splitlines()
    return json.loads(lines[-1]) if lines else None
