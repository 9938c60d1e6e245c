"""Protocols for screens: the session of an open cluster, its stand-in until `rankdeck.session` is loaded, and the app."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from textual.screen import Screen

from rankdeck.errors import LaunchError
from rankdeck.model.health import Level
from rankdeck.state.fleet import Fleet, Switches
from rankdeck.state.fleet_history import Messages
from rankdeck.ui.actions import Tour
from rankdeck.ui.themes import Glyphs, Palette

if TYPE_CHECKING:
    from rankdeck.acceptance.run import AcceptanceProtocol
    from rankdeck.errors import HostKeyError, NodeError
    from rankdeck.images.copy import Tell, TellFetch, TellLaunch
    from rankdeck.model.cluster import Cluster
    from rankdeck.model.health import Ack, PastView
    from rankdeck.model.job import CancelReport, FoundLine, JobSpec, LogPart, LogPlace, Plan
    from rankdeck.model.process import NodeProcess
    from rankdeck.model.schedulers import (
        KubernetesJob,
        LogRun,
        ServiceChange,
        ServiceOrder,
        SlurmJob,
        SlurmPartition,
    )
    from rankdeck.preflight.facts import Finding
    from rankdeck.remote.command import CommandRun, FoundProcesses
    from rankdeck.rules.inspect import Inspection
    from rankdeck.state.jobs import Jobs


class OutputProtocol(Protocol):
    """The output of one rank, read and searched on its node. All methods raise NodeError."""

    async def read(self, place: LogPlace, size: int) -> LogPart:
        """Read whole lines that begin near `place`, about `size` bytes."""
        ...

    def find(self, place: LogPlace, text: str, *, back: bool) -> AsyncGenerator[FoundLine]:
        """Search for the next line with `text` after `place`, or with `back` for the last one before it.

        Yields the state of the search repeatedly until all matches are counted. Case matters only if `text`
        has a capital letter.
        """
        ...

    async def open(self) -> None:
        """Start the agent on the node in advance, so that the first answer comes at once."""
        ...


class SessionProtocol(Protocol):
    """One open cluster: the state that screens read, and the requests that they make.

    Call all methods on the event loop; methods that are not `async` return at once. Callbacks run on the
    event loop too and must not block. Unknown job ids raise UnknownJobError, a RankdeckError.
    The bodies here are the answers of `Opening`, while the cluster is not open yet.
    """

    @property
    def cluster(self) -> Cluster:
        """The cluster as its file describes it."""
        ...

    @property
    def fleet(self) -> Fleet:
        """The state of all nodes; read only."""
        ...

    @property
    def switches(self) -> Switches:
        """The state of switch ports; read only."""
        ...

    @property
    def jobs(self) -> Jobs:
        """All jobs and their newest output; read only."""
        ...

    @property
    def messages(self) -> Messages:
        """The log records of Rankdeck that the Messages screen shows."""
        ...

    @property
    def pending_host_key(self) -> HostKeyError | None:
        """The host key that the operator must accept or refuse now; None if there is none."""
        return None

    @property
    def history_trouble(self) -> str:
        """Why the history cannot be written now, as one sentence; "" if it can."""
        return ""

    @property
    def connecting(self) -> tuple[int, int]:
        """How many nodes have answered or failed at least once when telemetry was set up, and how many are asked."""
        return 0, 0

    @property
    def acceptance(self) -> AcceptanceProtocol | None:
        """Acceptance runs of this cluster; None until the session is open."""
        return None

    def answer_host_key(self, accept: bool) -> None:
        """Accept or refuse `pending_host_key`."""
        del accept

    def job_files(self) -> tuple[Path, ...]:
        """The job files that belong to this cluster."""
        return ()

    def read_job(self, path: Path) -> JobSpec:
        """Read a job file; raises ConfigError with every mistake in it."""
        raise _not_yet(path)

    def plan(self, spec: JobSpec) -> Plan:
        """What `launch` would do, without asking a node; raises LaunchError."""
        raise _not_yet(spec.name)

    def export(self, spec: JobSpec) -> str:
        """The job as a shell script that runs without Rankdeck; raises LaunchError."""
        raise _not_yet(spec.name)

    async def launch(self, spec: JobSpec, tell: TellLaunch = lambda _: None) -> str:
        """Start the job and return its id; raises LaunchError.

        `tell` is called with the progress while the image is copied.
        """
        raise _not_yet(spec.name, tell)

    async def cancel(self, job_id: str, grace: float | None = None) -> CancelReport:
        """End the job on every node and verify it; raises RankdeckError if that is not possible from here.

        `grace` is the time from SIGTERM to SIGKILL in seconds; None: the job's own.
        """
        raise _not_yet(job_id, grace)

    async def cancel_tasks(self, job_id: str, tasks: Sequence[int]) -> CancelReport:
        """End these tasks of a job array, by their numbers; raises RankdeckError."""
        raise _not_yet(job_id, tasks)

    async def log_run(self, job_id: str, number: int) -> LogRun:
        """Where the output of run `number` (from 0) of a job is; raises RankdeckError."""
        raise _not_yet(job_id, number)

    def why_not(self, need: str, what: JobSpec | str) -> str:
        """Why this user has no right to do this; "" if allowed, or if that is not known.

        `need` is "launch" (`what` is the job), "follow" or "cancel" (`what` is a job id).
        """
        del need, what
        return ""

    def others(self) -> Sequence[KubernetesJob | SlurmJob]:
        """Jobs in the scheduler's queue that this console does not follow."""
        return ()

    async def list_ended(self) -> str:
        """Add jobs that ended in the last day to `others`; returns why that is not possible, or "".

        Raises RankdeckError.
        """
        raise _not_yet("jobs that ended")

    def partitions(self) -> Sequence[SlurmPartition]:
        """Slurm's partitions and what is idle in them; empty without Slurm."""
        return ()

    async def service(self, order: ServiceOrder, agreed: str = "") -> ServiceChange:
        """Take nodes out of service in Slurm, or return them; raises RankdeckError.

        Without `agreed`, nothing changes: the result has the command line that would run. To run that line, pass
        it as `agreed`; it runs only if the same line is still the right one.
        """
        raise _not_yet(order.do, agreed)

    async def attach(self, text: str) -> str:
        """Follow one of `others` without changing it (`text` is its id in the scheduler); returns its id in Rankdeck.

        Raises RankdeckError.
        """
        raise _not_yet(text)

    @property
    def commands(self) -> Sequence[CommandRun]:
        """The commands that this console ran on nodes, newest last."""
        return ()

    def command(self, nodes: Sequence[str], command: str) -> CommandRun:
        """Start a shell command on these nodes and return at once; raises RankdeckError."""
        raise _not_yet(command, nodes)

    async def processes(self, nodes: Iterable[str]) -> FoundProcesses:
        """The processes on these nodes now; raises RankdeckError."""
        raise _not_yet("processes", nodes)

    async def signal(self, name: str, some: Sequence[NodeProcess]) -> Mapping[str, str]:
        """Send the signal `name` (TERM, KILL, …) to these processes; returns `NODE PID` -> why it was not sent."""
        raise _not_yet(name, some)

    async def lacking(self, specs: Sequence[JobSpec]) -> Mapping[str, str]:
        """Job file -> what the nodes lack to run it ("": nothing); a file is left out while this is not known."""
        del specs
        return {}

    async def copy_file(
        self, file: Path, to: str, nodes: Sequence[str], tell: Tell
    ) -> Mapping[str, NodeError]:
        """Copy a file from this machine to the path `to` on these nodes ("": its own name).

        `tell` is called with the progress. Returns the nodes that failed; raises OSError for the file here.
        """
        raise _not_yet(file, to, nodes, tell)

    async def fetch(
        self, path: str, nodes: Sequence[str], to: Path, tell: TellFetch
    ) -> Mapping[str, NodeError]:
        """Copy the file `path` from these nodes into the folder `to` here, as NAME.NODE.

        `tell` is called with the progress. Returns the nodes that failed; raises OSError for the folder here.
        """
        raise _not_yet(path, nodes, to, tell)

    def shell_command(self, node: str, words: Sequence[str] = ()) -> tuple[str, ...]:
        """The command line of the user's own ssh, with our options, that opens a shell on the node or runs `words` there.

        Raises RankdeckError if the nodes are not reached over SSH.
        """
        raise _not_yet(node, words)

    async def inspect(self, job_id: str) -> Inspection:
        """Ask all nodes of the job what every rank is doing now; raises RankdeckError."""
        raise _not_yet(job_id)

    async def replay(self, job_id: str, speed: float = 1.0) -> str:
        """Replay a job `speed` times as fast as it ran; returns the id of the replay.

        If the job is itself a replay, that replay starts again. Raises RankdeckError.
        """
        raise _not_yet(job_id, speed)

    def forget(self, job_id: str) -> None:
        """Remove this replay; the job itself stays."""
        raise _not_yet(job_id)

    def wind(self, job_id: str, seconds: float) -> bool:
        """Move this replay by `seconds`, back if negative; 0 pauses or resumes it.

        Returns whether it is paused now.
        """
        raise _not_yet(job_id, seconds)

    async def report(self, job_id: str, path: Path, *, page: bool) -> Mapping[str, str]:
        """Write everything about a job to `path`: an HTML page, or else an archive.

        Returns node -> why its part is missing; raises RankdeckError.
        """
        raise _not_yet(job_id, path, page)

    async def preflight(
        self,
        spec: JobSpec,
        tell: Callable[[Finding], None] = lambda _: None,
        step: Callable[[int, int, str], None] = lambda _done, _of, _doing: None,
    ) -> tuple[Finding, ...]:
        """Find what would go wrong with this job, without starting it.

        `tell` is called with each finding as it comes, `step` with (done, of how many, what is checked now).
        """
        raise _not_yet(spec.name, tell, step)

    def acknowledge(self, ack: Ack) -> None:
        """Acknowledge a check of a node and save that in the history; raises HistoryError."""
        self.fleet.set_acks([ack])

    def want(self, nodes: frozenset[str] | None) -> None:
        """Ask for full samples from these nodes from now on; None: from all nodes."""
        del nodes

    def past(self, node: str, hours: float, until: float | None = None) -> PastView | None:
        """The numbers of a node over `hours` up to `until` (epoch seconds; None: now) from the site's Prometheus.

        Prometheus is asked in the background: call again for the answer. None if the cluster has none.
        """
        del node, hours, until
        return None

    def hold(self, job_id: str) -> None:
        """Stop the countdown to a gang abort."""
        del job_id

    def watch(self, job_id: str, ranks: Iterable[int], backlog: int | None = None) -> None:
        """Fetch the full output of these ranks from now on, and `backlog` bytes of earlier output.

        Each call replaces the one before. All other ranks send only their last line.
        """
        del job_id, ranks, backlog

    def output(self, job_id: str, rank: int) -> OutputProtocol:
        """The output of one rank, by byte offset."""
        raise _not_yet(job_id, rank)


OpenSession = Callable[[], AbstractAsyncContextManager[SessionProtocol]]


class Opening(SessionProtocol):
    """Stands in for the session until it is open."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._fleet, self._switches = cluster, Fleet(cluster), Switches(cluster)
        self._jobs: Jobs | None = None
        self._messages = Messages()

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    @property
    def fleet(self) -> Fleet:
        return self._fleet

    @property
    def switches(self) -> Switches:
        return self._switches

    @property
    def messages(self) -> Messages:
        return self._messages

    @property
    def jobs(self) -> Jobs:
        if self._jobs is None:
            # Imported only if a screen asks before the session is open.
            from rankdeck.state.jobs import Jobs

            self._jobs = Jobs()
        return self._jobs


def _not_yet(what: object, *_: object) -> LaunchError:
    return LaunchError("plan", f"{what}: the cluster is still being opened; try again in a moment")


def _loaded(module: str) -> Any:  # noqa: ANN401 - a module
    """Import `module`, and what the first message from a node needs, so that no key waits for these imports later."""
    for name in ("rankdeck.rules.nodes", "rankdeck.state.judgement"):
        import_module(name)
    return import_module(module)


@asynccontextmanager
async def open_session(cluster: Cluster) -> AsyncGenerator[SessionProtocol]:
    """Open the cluster; `rankdeck.session` is imported only now, after the first picture."""
    real = await asyncio.to_thread(_loaded, "rankdeck.session")
    async with real.open_session(cluster) as session:
        yield session


@asynccontextmanager
async def open_simulated(cluster: Cluster) -> AsyncGenerator[SessionProtocol]:
    """The same for a simulated fleet, whose nodes have no SSH; see `demo/fleet.py`."""
    demo = await asyncio.to_thread(_loaded, "rankdeck.demo.fleet")
    async with demo.open_fleet(cluster) as session:
        yield session


class Theme(Protocol):
    """How things are drawn: all that a widget needs to know about the app."""

    palette: Palette
    glyphs: Glyphs
    ascii: bool
    """Draw with ASCII only."""


class Console(Theme, Protocol):
    """What screens may use of the app."""

    session: SessionProtocol
    opened: bool
    """Whether `session` is the real session, not its stand-in."""
    trouble: str
    """Why the session failed; "" if it has not."""
    palettes: dict[str, Palette]
    """Name -> theme."""
    summary: Counter[Level]
    """How many nodes are at each level."""
    moment: float | None
    """The time that the fleet and node screens show, in epoch seconds; None: now."""
    views_file: Path
    """The file of the saved fleet views."""
    tour: Tour
    """The tour of the demo."""
    first_job: str
    """The job to open first; "" for none."""
    first_replay: float
    """The speed of the replay of `first_job`; 0: no replay."""

    @property
    def top_screen(self) -> Screen[None] | None:
        """The topmost screen that is not a dialog."""
        ...

    @property
    def at_home(self) -> bool:
        """Whether a main screen is shown, with nothing on top of it."""
        ...

    def say(self, text: str, role: str = "text") -> None:
        """Show a sentence in the last line, in the colour of `role`."""
        ...

    def ask(self, question: Screen[bool], act: Callable[[], None]) -> None:
        """Ask a question, and call `act` if the answer is yes."""
        ...

    def copy(self, text: str, what: str) -> None:
        """Copy `text` to the clipboard and say that `what` was copied."""
        ...

    def show_whole(self, title: str, lines: Sequence[Sequence[tuple[str, str]]]) -> None:
        """Show the full text of what is under the cursor, on top of the screen."""
        ...

    def goto(self, name: str) -> None:
        """Show the main screen of that name, with nothing on top of it."""
        ...

    def home(self, name: str) -> Screen[None]:
        """The main screen of that name; made on first use."""
        ...

    def open_node(self, name: str, at: float | None = None) -> None:
        """Show a node; with `at` (epoch seconds), mark what happened there around that time."""
        ...

    def open_job(self, job_id: str) -> None:
        """Show a job; for a saved replay, start it again."""
        ...

    def run_command(self, text: str) -> None:
        """Carry out the command that was typed after `:`."""
        ...

    def choices(self, argument: str) -> list[str]:
        """The possible values of this argument of a command, for completion."""
        ...

    def choose_theme(self, name: str) -> None:
        """Change the colours to the theme of that name, which must be in `palettes`."""
        ...

    def set_alphabet(self, *, ascii_only: bool) -> None:
        """Draw with ASCII only, or with all signs; call `paint_anew` afterwards."""
        ...

    def paint_anew(self) -> None:
        """Repaint everything."""
        ...

    def use_mouse(self, *, on: bool) -> None:
        """Take the mouse, or leave it to the terminal so that the user can select text."""
        ...

    async def lend_terminal(self, argv: Sequence[str], note: str) -> int:
        """Give the terminal to another program until it ends; returns its exit status."""
        ...

    def catch_up(self) -> None:
        """Count the levels of nodes that changed since the last call, and tell the session which nodes are on screen."""
        ...

    def action_help(self) -> None:
        """Show the help, beginning with the present screen."""
        ...

    def leave(self) -> None:
        """End the console."""
        ...

    # ---- of textual.app.App

    def push_screen(
        self, screen: Screen[Any], callback: Callable[[Any], None] | None = None
    ) -> object: ...

    def pop_screen(self) -> object: ...

    def run_worker(
        self,
        work: Awaitable[None],
        name: str = "",
        group: str = "default",
        *,
        exclusive: bool = False,
    ) -> object: ...

    def call_after_refresh(self, callback: Callable[..., Any], *args: Any) -> bool: ...  # noqa: ANN401 - as Textual's
