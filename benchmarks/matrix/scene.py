"""A job that runs while harm is done: what `run` prints of it, and what another console shows."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.processes import descendants

from benchmarks.fault_model import Shape
from benchmarks.fault_plants import processes, words_of
from benchmarks.fault_run import Watching, wait, watching
from benchmarks.fault_sites import AnySite
from benchmarks.matrix.lines import WRITER, Missed, missed
from benchmarks.matrix.meter import Cost, metered
from benchmarks.matrix.model import Tally

START_LIMIT = 60.0
END_LIMIT = 120.0
_JOB_ID = re.compile(r"^(matrix-\S+): ")
_SHOWN = re.compile(rb"\[(\d+|launcher)\] ")
ORDINARY = (
    r"matrix: starting on ",
    r"matrix-\S+: (running|pending|done|\d+ ranks?)",
    r"matrix-\S+: .*\bdone\b",
    r"on its nodes: \S+: (.*\b(want|[Oo]ut) of memory\b|load is )",
)
"""What `run` says of a job of which nothing is to be said; others use this machine's memory too."""


def job_file(
    command: Sequence[str], nodes: int = 3, ranks_per_node: int = 2, **more: object
) -> Shape:
    """A plain job by the name of `matrix`, that goes on where a node is lost."""
    job = {"job": "matrix", "launch": "plain", "nodes": nodes, "ranks_per_node": ranks_per_node}
    return {**job, "command": [*command], "grace": 1, "abort": {"enabled": False}, **more}


def writing(count: int, pause: float, **more: Any) -> Shape:
    """The job whose ranks write `count` numbered lines each, with a pause in seconds after each."""
    return job_file(["python3", "-c", WRITER, str(count), str(pause)], **more)


@dataclass(frozen=True, slots=True)
class Said:
    """One line that `run` printed on stderr, and when (epoch seconds)."""

    at: float
    text: str


@dataclass(slots=True)
class Scene:
    """One job, its `run`, and a console beside it; made by `playing`."""

    site: AnySite
    process: subprocess.Popen[bytes]
    watch: Watching
    output: Path
    """What `run` printed on stdout."""
    cost: Cost = field(default_factory=Cost)
    job: str = ""
    said: list[Said] = field(default_factory=list[Said])
    heard: dict[int, float] = field(default_factory=dict[int, float])
    """Rank -> when `run` last printed a line of it, on the clock that never jumps."""

    # ---- what came

    def listen(self) -> None:
        """Keep what `run` says on stderr until it ends."""
        assert self.process.stderr
        for line in self.process.stderr:
            self.said.append(Said(time.time(), line.decode(errors="replace").rstrip("\n")))
            if not self.job and (found := _JOB_ID.match(self.said[-1].text)):
                self.job = found[1]

    def copy(self) -> None:
        """Keep what `run` prints on stdout until it ends."""
        assert self.process.stdout
        with self.output.open("wb", buffering=0) as file:
            while data := os.read(self.process.stdout.fileno(), 1 << 16):
                file.write(data)
                now = time.monotonic()
                for who in set(_SHOWN.findall(data)) - {b"launcher"}:
                    self.heard[int(who)] = now

    def lines(self) -> list[str]:
        """The lines of all ranks as `run` printed them, without the rank before them."""
        text = self.output.read_bytes().decode(errors="replace")
        return [line.partition("] ")[2] for line in text.split("\n") if line.startswith("[")]

    # ---- what is shown now

    def shape(self) -> Shape:
        """The job as the other console shows it; {} until it does."""
        seen = self.watch.seen.get(self.job)
        return seen[-1].job if seen else {}

    def states(self, node: str = "") -> set[str]:
        """The states of the ranks of a node, or of all."""
        return {r["state"] for r in self.shape().get("ranks", ()) if node in ("", r["node"])}

    def ranks_on(self, *nodes: str) -> set[int]:
        """The ranks of these nodes."""
        return {r["rank"] for r in self.shape().get("ranks", ()) if r["node"] in nodes}

    def speaking(self, ranks: set[int], since: float) -> bool:
        """Whether `run` has printed lines of all these ranks since then (monotonic seconds)."""
        return all(self.heard.get(rank, 0.0) > since for rank in ranks)

    def over(self) -> bool:
        return self.process.poll() is not None

    def left(self) -> int:
        """Processes of the job that outlive it by five seconds."""
        wait(lambda: not [*processes(self.job)], 5)
        return len([*processes(self.job)])

    # ---- what is done

    def start(self, *, short: bool = False) -> None:
        """Wait until all ranks run; of a `short` job some may have ended by then.

        Raises RuntimeError.
        """
        if not wait(lambda: self.job or self.over(), START_LIMIT) or not self.job:
            raise RuntimeError(f"no job was started: {self.words()}")
        self.watch.order(follow=self.job)

        def begun() -> bool:
            states = self.states()
            return states == {"running"} or (short and bool(states) and "pending" not in states)

        if not wait(lambda: begun() or self.over(), START_LIMIT):
            raise RuntimeError(f"not all ranks run: {self.states()}: {self.words()}")

    def finish(self, limit: float = END_LIMIT) -> int | None:
        """Wait for the end of `run`; its exit code, None where it does not end in `limit` s."""
        if not wait(self.over, limit):
            return None
        final = ("done", "failed", "cancelled")
        if self.shape():
            wait(lambda: self.shape().get("state") in final, 20)
        return self.process.returncode

    def ask(self, *words: str, limit: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run another command of ours on the same cluster."""
        return ask(self.site, *words, limit=limit)

    def words(self) -> str:
        return "\n".join(one.text for one in self.said)


def ask(
    site: AnySite, *words: str, limit: float = 60.0, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `rankdeck WORDS` on the cluster of a site; raises subprocess.TimeoutExpired."""
    return subprocess.run(
        rankdeck(site, *words), env={**site.environment(), **(env or {})}, check=False,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit,
    )  # fmt: skip


def rankdeck(site: AnySite, *words: str) -> list[str]:
    """The command that runs ours where the site's consoles run."""
    return site.command([sys.executable, "-m", "rankdeck", "-c", site.cluster, *words])


@contextmanager
def playing(site: AnySite, job: Shape, *options: str) -> Generator[Scene]:
    """`run` of this job and a console beside it; whatever was started is gone at the end."""
    file = site.place() / "job.yaml"
    file.write_text(json.dumps(job))
    with ExitStack() as stack:
        watch = stack.enter_context(watching(site))
        process = stack.enter_context(_started(site, str(file), *options))
        scene = Scene(site, process, watch, site.place() / "run.out")
        threads = [threading.Thread(target=one, daemon=True) for one in (scene.listen, scene.copy)]
        for thread in threads:
            thread.start()
        scene.cost = stack.enter_context(metered(console_of(process)))
        try:
            yield scene
        finally:
            _clean(scene, threads)


@contextmanager
def _started(site: AnySite, file: str, *options: str) -> Generator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        rankdeck(site, "run", file, "--no-preflight", *options), env=site.environment(),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:  # fmt: skip
        yield process


def console_of(process: subprocess.Popen[Any]) -> int:
    """The process of the console itself: in the lab, `nsenter` and `unshare` stand before it."""

    def find() -> int:
        own = descendants(process.pid)
        return next((pid for pid in own if _is_console(words_of(pid))), 0)

    wait(lambda: find() or process.poll() is not None, 20)
    return find()


def _is_console(words: Sequence[str]) -> bool:
    return "rankdeck" in words and Path(words[0]).name.startswith("python")


def _clean(scene: Scene, threads: Sequence[threading.Thread]) -> None:
    """End the job where it goes on, and `run`."""
    scene.site.mend()
    if scene.job and [*processes(scene.job)]:
        scene.ask("cancel", scene.job)
    for one in processes(scene.job) if scene.job else ():
        os.kill(one.pid, signal.SIGKILL)
    if scene.process.poll() is None:
        for pid in reversed(descendants(scene.process.pid)):
            os.kill(pid, signal.SIGKILL)
    for thread in threads:
        thread.join(10)


# ---- what was counted --------------------------------------------------------------------


def untold(scene: Scene, allowed: Sequence[str] = ()) -> tuple[str, ...]:
    """What `run` said that it should not have said."""
    known = re.compile("|".join((*ORDINARY, *allowed)))
    return tuple(one.text for one in scene.said if one.text.strip() and not known.match(one.text))


def counted(scene: Scene, ranks: int, count: int) -> Missed:
    """Bytes that were lost or doubled by `run`, and by `logs` afterwards, together."""
    shown = missed(scene.lines(), ranks, count)
    told = scene.ask("logs", scene.job, "--json", limit=300)
    texts = [json.loads(line) for line in told.stdout.splitlines()]
    read = missed([one["text"] for one in texts if one["rank"] is not None], ranks, count)
    return Missed(shown.lost + read.lost, shown.doubled + read.doubled)


def ended(
    scene: Scene,
    *,
    state: str,
    seconds: float | None,
    missing: Missed | None = None,
    wrong: Sequence[str] = (),
    key: float | None = None,
    note: str = "",
) -> Tally:
    """The tally of a job that is over; `state` is the right one."""
    shown = scene.shape().get("state", "")
    return Tally(
        lost=missing.lost if missing else None,
        doubled=missing.doubled if missing else None,
        left=scene.left(),
        state=shown,
        right=shown == state,
        seconds=seconds,
        wrong=tuple(wrong),
        memory=scene.cost.memory,
        cpu=scene.cost.cpu,
        key=key,
        note=note or ", ".join(sorted(one.name for one in processes(scene.job))),
    )


def elapsed(condition: Callable[[], object], limit: float) -> float | None:
    """Seconds until this becomes so; None where it does not in `limit` seconds."""
    began = time.monotonic()
    return time.monotonic() - began if wait(condition, limit) else None
