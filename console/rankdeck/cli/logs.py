"""`rankdeck logs`: print the output of ranks as it comes, or collapsed, merged or compared."""

import argparse
import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from rankdeck.backends.node_stream import STREAMS
from rankdeck.cli import choose, output
from rankdeck.cli.opening import find_meant_job, hear_nodes, open_for_command, until_done
from rankdeck.logs.collapse import SLICE, Collapse, Folded, fold_groups
from rankdeck.logs.compare import (
    Branch,
    Comparison,
    Difference,
    Divergence,
    compare_ranks,
    finish_steps,
    group_branches,
)
from rankdeck.logs.merged_log import MergedLog
from rankdeck.logs.rank_choice import choose_ranks
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import Job
from rankdeck.model.job_events import Lost, NodeEvent, NotStarted
from rankdeck.model.nodeset import fold_nodes, fold_ranks
from rankdeck.model.plan import UNTAGGED_WAIT
from rankdeck.model.rank import State
from rankdeck.model.rank_output import Chunk, Followed
from rankdeck.model.safe_text import strip_controls
from rankdeck.rules.job_news import abort_countdown, news_between
from rankdeck.session import Session
from rankdeck.state.kept_lines import SHOWN, Block, Entry
from rankdeck.state.lines import Line, RankLog, line_of
from rankdeck.values import replace
from rankdeck_agent.wire import LAUNCHER
from rankdeck_agent.wire.job_events import RankStarted

PERIOD = 0.02
MOST_UNPRINTED = 1000
TELL_LIMIT = 1.5
"""Seconds after which every node has sent the size of its output, which it does twice a second."""
READ_LIMIT = 600.0
NOT_SHOWN = "output that it has not sent is missing here"
REMOVED = (
    "is gone (`rankdeck clean` or somebody removed it, or its file system is not mounted):"
    " what its ranks wrote there cannot be shown"
)

CUT_LINES = f"its lines of more than {SHOWN:,} characters are cut here and end with `…`: the log on the node has them whole"

Print = Callable[[str, Line], None]
"""Prints a line of a rank, with its node."""


class Show(NamedTuple):
    """How lines are printed."""

    line: Print
    plain: Callable[[int, bytes], None] | None = None
    """Prints plain lines of a rank as they came, each with its line end; None: `line` prints
    these, too.
    """


class Printer:
    """Prints each line of some ranks of a job once, in the order in which it was written."""

    def __init__(
        self,
        session: Session,
        job: Job,
        ranks: Sequence[int],
        show: Show,
        wanted: Callable[[Line], bool] = lambda _: True,
    ) -> None:
        """`wanted`: which lines are printed; with `show.plain`, all are."""
        self._logs: dict[int, RankLog] = {rank: session.jobs.log(job.id, rank) for rank in ranks}
        self._session, self._job = session, job.id
        self._nodes = _places(job)
        self._seen = dict.fromkeys(ranks, 0)
        self._show, self._wanted = show, wanted
        self._said_lost: set[str] = set()
        self._said_cut: set[int] = set()
        """Ranks with a line that was cut, which is said once."""
        self._gone: set[str] = set()
        """Nodes that do not know the job."""
        session.following.listen(job.id, self._hear)

    def drain(self) -> None:
        """Print what has come since the last call; raises
        BrokenPipeError if stdout is not read any more.
        """
        output.require_reader()
        fresh = [(_at(piece), rank, piece) for rank in self._logs for piece in self._take(rank)]
        for _, rank, piece in sorted(fresh, key=itemgetter(0)):
            self._print_piece(rank, piece)
        if fresh:
            output.flush_stdout()

    def _hear(self, event: Followed) -> None:
        """Note the nodes of ranks and nodes that are lost, and print
        before a full log drops lines.
        """
        if isinstance(event, NodeEvent) and isinstance(event.body, RankStarted):
            self._nodes = _places(self._session.jobs.job(self._job))
        if isinstance(event, NodeEvent) and isinstance(event.body, Lost):
            self._say_lost(event.node, event.body)
        if isinstance(event, NodeEvent) and isinstance(event.body, NotStarted):
            self._gone.add(event.node)
        if isinstance(event, Chunk) and event.rank in self._logs:
            log = self._logs[event.rank]
            # Printed at a quarter of the limit, so that the next chunk drops only printed lines.
            most = min(MOST_UNPRINTED, log.held // 4)
            if log.total - self._seen[event.rank] > most:
                self.drain()

    def _say_lost(self, node: str, lost: Lost) -> None:
        """Report a node of an ended job that does not answer, so that its output is missing."""
        if self._session.jobs.job(self._job).state.final:
            text = strip_controls(lost.sentence)[:300]
            output.print_progress(f"{node}: {text}; {NOT_SHOWN}")
            self._said_lost.add(node)

    def finish(self) -> None:
        """Print all that is left, including unfinished lines, and name
        the nodes that did not send theirs.
        """
        self.drain()
        for log in self._logs.values():
            if log.partial is not None:
                self._print(log.partial)
        output.flush_stdout()
        silent = self._session.jobs.unreported(self._job) - self._said_lost
        if silent:
            output.print_progress(f"{fold_nodes(sorted(silent))}: does not answer; {NOT_SHOWN}")
        ran = self._session.jobs.job(self._job).began is not None
        if self._gone and ran:
            nodes = fold_nodes(sorted(self._gone))
            output.print_progress(f"{self._job}: its run folder on {nodes} {REMOVED}")

    def ends(self) -> dict[int, dict[str, int]]:
        """Rank -> stream -> bytes on the node, as far as the nodes have reported."""
        return {rank: log.read.ends() for rank, log in self._logs.items()}

    def has_read(self, ends: dict[int, dict[str, int]]) -> bool:
        """Whether all output up to these ends has arrived."""
        return all(log.read.has(ends[rank]) for rank, log in self._logs.items())

    def _take(self, rank: int) -> Sequence[Entry | Block]:
        log = self._logs[rank]
        missed, pieces = log.unread(self._seen[rank])
        self._seen[rank] = log.total
        if missed:
            output.print_progress(
                f"rank {rank}: {missed} lines came faster than they could be printed; "
                "the whole log is on the node"
            )
        return pieces

    def _print_piece(self, rank: int, piece: Entry | Block) -> None:
        if not isinstance(piece, Block):
            self._print(line_of(rank, piece))
        elif self._show.plain and rank != LAUNCHER and _is_passed_on(piece.data):
            self._show.plain(rank, piece.data)
        else:
            for entry in piece.entries():
                self._print(line_of(rank, entry))

    def _print(self, line: Line) -> None:
        if not self._wanted(line):
            return
        self._show.line(self._nodes.get(line.rank, ""), line)
        if line.cut and line.rank not in self._said_cut:
            self._said_cut.add(line.rank)
            who = "launcher" if line.rank == LAUNCHER else f"rank {line.rank}"
            output.print_progress(f"{who}: {CUT_LINES}")


def _at(piece: Entry | Block) -> float:
    return piece.at if isinstance(piece, Block) else piece[0]


def _is_passed_on(lines: bytes) -> bool:
    """Whether these lines need no change, also none of their length."""
    return output.is_plain(lines) and not _has_long_line(lines)


def _has_long_line(lines: bytes) -> bool:
    """Whether one of these lines, each with its line end, is not shown whole."""
    begin = 0
    while len(lines) - begin > SHOWN:
        end = lines.rfind(b"\n", begin, begin + SHOWN + 1)
        if end < 0:
            return True
        begin = end + 1
    return False


def _places(job: Job) -> dict[int, str]:
    """The node of each rank, and of the launcher."""
    first = job.plan.nodes[0].node
    return {LAUNCHER: first} | {rank.rank: rank.node for rank in job.ranks}


def show_text(_node: str, line: Line) -> None:
    """Print `[rank] text`, for people."""
    who = "launcher" if line.rank == LAUNCHER else line.rank
    output.say_line(f"[{who}] ", line.text)


def show_plain_text(rank: int, lines: bytes) -> None:
    """Print many lines of a rank as `show_text` does."""
    output.say_plain_lines(f"[{rank}] ", lines)


def show_object(node: str, line: Line) -> None:
    """Print each line as a JSON object, for programs; `offset` is that of
    its first byte in the file on the node.
    """
    output.say_object(
        {
            "rank": None if line.rank == LAUNCHER else line.rank,
            "node": node,
            "stream": line.stream,
            "at": line.at,
            "offset": line.offset,
            "text": strip_controls(line.text),
            "cut": line.cut,
        }
    )


def show_nothing(_node: str, _line: Line) -> None:
    """Print nothing, if the only output is the result."""


SHOW_TEXT, SHOW_NOTHING = Show(show_text, show_plain_text), Show(show_nothing)


class LauncherLines:
    """The launcher's lines of a job in whose output ranks may not be marked:
    shown if no rank can be told apart, else not.

    mpirun marks ranks only with `--tag-output`; a job that somebody else started may be without.
    """

    def __init__(self, job: Job, show: Print) -> None:
        self._show, self._waits = show, job.plan.untagged
        self._held: list[tuple[str, Line]] = []
        self._since: float | None = None
        """When the first line was held back (monotonic seconds); None while none is."""

    def ranks(self, asked: Sequence[int]) -> list[int]:
        """The ranks to read for these."""
        return [*asked, LAUNCHER] if self._waits else list(asked)

    def show(self, node: str, line: Line) -> None:
        """Take one line of a rank or the launcher."""
        if line.rank != LAUNCHER:
            self._waits = False
            self._held.clear()
            self._show(node, line)
        elif self._waits:
            self._held.append((node, line))
            self._since = self._since or time.monotonic()
            self.look()

    def show_plain(self, rank: int, lines: bytes) -> None:
        """Take many plain lines of a rank, for people."""
        self._waits = False
        self._held.clear()
        show_plain_text(rank, lines)

    def look(self) -> None:
        """Show what is held back if no rank has spoken for UNTAGGED_WAIT seconds."""
        if self._since is not None and time.monotonic() - self._since > UNTAGGED_WAIT:
            self.finish()

    def before(self, then: Callable[[], None]) -> Callable[[], None]:
        """A function that looks, and then calls `then`."""

        def look() -> None:
            self.look()
            then()

        return look

    def finish(self) -> None:
        """Show what is held back, as no rank spoke."""
        for node, line in self._held if self._waits else ():
            self._show(node, line)
        self._held.clear()


async def print_until_finished(
    session: Session, job_id: str, printer: Printer, look: Callable[[], None] = lambda: None
) -> Job:
    """Print until the job has ended and everything about it is
    known; `look` is called regularly.
    """
    async with asyncio.TaskGroup() as tasks:
        finished = tasks.create_task(session.following.finished(job_id))
        while not finished.done():
            printer.drain()
            look()
            await asyncio.sleep(PERIOD)
    printer.finish()
    return finished.result()


async def print_what_there_is(session: Session, job_id: str, printer: Printer) -> None:
    """Print what has been written up to now, then return."""
    await hear_nodes(session)
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
        output.print_progress(f"{fold_nodes(sorted(lost))}: does not answer; {NOT_SHOWN}")


NEWS_PERIOD = 0.25
"""Seconds between two looks at the job: a snapshot of a large job costs more than a line."""
STOPS = "; Ctrl-C stops them now, twice leaves them running"


class News:
    """Prints each event of a job once, including earlier events."""

    def __init__(self, session: Session, job_id: str, *, may_cancel: bool) -> None:
        self._session, self._job = session, job_id
        self._hint = STOPS if may_cancel else ""
        job = session.jobs.job(job_id)
        self._before = replace(
            job, first_failure=None, countdown=None, stalled=(), notes=(), mute={}, proofs={}
        )
        self._due = 0.0

    def finish(self) -> None:
        """Print what the summary of an ended job leaves out."""
        self._due = 0.0
        self.look()

    def look(self) -> None:
        """Print what is new since the last look; for a job that is over only that
        it was stopped, as its summary follows.
        """
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + NEWS_PERIOD
        job = self._session.jobs.job(self._job)
        if job is self._before:
            return
        over = job.state.final and not job.output_coming
        now = time.time()
        of_the_abort = tuple(abort_countdown(self._before, job, now))
        lines = of_the_abort if over else news_between(self._before, job, now)
        begins = job.countdown and not self._before.countdown
        for line in lines:
            output.print_progress(line + (self._hint if begins and line in of_the_abort else ""))
        self._before = job


MOST = 1_000_000
"""Most lines that are merged; if there are more, the newest."""
Shape = dict[str, object]


class OutputReader:
    """Reads all output of some ranks, each line once, even if a log cannot hold all lines."""

    def __init__(
        self, session: Session, job: Job, ranks: Sequence[int], wanted: Callable[[Line], bool]
    ) -> None:
        self._session, self._job, self._ranks, self._wanted = session, job, ranks, wanted
        self.logs: Mapping[int, RankLog] = {rank: session.jobs.log(job.id, rank) for rank in ranks}

    async def read_together(self, take: Callable[[int, Sequence[Entry]], None]) -> None:
        """Call `take` with a rank and lines of it, as `read` does with each line."""
        gathered = _Gathered(take)
        await self.read(gathered.add)
        gathered.finish()

    async def read(
        self, show: Print, *, follow: bool = False, look: Callable[[], None] = lambda: None
    ) -> None:
        """Call `show` with each line: all that is there now; all of its output
        if it has ended, or with `follow`.
        """
        session, job = self._session, self._job
        session.following.watch(job.id, self._ranks, None)
        printer = Printer(session, job, self._ranks, Show(show), self._wanted)
        if follow or job.state.final:
            await print_until_finished(session, job.id, printer, look)
        else:
            await print_what_there_is(session, job.id, printer)


class _Gathered:
    """Passes on lines that follow each other in one rank together, at most SLICE."""

    def __init__(self, take: Callable[[int, Sequence[Entry]], None]) -> None:
        self._take = take
        self._rank, self._entries = LAUNCHER, list[Entry]()

    def add(self, _node: str, line: Line) -> None:
        """Take one line."""
        if line.rank != self._rank or len(self._entries) >= SLICE:
            self.finish()
            self._rank = line.rank
        text = line.text.encode("utf-8", "replace")
        self._entries.append((line.at, line.stream, line.offset, text))

    def finish(self) -> None:
        """Pass on what is left."""
        if self._entries:
            self._take(self._rank, self._entries)
            self._entries = []


async def print_collapsed(reader: OutputReader, *, as_json: bool) -> None:
    """Print equal lines once, with the ranks that wrote them; lines
    that few ranks wrote come first.
    """
    collapse = Collapse(reader.logs)
    await reader.read_together(collapse.add_lines)
    if silent := collapse.silent():
        output.print_progress(f"nothing was written by {fold_ranks(silent)}")
    for row in fold_groups(collapse):
        if as_json:
            output.say_object(folded_shape(row))
        else:
            _say_row(row)


def _say_row(row: Folded) -> None:
    output.say_line(f"{row.who} ", row.text)
    if row.missing:
        output.print_text(f"    missing: {fold_ranks(row.missing)}")
    for one in row.outliers[:5]:
        output.print_text(f"    rank {one.rank}: {one.value:g}, median {one.median:g}")


def folded_shape(row: Folded) -> Shape:
    """`logs --collapse --json`."""
    return {
        "ranks": fold_ranks(row.group.counts),
        "missing": fold_ranks(row.missing),
        "lines": row.group.lines,
        "stream": row.group.stream,
        "at": row.group.at,
        "text": row.text,
        "outliers": [{"rank": o.rank, "value": o.value, "median": o.median} for o in row.outliers],
    }


async def print_merged(reader: OutputReader, *, as_json: bool) -> None:
    """Print all lines in order of time; a line that several ranks
    wrote at one time is printed once.
    """
    kept: deque[Line] = deque(maxlen=MOST)
    await reader.read(lambda _, line: kept.append(line))
    if len(kept) == MOST:
        output.print_progress(f"only the newest {MOST:,} lines are merged")
    merged = MergedLog({}, keep=MOST)
    merged.add(_in_time(kept))
    for line in merged.lines:
        ranks = fold_ranks(line.counts or (line.rank,))
        if as_json:
            text = strip_controls(line.text)
            output.say_object({"ranks": ranks, "at": line.at, "stream": line.stream, "text": text})
        else:
            output.say_line(f"[{ranks}] ", line.text)


def _in_time(lines: Sequence[Line]) -> list[Line]:
    latest: dict[int, float] = {}
    keyed: list[tuple[float, Line]] = []
    for line in lines:
        latest[line.rank] = max(latest.get(line.rank, 0.0), line.at)
        keyed.append((latest[line.rank], line))
    keyed.sort(key=itemgetter(0))
    return [line for _, line in keyed]


async def print_difference(reader: OutputReader, job: Job, which: str, *, as_json: bool) -> None:
    """Print two ranks side by side, or all ranks by the line where they leave the majority."""
    pair = tuple(_ranks(job, which, "--diff")) if which else (-1, -1)
    if len(pair) != 2:
        raise output.UsageError(f"--diff {which}: name two ranks, such as 3,17")
    if which and not reader.logs.keys() >= {*pair}:
        raise output.UsageError(f"--diff {which}: --rank leaves out one of them")
    comparison = Comparison(tuple(reader.logs))
    await reader.read_together(comparison.add_lines)
    if comparison.full:
        output.print_progress(f"only the first {comparison.most:,} lines of each are compared")
    if not which:
        _, found = finish_steps(group_branches(comparison.sides))
        for branch in found:
            output.say_object(branch_shape(branch)) if as_json else _say_branch(branch)
        return
    left, right = pair
    difference = finish_steps(compare_ranks(comparison.sides[left], comparison.sides[right]))
    if as_json:
        output.say_object(difference_shape(difference))
    else:
        _say_difference(difference)


def _say_branch(branch: Branch) -> None:
    ranks = fold_ranks(branch.ranks)
    if branch.first is None:
        output.print_text(f"[{ranks}] like the majority")
        return
    first = branch.first
    output.print_text(f"[{ranks}] differ after {first.place} lines of {first.stream}")
    _say_sides(first, "these", "most")


def _say_sides(first: Divergence, left: str, right: str) -> None:
    width = max(len(left), len(right))
    for name, line in ((left, first.left), (right, first.right)):
        output.say_line(f"    {name:<{width}} | ", "(nothing more)" if line is None else line.text)


def _say_difference(found: Difference) -> None:
    left, right = f"rank {found.left}", f"rank {found.right}"
    if found.first is None:
        output.print_text(f"{left} and {right} wrote the same, but for numbers")
    else:
        output.print_text(f"the same for {found.first.place} lines of {found.first.stream}, then:")
        _say_sides(found.first, left, right)
    for name, lines in ((left, found.only_left), (right, found.only_right)):
        for line in lines:
            output.say_line(f"only {name} | ", line.text)


def branch_shape(branch: Branch) -> Shape:
    """`logs --diff --json`."""
    return {"ranks": fold_ranks(branch.ranks), "first": _first_shape(branch.first)}


def difference_shape(found: Difference) -> Shape:
    """`logs --diff A,B --json`."""
    return {
        "left": found.left,
        "right": found.right,
        "first": _first_shape(found.first),
        "only_left": [strip_controls(line.text) for line in found.only_left],
        "only_right": [strip_controls(line.text) for line in found.only_right],
    }


def _first_shape(first: Divergence | None) -> Shape | None:
    if first is None:
        return None
    sides = (
        None if line is None else strip_controls(line.text) for line in (first.left, first.right)
    )
    left, right = sides
    return {"stream": first.stream, "same_lines": first.place, "left": left, "right": right}


def run_logs(options: argparse.Namespace, _open_console: object) -> int:
    """Print the output of a job from the beginning."""
    return until_done(_logs(choose.choose_cluster(options.cluster), options))


async def _logs(cluster: Cluster, options: argparse.Namespace) -> int:
    view = _view(options)
    async with open_for_command(cluster) as session:
        await hear_nodes(session)
        job = await find_meant_job(session, options.job)
        ranks = [LAUNCHER] if options.launcher else _ranks(job, options.rank)
        wanted = await _wanted(session, job, options)
        if view:
            await _VIEWS[view](OutputReader(session, job, ranks, wanted), job, options)
            return output.OK
        show = show_object if options.json else show_text
        if not options.launcher and not options.rank:
            held = LauncherLines(job, show)
            reader = OutputReader(session, job, held.ranks(ranks), wanted)
            await reader.read(held.show, follow=options.follow, look=held.look)
            held.finish()
        else:
            reader = OutputReader(session, job, ranks, wanted)
            await reader.read(show, follow=options.follow)
    return output.OK


async def _wanted(
    session: Session, job: Job, options: argparse.Namespace
) -> Callable[[Line], bool]:
    """A filter for the lines that the options select: of a stream, of one run."""
    streams = (options.stream,) if options.stream else STREAMS
    if options.attempt is None:
        return lambda line: line.stream in streams
    if not job.plan.can.requeues:
        raise output.UsageError(f"--attempt: {job.id} has one run; nothing here queues jobs again")
    run = await session.control.find_run(job.id, options.attempt)
    return lambda line: line.stream in streams and run.has(line.rank, line.stream, line.offset)


def _view(options: argparse.Namespace) -> str:
    """The view that the options select; "" for none. Views exclude each other and `--follow`."""
    asked = [name for name in _VIEWS if getattr(options, name) not in (False, None)]
    if options.launcher and (asked or options.rank):
        raise output.UsageError("--launcher goes with --follow and --stream only")
    if len(asked) > 1 or (asked and options.follow):
        names = " and ".join(
            f"--{name}" for name in [*asked, *(["follow"] if options.follow else [])]
        )
        raise output.UsageError(f"{names} do not go together")
    return asked[0] if asked else ""


_VIEWS: Mapping[str, Callable[[OutputReader, Job, argparse.Namespace], Awaitable[None]]] = {
    "collapse": lambda reader, _, o: print_collapsed(reader, as_json=o.json),
    "merge": lambda reader, _, o: print_merged(reader, as_json=o.json),
    "diff": lambda reader, job, o: print_difference(reader, job, o.diff, as_json=o.json),
}


def _ranks(job: Job, text: str, option: str = "--rank") -> Sequence[int]:
    """The ranks that an option names; all if it names none."""
    try:
        return choose_ranks(text, job.ranks)
    except ValueError as error:
        raise output.UsageError(f"{option} {text}: {error}") from error
