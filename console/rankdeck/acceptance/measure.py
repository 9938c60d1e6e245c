"""One measurement as one job: start it, follow it, cancel it and verify that if it
hangs, keep its raw output in a private file.
"""

import asyncio
import dataclasses
import logging
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from msgspec import field

from rankdeck.acceptance.flow import WINDOWS, Flow, port_counts
from rankdeck.acceptance.values import Result
from rankdeck.config.files import create_private_folder, read_regular, write_user_file
from rankdeck.errors import LaunchError, RankdeckError
from rankdeck.model.cancel_report import CancelReport
from rankdeck.model.cluster import Cluster
from rankdeck.model.first_failure import RESTARTED, WAS_RESTARTED
from rankdeck.model.job import Job
from rankdeck.model.job_spec import JobSpec
from rankdeck.model.nodeset import PLAIN
from rankdeck.model.rank import State
from rankdeck.model.rank_output import Chunk, Followed
from rankdeck.model.safe_text import strip_controls
from rankdeck.rules.secrets import Secrets
from rankdeck.state.fleet import Fleet
from rankdeck.state.jobs import Jobs
from rankdeck.values import Value
from rankdeck_agent.wire import LAUNCHER

LARGEST = 32 << 20
"""Most bytes of output of one job that are kept."""
_QUEUE = 3600.0
"""Seconds that a measurement may wait in a queue; these do not count towards its time limit."""
_LOOK = 1.0
"""Seconds between two checks of the time limit, which depends on
how long others of the round take.
"""


class Follows(Protocol):
    """What a measurement needs from `Following`."""

    def listen(self, job_id: str, hear: Callable[[Followed], None]) -> None:
        """Call `hear` with each item of this job that arrives from now on."""
        ...

    async def finished(self, job_id: str) -> Job:
        """Wait until the nodes have reported everything about the job; returns the job."""
        ...

    async def caught_up(self, *, silent: Collection[str]) -> set[str]:
        """Wait a limited time until all nodes but those in `silent` have
        sent everything about their jobs.

        Returns those that have not.
        """
        ...

    def watch(self, job_id: str, ranks: Iterable[int], backlog: int | None = ...) -> None:
        """Fetch the full output of these ranks from now on; see `Following.watch`."""
        ...


class RunsJobs(Protocol):
    """What measurements need from job control; see `JobControl` for the methods."""

    async def launch(self, spec: JobSpec, *, anywhere: bool = False) -> str:
        """Start the job, with `anywhere` also on excluded nodes; returns its id.

        Raises LaunchError.
        """
        ...

    async def cancel(self, job_id: str, grace: float | None = None) -> CancelReport:
        """End every process of the job and check that none is left.

        `grace`: seconds between SIGTERM and SIGKILL; None takes the
        job's own. Raises RankdeckError.
        """
        ...

    async def find_running(self, limit: float = ...) -> dict[str, str]:
        """Find and follow jobs on the nodes that are missing in the
        history, or list those of the scheduler.

        Returns node -> why it did not answer within `limit` seconds.
        """
        ...

    def read_job(self, path: Path) -> JobSpec:
        """Read a job file; raises ConfigError."""
        ...

    async def find_lacking(self, specs: Sequence[JobSpec]) -> dict[str, str]:
        """Job file -> what its nodes lack to run it; "" for nothing."""
        ...

    def starting_often(self) -> AbstractAsyncContextManager[None]:
        """Inside this block, jobs start faster: a helper stays on each
        node and starts the next job there.
        """
        ...

    def find_excluded(self) -> Mapping[str, str]:
        """Node -> why new jobs must not use it."""
        ...


class MeasureSession(Protocol):
    """The parts of a session that measurements work with."""

    @property
    def cluster(self) -> Cluster: ...

    @property
    def jobs(self) -> Jobs: ...

    @property
    def fleet(self) -> Fleet: ...

    @property
    def following(self) -> Follows: ...

    @property
    def control(self) -> RunsJobs: ...


@dataclass(slots=True)
class Output:
    """The output of the ranks of one job, by offset: bytes that come twice are kept once."""

    _streams: defaultdict[tuple[int, str], bytearray] = dataclasses.field(
        default_factory=lambda: defaultdict(bytearray)
    )
    size: int = 0

    def hear(self, event: Followed) -> None:
        """Add the new bytes of a chunk; after a gap they are appended all the same."""
        if not isinstance(event, Chunk) or self.size > LARGEST:
            return
        stream = self._streams[event.rank, event.stream]
        fresh = event.data[max(0, len(stream) - event.offset) :]
        stream += fresh
        self.size += len(fresh)

    def of_ranks(self, mask: Callable[[bytes], bytes]) -> Mapping[int, bytes]:
        """Rank -> stdout, then stderr, with secrets masked; the launcher's output
        counts only if no rank wrote anything.
        """
        found: defaultdict[int, bytes] = defaultdict(bytes)
        for (rank, _), data in sorted(
            self._streams.items(), key=lambda item: (item[0][0], item[0][1] == "err")
        ):
            found[rank] += mask(bytes(data))
        ranks = {rank: data for rank, data in found.items() if rank != LAUNCHER}
        return ranks if any(ranks.values()) else {0: found[LAUNCHER]} if LAUNCHER in found else {}


class Ended(Value, kw_only=True):
    """How the job of a measurement ended."""

    job: str
    """"" if it could not be started."""
    output: Mapping[int, bytes]
    exit_code: int | None = None
    seconds: float = 0.0
    hung: str = ""
    """Why the job was cancelled; "" if it ended by itself."""
    restarted: str = ""
    """The node that was restarted while the job ran: what was left of the job was cancelled."""
    left: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> what may still run there; the node is not used until it is gone."""
    refused: str = ""
    """Why the job was not started."""
    refusing: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> why the job was not started there, if that concerns single nodes."""

    @property
    def cut(self) -> str:
        """Why it was cut short, in words for its results; "" if it was not."""
        if self.restarted:
            return f"{self.restarted} {WAS_RESTARTED}"
        return f"it hung: {self.hung}" if self.hung else ""


async def measure_job(
    session: MeasureSession,
    spec: JobSpec,
    limit: Callable[[], float],
    environment: Mapping[str, str],
    queue: float = _QUEUE,
) -> Ended:
    """Run the job to its end. `limit` is called once a second; a job that runs
    for more seconds than it returns hangs, unless its bytes still flow: then it
    has WINDOWS times as long.

    A scheduler may let the job wait for `queue` seconds first; without a
    scheduler the limit counts from the launch.

    A job that hangs, that lost a node because it was restarted, or whose measurement is
    cancelled, is cancelled and verified to be gone before this returns.
    """
    began = time.monotonic()
    try:
        job_id = await session.control.launch(spec, anywhere=True)
    except LaunchError as error:
        return Ended(job="", output={}, refused=str(error), refusing=error.nodes)
    except RankdeckError as error:
        return Ended(job="", output={}, refused=str(error))
    output = Output()
    nodes = session.jobs.job(job_id).nodes
    flow = Flow(lambda: port_counts(session.fleet, nodes), lambda: output.size, time.monotonic)
    clock = _Clock(limit, queue if session.cluster.can.chooses_nodes else 0.0, flow, began)
    session.following.listen(job_id, output.hear)
    session.following.watch(
        job_id, [LAUNCHER, *(rank.rank for rank in session.jobs.job(job_id).ranks)], None
    )

    def rest() -> float:
        job = session.jobs.job(job_id)
        return 0.0 if _restarted_node(job) else clock.rest(job.state)

    try:
        cut = not await _ends(session, job_id, rest)
    except asyncio.CancelledError:
        await session.control.cancel(job_id)
        raise
    left = await ended_with_proof(session, job_id) if cut else {}
    job = session.jobs.job(job_id)
    restarted = _restarted_node(job)
    why = clock.why if cut and not restarted else ""
    mask = Secrets([environment, spec.env]).in_bytes
    # A program that could not start has written nothing; its supervisor says why.
    texts = output.of_ranks(mask) or {0: mask("\n".join(job.troubles).encode())}
    return Ended(
        job=job_id,
        output=texts,
        exit_code=job.exit_code,
        seconds=clock.seconds,
        hung=why,
        restarted=restarted,
        left=left,
        refused=why if clock.waits else "",
    )


class _Clock:
    """Counts how long a measurement has run, from when its job was first seen running."""

    def __init__(self, limit: Callable[[], float], queue: float, flow: Flow, asked: float) -> None:
        self._limit, self._queue, self._flow = limit, queue, flow
        self._asked = self._began = asked
        self._windows = 1
        self.waits = False
        """Whether the scheduler has not started the job yet."""

    def rest(self, state: State) -> float:
        """Seconds that a job in this state has left."""
        now = time.monotonic()
        self.waits = state is State.PENDING and self._queue > 0
        if self.waits:
            self._began = now
            return self._asked + self._queue - now
        self._flow.look()
        while (left := self._began + self._within - now) <= 0 and self._goes_on:
            self._windows += 1
        return left

    @property
    def _within(self) -> float:
        return self._windows * self._limit()

    @property
    def _goes_on(self) -> bool:
        return self._windows < WINDOWS and self._limit() > 0 and self._flow.flows

    @property
    def seconds(self) -> float:
        """Seconds since the job runs."""
        return time.monotonic() - self._began

    @property
    def why(self) -> str:
        """Why the job was cancelled, when no time is left."""
        did, within = ("start", self._queue) if self.waits else ("end", self._within)
        slow = " although its bytes flowed" if self._windows == WINDOWS and not self.waits else ""
        return f"it did not {did} within {within:.0f} s{slow} and was cancelled"


async def _ends(session: MeasureSession, job_id: str, rest: Callable[[], float]) -> bool:
    """Wait for the end of a job, as long as `rest` returns more than 0
    seconds; returns whether the job ended.
    """
    while (seconds := rest()) > 0:
        try:
            async with asyncio.timeout(min(seconds, _LOOK)):
                await session.following.finished(job_id)
        except TimeoutError:
            continue
        return True
    return False


def _restarted_node(job: Job) -> str:
    """The node whose restart made the job fail; "" if there was none."""
    first = job.first_failure
    return first.node if first and (first.what, first.name) == ("node", RESTARTED) else ""


async def ended_with_proof(session: MeasureSession, job_id: str) -> dict[str, str]:
    """Cancel the job; returns node -> what may still run there, empty if
    it is verified that nothing does.
    """
    report = await session.control.cancel(job_id)
    left = {one.node: f"process {one.pid} of {job_id} does not end" for one in report.left}
    return {
        **{
            node: f"it could not be asked whether {job_id} has ended: {why}"
            for node, why in report.unverified.items()
        },
        **left,
    }


log = logging.getLogger(__name__)


class RawOutputs:
    """The raw outputs, as files in a folder of the user."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, run: str, one: Result, raw: bytes) -> str:
        """Write an output to a file; returns its path, or "" if there is no output
        or writing failed (which is logged).
        """
        if not raw:
            return ""
        path = self._folder / run / f"{_name(one)}.txt"
        try:
            create_private_folder(path.parent)
            write_user_file(path, raw.decode("utf-8", "replace"))
        except OSError as error:
            log.warning("%s: the output is not kept: %s", path, error.strerror or error)
            return ""
        return str(path)

    def remove(self, run: str) -> None:
        """Remove the outputs of a run that is no longer kept; what cannot be removed is logged."""
        folder = self._folder / run
        if folder.parent != self._folder or folder.is_symlink() or not folder.is_dir():
            return
        try:
            shutil.rmtree(folder)
        except OSError as error:
            log.warning("%s: old outputs are not removed: %s", folder, error.strerror or error)

    def read(self, one: Result, most: int) -> str:
        """At most `most` characters of the output, made safe to show; "" if it is gone."""
        path = Path(one.raw)
        if not one.raw or self._folder not in path.parents:
            return ""
        try:
            text = read_regular(path).decode("utf-8", "replace")
        except OSError:
            return ""
        return "\n".join(strip_controls(line) for line in text[:most].split("\n"))


def _name(one: Result) -> str:
    """The name of the file: `003-pairs-iperf3-n1-n2-0-1`, which is round,
    stage, recipe, nodes, port, repeat.
    """
    nodes = (one.sender, one.receiver or (f"{len(one.group)}nodes" if one.group else ""))
    words = (
        f"{one.round:03}",
        one.stage.value,
        one.recipe,
        *filter(None, nodes),
        *([f"rail{one.rail}"] if one.rail else []),
        str(one.port),
        str(one.repeat),
    )
    return "-".join(word if PLAIN.fullmatch(word) else "x" for word in words)[:200]
