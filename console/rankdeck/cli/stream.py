"""What the ranks of one job write, printed as it comes."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter

from rankdeck.cli import output
from rankdeck.model.job import Chunk, Followed, Job, NodeEvent, State
from rankdeck.model.nodeset import fold
from rankdeck.model.text import strip_controls
from rankdeck.rules.job_news import countdown, news_between
from rankdeck.session import Session
from rankdeck.state.lines import Line, RankLog
from rankdeck_agent.wire import LAUNCHER

PERIOD = 0.02
MOST_UNPRINTED = 1000
TELL_LIMIT = 1.5
"""Seconds after which every node has said how much there is: it tells twice a second."""
READ_LIMIT = 600.0
NOT_SHOWN = "output that it has not sent is missing here"

Print = Callable[[str, Line], None]


class Printer:
    """Prints each line of some ranks of a job once, in the order they were written."""

    def __init__(
        self,
        session: Session,
        job: Job,
        ranks: Sequence[int],
        show: Print,
        wanted: Callable[[Line], bool] = lambda _: True,
    ) -> None:
        self._logs: dict[int, RankLog] = {rank: session.jobs.log(job.id, rank) for rank in ranks}
        self._session, self._job = session, job.id
        self._nodes = _places(job)
        self._seen = dict.fromkeys(ranks, 0)
        self._show, self._wanted = show, wanted
        self._said_lost: set[str] = set()
        session.following.listen(job.id, self._hear)

    def drain(self) -> None:
        """Print what has come since the last time; raises BrokenPipeError where nobody reads."""
        output.require_reader()
        fresh = [line for rank in self._logs for line in self._take(rank)]
        for line in sorted(fresh, key=attrgetter("at")):
            self._print(line)
        if fresh:
            output.flush()

    def _hear(self, event: Followed) -> None:
        """Print before a log that holds only so much lets go of lines; learn where ranks are."""
        if isinstance(event, NodeEvent) and event.kind == "started":
            self._nodes = _places(self._session.jobs.job(self._job))
        if isinstance(event, NodeEvent) and event.kind == "lost":
            self._say_lost(event)
        if isinstance(event, Chunk) and event.rank in self._logs:
            log = self._logs[event.rank]
            # A quarter of what is kept: the next chunk lets go of no more than the rest.
            most = min(MOST_UNPRINTED, len(log.lines) // 4)
            if log.total - self._seen[event.rank] > most:
                self.drain()

    def _say_lost(self, event: NodeEvent) -> None:
        """Of a job that is over only its output is missed, which nobody else says."""
        if self._session.jobs.job(self._job).state.final:
            text = strip_controls(str(event.fields.get("text", "")))[:300]
            output.progress(f"{event.node}: {text}; {NOT_SHOWN}")
            self._said_lost.add(event.node)

    def finish(self) -> None:
        """Print all that is left, lines without an end too, and name the nodes that did not send theirs."""
        self.drain()
        for log in self._logs.values():
            if log.partial is not None:
                self._print(log.partial)
        output.flush()
        silent = self._session.jobs.unreported(self._job) - self._said_lost
        if silent:
            output.progress(f"{fold(sorted(silent))}: does not answer; {NOT_SHOWN}")

    def ends(self) -> dict[int, dict[str, int]]:
        """How much there is on the nodes, per rank and stream, as far as they have told."""
        return {rank: log.read.ends() for rank, log in self._logs.items()}

    def has_read(self, ends: dict[int, dict[str, int]]) -> bool:
        """Whether everything up to these ends has come."""
        return all(log.read.has(ends[rank]) for rank, log in self._logs.items())

    def _take(self, rank: int) -> Sequence[Line]:
        log = self._logs[rank]
        seen, self._seen[rank] = self._seen[rank], log.total
        if log.first > seen:
            output.progress(
                f"rank {rank}: {log.first - seen} lines came faster than they could be printed; "
                "the whole log is on the node"
            )
        return log.lines[max(0, seen - log.first) :]

    def _print(self, line: Line) -> None:
        if self._wanted(line):
            self._show(self._nodes.get(line.rank, ""), line)


def _places(job: Job) -> dict[int, str]:
    """The node of each rank, and of the launcher."""
    first = job.plan.nodes[0].node
    return {LAUNCHER: first} | {rank.rank: rank.node for rank in job.ranks}


def show_text(_node: str, line: Line) -> None:
    """`[rank] text`, for people."""
    who = "launcher" if line.rank == LAUNCHER else line.rank
    output.say_line(f"[{who}] ", line.text)


def show_object(node: str, line: Line) -> None:
    """One JSON object a line, for programs."""
    output.say_object(line_shape(node, line))


def show_nothing(_node: str, _line: Line) -> None:
    """Where the only output is the result."""


def line_shape(node: str, line: Line) -> dict[str, object]:
    """`logs --json`; `offset` is that of the line's first byte in the file on the node."""
    return {
        "rank": None if line.rank == LAUNCHER else line.rank,
        "node": node,
        "stream": line.stream,
        "at": line.at,
        "offset": line.offset,
        "text": strip_controls(line.text),
    }


async def print_until_finished(
    session: Session,
    job_id: str,
    printer: Printer,
    look: Callable[[], None] = lambda: None,
) -> Job:
    """Print until everything about the job is known; `look` is called again and again."""
    async with asyncio.TaskGroup() as tasks:
        finished = tasks.create_task(session.following.finished(job_id))
        while not finished.done():
            printer.drain()
            look()
            await asyncio.sleep(PERIOD)
    printer.finish()
    return finished.result()


async def print_what_there_is(session: Session, job_id: str, printer: Printer) -> None:
    """Print what has been written up to now, then come back."""
    await session.following.caught_up()
    clock = asyncio.get_running_loop().time
    begin, ends = clock(), printer.ends()
    while clock() - begin < READ_LIMIT:
        printer.drain()
        if clock() - begin < TELL_LIMIT:
            ends = printer.ends()
        elif printer.has_read(ends):
            break
        await asyncio.sleep(PERIOD)
    printer.finish()
    lost = {rank.node for rank in session.jobs.job(job_id).ranks if rank.state is State.LOST}
    if lost:
        output.progress(f"{fold(sorted(lost))}: does not answer; {NOT_SHOWN}")


NEWS_PERIOD = 0.25
"""Seconds between two looks: a snapshot of a large job costs more than a line."""
STOPS = "; Ctrl-C stops them now, twice leaves them running"


class News:
    """Tells each thing once, also what had happened before it was made."""

    def __init__(self, session: Session, job_id: str, *, may_cancel: bool) -> None:
        self._session, self._job = session, job_id
        self._hint = STOPS if may_cancel else ""
        job = session.jobs.job(job_id)
        self._told = replace(job, first_failure=None, countdown=None, stalled=(), troubles=())
        self._due = 0.0

    def finish(self) -> None:
        """Say what the summary of a job that has ended leaves out."""
        self._due = 0.0
        self.look()

    def look(self) -> None:
        """Say what is new since the last look; of a job that is over only that it was stopped: its summary comes."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + NEWS_PERIOD
        job = self._session.jobs.job(self._job)
        if job is self._told:
            return
        over = job.state.final and not job.output_coming
        news = countdown if over else news_between
        for line in news(self._told, job, time.time()):
            begins = job.countdown and not self._told.countdown
            hint = self._hint if begins and line.startswith("stopping") else ""
            output.progress(line + hint)
        self._told = job
