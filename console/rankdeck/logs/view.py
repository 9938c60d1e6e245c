"""The log that a view shows: choice and order of ranks; lines merged by time,
equal ones folded; search and filters.
"""

import heapq
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, time, timedelta
from itertools import islice
from operator import itemgetter
from typing import Protocol

from msgspec import field

from rankdeck.logs.bars import BarGroup, group_bars
from rankdeck.logs.compare import mask_numbers
from rankdeck.model.health import Occurrence, parse_duration, with_device
from rankdeck.model.job import Job, RankState, State
from rankdeck.model.nodeset import expand_nodes, expand_ranks, fold_ranks
from rankdeck.model.patterns import compile_pattern, search_pattern
from rankdeck.model.queue import LogRun
from rankdeck.model.rank import WORST, RankStatus
from rankdeck.model.safe_text import printable_line
from rankdeck.state.lines import Gap, Line, RankLog
from rankdeck.values import Value


class Source(Protocol):
    """A log that can be shown: that of one rank, or a merged or filtered one."""

    @property
    def lines(self) -> Sequence[Line]: ...
    @property
    def total(self) -> int:
        """The number of the newest line plus 1."""
        ...

    @property
    def first(self) -> int:
        """The number of `lines[0]`."""
        ...

    @property
    def begun(self) -> Sequence[Line]:
        """What stands below the lines: progress bars, or the newest line without an end yet."""
        ...

    @property
    def gaps(self) -> Sequence[Gap]:
        """Gaps: output that is missing here and that the node still has."""
        ...


class TextMatch:
    """A text or regular expression to search for; with upper case in
    it, the search is case-sensitive.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.exact = text != text.lower()
        pattern = search_pattern(text)
        self._pattern = compile_pattern(pattern) if pattern else None

    def spans(self, shown: str) -> list[tuple[int, int]]:
        """(start, end) of each match in this line, in characters, end exclusive."""
        if self._pattern is not None:
            return self._pattern.spans(shown)
        where = shown if self.exact else shown.lower()
        found: list[tuple[int, int]] = []
        at = where.find(self.text)
        while at >= 0 and self.text:
            found.append((at, at + len(self.text)))
            at = where.find(self.text, at + len(self.text))
        return found

    def within(self, shown: str) -> bool:
        """Whether it matches anywhere in this line."""
        if self._pattern is not None:
            return self._pattern.within(shown)
        return self.text in (shown if self.exact else shown.lower())


KEEP = 20_000
SLICE = 1_000
"""Lines processed in one step: some milliseconds."""
FOLD_WITHIN = 2.0
"""Seconds between equal lines that are shown as one."""
EVENT = -2
"""Rank number of lines that are events of a node."""
MOST_BARS = 4
"""Most progress bars below the merged lines."""
GAP = "gap"
NODE = "node"
"""Extra streams: lines that mark missing output, and events of nodes."""

Events = Callable[[], Iterable[Occurrence]]
"""Returns all events to show, in any order; called at every update."""


class MergedLine(Line):
    """A line of a merged log, which carries the ranks that wrote it, also
    where the log is filtered or saved.
    """

    counts: dict[int, int] = field(default_factory=dict[int, int])
    """Rank -> how often it wrote this line, as it grows; {} while
    it is a single line of one rank.
    """


class MergedLog:
    """The lines of several ranks in order of time; a line that arrives late is added at the end.

    `events` gives node events to include; with `fold`, equal lines of ranks are
    shown as one; `keep` is the most lines.
    """

    gaps: tuple[Gap, ...] = ()

    def __init__(
        self,
        logs: Mapping[int, RankLog],
        events: Events = tuple,
        *,
        fold: bool = True,
        keep: int = KEEP,
    ) -> None:
        self._logs, self._events, self._fold, self._keep = (dict(logs), events, fold, keep)
        share = self._share
        self._seen = {rank: max(log.first, log.total - share) for rank, log in logs.items()}
        self._latest = dict.fromkeys(self._logs, 0.0)
        """Rank -> time of its newest line here; its later lines get at least this time."""
        self.late = any(self._seen.values())
        """Whether there are earlier lines that were left out at the start."""
        self._events_shown: frozenset[Occurrence] = frozenset()
        self._events_waiting: list[tuple[float, Line]] = []
        self.lines: list[MergedLine] = []
        self.total = 0
        self.changes = 0
        """Grows with every visible change."""
        self._newest: dict[str, int] = {}
        """Text -> number of the newest line with it."""
        self._last_of: dict[int, int] = {}
        """Rank -> number of its newest line."""

    @property
    def _share(self) -> int:
        """Lines per rank, so that these, plus one mark per rank, are
        together as many as are kept.
        """
        return max(self._keep // max(len(self._logs), 1) - 1, 20)

    @property
    def waiting(self) -> int:
        """Number of lines that have arrived and were not added yet."""
        return sum(log.total - self._seen[r] for r, log in self._logs.items())

    @property
    def first(self) -> int:
        return self.total - len(self.lines)

    @property
    def begun(self) -> list[Line]:
        """The progress bars that most ranks draw: for each the line of the
        slowest, with how far all of them are.
        """
        groups = group_bars(bar for log in self._logs.values() for bar in log.bars)
        return [_line_of_bars(group) for group in groups[:MOST_BARS]]

    def update(self, most: int = SLICE) -> bool:
        """Add at most `most` of the lines that have arrived; returns whether more are waiting."""
        self._told_now()
        marks = self._leave_out()
        ranks = [rank for rank, log in self._logs.items() if log.total != self._seen[rank]]
        sources = [marks, self._events_waiting, *map(self._fresh, ranks)]
        taken = list(islice(heapq.merge(*sources, key=itemgetter(0)), most))
        for at, line in taken:
            if line.stream == NODE and line.rank == EVENT:
                self._events_waiting.remove((at, line))
            elif line.stream != GAP:
                self._seen[line.rank] += 1
                self._latest[line.rank] = at
        self.add(line for _, line in taken)
        return self.waiting > 0 or bool(self._events_waiting)

    def add(self, lines: Iterable[Line]) -> None:
        """Add lines that are in order of time."""
        for line in lines:
            self._add(line)
        self._trim()

    def _leave_out(self) -> list[tuple[float, Line]]:
        """Skip lines that arrived faster than they could be added; returns marks in their place."""
        share, many = self._share, self.waiting > self._keep
        marks: list[tuple[float, Line]] = []
        for rank, log in self._logs.items():
            if log.total < self._seen[rank]:
                self._seen[rank], self._latest[rank] = log.first, 0.0
            start = max(log.first, log.total - share if many else 0)
            gone = start - self._seen[rank]
            if gone > 0:
                self._seen[rank] = start
                at = max(self._latest[rank], log.lines[start - log.first].at if log.lines else 0.0)
                text = f"{gone:,} lines arrived faster than this screen can show them; the log on the node is complete"
                marks.append((at, Line(at, rank, GAP, 0, text)))
        return sorted(marks, key=itemgetter(0))

    def _fresh(self, rank: int) -> Iterator[tuple[float, Line]]:
        """(time, line) of the waiting lines of a rank, decoded only when taken."""
        log, latest = self._logs[rank], self._latest[rank]
        lines = log.lines
        for place in range(self._seen[rank] - log.first, len(lines)):
            line = lines[place]
            # If a node's clock goes back, the lines of its rank must keep their order.
            latest = max(latest, line.at)
            yield latest, line

    def _told_now(self) -> None:
        now = frozenset(self._events())
        if now == self._events_shown:
            return
        for one in now - self._events_shown:
            text = f"{one.node}: {with_device(one.device, one.text, one.check)}"
            self._events_waiting.append((one.at, Line(one.at, EVENT, NODE, 0, text)))
        self._events_waiting.sort(key=itemgetter(0))
        self._events_shown = now

    def _add(self, line: Line) -> None:
        self.changes += 1
        if self._fold and line.rank >= 0 and self._fold_in(line):
            return
        self._newest[line.text] = self._last_of[line.rank] = self.total
        self.lines.append(
            MergedLine(line.at, line.rank, line.stream, line.offset, line.text, line.cut)
        )
        self.total += 1

    def _fold_in(self, line: Line) -> bool:
        """Fold the line into an equal recent one, if that keeps the order of
        its rank; returns whether it did.
        """
        number = self._newest.get(line.text, -1)
        if number < max(self.first, self._last_of.get(line.rank, -1)):
            return False
        there = self.lines[number - self.first]
        if there.stream != line.stream or line.at - there.at > FOLD_WITHIN:
            return False
        counts = there.counts
        counts.setdefault(there.rank, 1)
        counts[line.rank] = counts.get(line.rank, 0) + 1
        self._last_of[line.rank] = number
        return True

    def _trim(self) -> None:
        gone = len(self.lines) - self._keep
        if gone <= 0:
            return
        for number, line in enumerate(self.lines[:gone], self.first):
            if self._newest.get(line.text) == number:
                del self._newest[line.text]
        del self.lines[:gone]


TROUBLE = re.compile(
    r"error|exception|traceback|fatal|critical|\bfail|abort|segfault|segmentation fault|panic"
    r"|out of memory|killed|not ok|\bxid\b",
    re.IGNORECASE,
)


GOALS = "a line (1200), a time (14:30:05), five minutes ago (-5m), half way (50%)"
"""What `goal_of` understands, for messages."""


def _line_of_bars(group: BarGroup) -> MergedLine:
    """The line of the slowest of these bars, with how far all of them are."""
    line = group.bars[0].line
    words = f"  ({len(group.bars)} ranks: {group.range_words})" if len(group.bars) > 1 else ""
    text = f"{line.text}{words}"
    return MergedLine(line.at, line.rank, line.stream, line.offset, text, line.cut)


class Goal(Value):
    """A place in a log to go to: a time (epoch seconds), a line
    number from 1, or a share from 0 to 1.
    """

    at: float | None = None
    line: int | None = None
    share: float | None = None

    def row(self, count: int) -> int:
        """The index of the line, from 0, in a log with `count` lines;
        only if the goal is not a time.
        """
        wanted = self.line - 1 if self.line is not None else round((self.share or 0.0) * count)
        return min(max(wanted, 0), max(count - 1, 0))


def goal_of(text: str, now: float) -> Goal:
    """The goal that a text means; a time of day is the last one before `now` (epoch seconds).

    Raises ValueError.
    """
    text = text.strip()
    if not text:
        raise ValueError(f"write {GOALS}")
    try:
        if text.startswith("-"):
            return Goal(at=now - parse_duration(text[1:]))
        if text.endswith("%"):
            return Goal(share=min(max(float(text[:-1]) / 100, 0.0), 1.0))
        if text.isdigit():
            return Goal(line=int(text))
        if ":" in text:
            return Goal(at=_moment(text, now))
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"not understood: {printable_line(text)}; write {GOALS}")


def _moment(text: str, now: float) -> float:
    """Epoch seconds of a time of day, or of a date and time, in this machine's time zone."""
    if "-" in text:
        return datetime.fromisoformat(text).timestamp()
    of_day = time.fromisoformat(text if text[1:2] != ":" else f"0{text}")
    moment = datetime.combine(datetime.fromtimestamp(now), of_day)
    return (moment if moment.timestamp() <= now else moment - timedelta(days=1)).timestamp()


class LineFilter(Value):
    """A filter: lines with every text of `within` and none of
    `without`, with `around` lines of context.
    """

    within: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    around: int = 0
    stream: str = ""
    """Only lines of `out` or of `err`; "": of both."""
    run: tuple[int, LogRun] | None = None
    """Only output of one run of a job that Slurm requeued: (number of the
    run from 0, its part of the output).
    """

    def __bool__(self) -> bool:
        return bool(self.within or self.without or self.stream or self.run)

    def __str__(self) -> str:
        words = [
            *([f"attempt {self.run[0]}"] if self.run else []),
            *([f"std{self.stream}"] if self.stream else []),
            *(f"&{text}" for text in self.within),
            *(f"!{text}" for text in self.without),
        ]
        return " ".join([*words, *([f"±{self.around}"] if self.around else [])])


class Filtered:
    """Another log filtered by `wanted`; its lines have their own numbers."""

    gaps: tuple[Gap, ...] = ()

    def __init__(self, source: Source, wanted: LineFilter) -> None:
        self.source, self.wanted = source, wanted
        self._within = [TextMatch(text) for text in wanted.within]
        self._without = [TextMatch(text) for text in wanted.without]
        self._restart()

    def _restart(self) -> None:
        self._scanned = self.source.first
        self._after = 0
        """Lines of context still to be kept after the last match."""
        self._last = self._scanned - 1
        """Number in the source of the last line that was kept."""
        self._numbers: list[int] = []
        self.lines: list[Line] = []
        self.total = 0

    @property
    def first(self) -> int:
        return self.total - len(self.lines)

    @property
    def begun(self) -> list[Line]:
        return [line for line in self.source.begun if self.fits(line)]

    def fits(self, line: Line) -> bool:
        """Whether the line itself matches, not only as context."""
        run = self.wanted.run
        if run and not run[1].has(line.rank, line.stream, line.offset):
            return False
        if self.wanted.stream and line.stream != self.wanted.stream:
            return False
        shown = printable_line(line.text)
        if any(words.within(shown) for words in self._without):
            return False
        return all(words.within(shown) for words in self._within)

    def number(self, at: int) -> int:
        """The number in the source of line `at` of this log."""
        return self._numbers[at - self.first]

    def place(self, number: int) -> int:
        """The number in this log of the first line at or after line `number` of the source."""
        return self.first + bisect_left(self._numbers, number)

    @property
    def behind(self) -> bool:
        """Whether there are lines that were not examined yet."""
        return self._scanned != self.source.total

    def update(self, most: int = SLICE) -> None:
        """Examine at most `most` new lines."""
        source = self.source
        if source.total < self._scanned:
            self._restart()
        start = max(self._scanned, source.first)
        lines = source.lines
        begin = start - source.first
        for number, line in enumerate(lines[begin : begin + most], start):
            if self.fits(line):
                self._keep_before(number, lines)
                self._keep(number, line)
                self._after = self.wanted.around
            elif self._after:
                self._after -= 1
                self._keep(number, line)
        self._scanned = min(start + most, source.total)
        self._drop(source.first)

    def _keep_before(self, number: int, lines: Sequence[Line]) -> None:
        first = self.source.first
        begin = max(number - self.wanted.around, self._last + 1, first)
        for before in range(begin, number):
            self._keep(before, lines[before - first])

    def _keep(self, number: int, line: Line) -> None:
        self._numbers.append(number)
        self.lines.append(line)
        self._last = number
        self.total += 1

    def _drop(self, first: int) -> None:
        gone = bisect_left(self._numbers, first)
        del self._numbers[:gone], self.lines[:gone]


Fits = Callable[[Line], bool]


class Picked:
    """The numbers of lines that fit.

    `begin` returns the test; it is called again if the log restarts.
    """

    def __init__(self, begin: Callable[[], Fits]) -> None:
        self._begin = begin
        self._restart()

    def _restart(self) -> None:
        self._fits = self._begin()
        self._matches: list[int] = []
        self._scanned = 0

    @property
    def matches(self) -> tuple[int, ...]:
        """The numbers of the lines that fit, as far as examined."""
        return tuple(self._matches)

    def behind(self, log: Source) -> bool:
        """Whether there are lines that were not examined yet."""
        return self._scanned != log.total

    def update(self, log: Source, most: int = SLICE) -> bool:
        """Examine at most `most` new lines; returns whether a match was added or removed."""
        if log.total < self._scanned:
            self._restart()
        before = len(self._matches)
        gone = bisect_left(self._matches, log.first)
        del self._matches[:gone]
        start = max(self._scanned, log.first)
        begin = start - log.first
        for number, line in enumerate(log.lines[begin : begin + most], start):
            if self._fits(line):
                self._matches.append(number)
        self._scanned = min(start + most, log.total)
        return gone > 0 or len(self._matches) != before

    def after(self, number: int) -> int | None:
        """The next matching line after `number`; after the last, the first.

        None if there is no match.
        """
        if not self._matches:
            return None
        at = bisect_right(self._matches, number)
        return self._matches[at % len(self._matches)]

    def before(self, number: int) -> int | None:
        """The matching line before `number`; before the first, the last.

        None if there is no match.
        """
        return self._matches[bisect_left(self._matches, number) - 1] if self._matches else None

    def count(self, current: int | None) -> str:
        """`3/15`, or `15` if `current` is not a match."""
        total = f"{len(self._matches):,}"
        if (
            current is None
            or current not in self._matches[bisect_left(self._matches, current) :][:1]
        ):
            return total
        return f"{bisect_left(self._matches, current) + 1:,}/{total}"


class Search(TextMatch, Picked):
    """The lines with a text or pattern; with upper case in it, the search is case-sensitive."""

    def __init__(self, text: str) -> None:
        TextMatch.__init__(self, text)
        Picked.__init__(self, lambda: self._has)

    def _has(self, line: Line) -> bool:
        return self.within(printable_line(line.text))


def pick_troubles() -> Picked:
    """The lines that look like errors; lines that differ from an earlier
    one only in numbers are left out.
    """

    def begin() -> Fits:
        seen: set[bytes] = set()

        def fits(line: Line) -> bool:
            shown = printable_line(line.text)
            if TROUBLE.search(shown) is None:
                return False
            known = len(seen)
            seen.add(mask_numbers(shown.encode("utf-8", "replace")))
            return len(seen) > known

        return fits

    return Picked(begin)


_COMMA = re.compile(r",(?![^\[]*\])")
"""Commas, except within the brackets of a node set."""
HINT = "write 0-7,96 or node=NODES or state=failed; ! leaves out"


def choose_ranks(text: str, ranks: Sequence[RankState]) -> tuple[int, ...]:
    """The ranks that any part of `text` names (`!` excludes), in the
    order of `ranks`; all if `text` is empty.

    Raises ValueError with a sentence if a part cannot be read or names no rank.
    """
    parts = [part.strip() for part in _COMMA.split(text) if part.strip()]
    wanted: set[int] = set()
    unwanted: set[int] = set()
    for part in parts:
        found = _part(part.removeprefix("!").strip(), ranks)
        (unwanted if part.startswith("!") else wanted).update(found)
    everything = all(part.startswith("!") for part in parts)
    return tuple(
        one.rank for one in ranks if (everything or one.rank in wanted) and one.rank not in unwanted
    )


def _part(part: str, ranks: Iterable[RankState]) -> list[int]:
    name, equals, value = part.partition("=")
    if equals:
        kind = _KINDS.get(name.strip())
        if kind is None:
            raise ValueError(f"not a set of ranks: `{part}`; {HINT}")
        fits = kind(value.strip())
        on = [one.rank for one in ranks if fits(one)]
        if not on and kind is _on_nodes:
            raise ValueError(f"no rank is on {value.strip()}")
        return on
    known = {one.rank for one in ranks}
    try:
        found = expand_ranks(part)
    except ValueError as error:
        raise ValueError(f"{error}; {HINT}") from error
    for rank in found:
        if rank not in known:
            raise ValueError(f"there is no rank {rank}; there are {fold_ranks(sorted(known))}")
    return list(found)


def _on_nodes(text: str) -> Callable[[RankState], bool]:
    names = frozenset(expand_nodes(text))
    return lambda one: one.node in names


def _in_state(text: str) -> Callable[[RankState], bool]:
    states = [state for state in State if text and state.value.startswith(text)]
    if len(states) != 1:
        raise ValueError(f"no state `{text}`; there are {', '.join(State)}")
    return lambda one: one.state is states[0]


_KINDS: dict[str, Callable[[str], Callable[[RankState], bool]]] = {
    "node": _on_nodes,
    "nodes": _on_nodes,
    "state": _in_state,
}


def rank_statuses(job: Job) -> Mapping[int, RankStatus]:
    """Rank -> status, for ranks that have one."""
    found = {one.rank: RankStatus.FAILED for one in job.ranks if one.state is State.FAILED}
    for stall in job.stalled:
        if stall.kind == "slow":
            continue  # slow ranks are not stalled
        stuck = stall.accused if stall.kind == "all" else stall.ranks
        found |= dict.fromkeys(stuck, RankStatus.STALLED)
    if failure := job.first_failure:
        first = () if failure.rank is None else (failure.rank,)
        found |= dict.fromkeys(failure.victims, RankStatus.VICTIM)
        found |= dict.fromkeys((*first, *failure.tied), RankStatus.FIRST)
    return found


ORDERS = ("unusual", "rank", "node", "slowest")
QUIET = 30.0
"""A running rank is unusual if its last output is this many seconds
older than the newest of all ranks.
"""
_STEP = re.compile(r"\b(?:step|iter(?:ation)?|batch)\b\D{0,3}(\d+)", re.IGNORECASE)
NO_STATUS: Mapping[int, RankStatus] = {}
_USUAL = len(WORST) + 2
_LOST, _ODD = _USUAL - 2, _USUAL - 1


def order_ranks(
    ranks: Sequence[RankState],
    order: str,
    lines: Callable[[int], int],
    known: Mapping[int, RankStatus] = NO_STATUS,
) -> tuple[RankState, ...]:
    """The ranks in one of ORDERS; `lines` gives how many lines a rank has
    written, `known` are `rank_statuses`.
    """
    if order == "node":
        return tuple(sorted(ranks, key=lambda one: (one.node, one.rank)))
    if order == "unusual":
        latest = max((one.heard or 0.0 for one in ranks), default=0.0)
        return tuple(
            sorted(ranks, key=lambda o: (_attention_order(o, latest, known.get(o.rank)), o.rank))
        )
    if order == "slowest":
        return tuple(sorted(ranks, key=lambda o: (_step(o), lines(o.rank), o.rank)))
    return tuple(sorted(ranks, key=lambda one: one.rank))


def _attention_order(one: RankState, latest: float, status: RankStatus | None = None) -> int:
    """The smaller the number, the more attention a rank needs; the same for all healthy ranks."""
    if status is RankStatus.VICTIM:
        return _USUAL
    if status is not None:
        return WORST.index(status)
    if one.state is State.LOST:
        return _LOST
    running = one.state is State.RUNNING
    odd = running and (
        output_silence(one, latest) > QUIET or TROUBLE.search(one.last_line) is not None
    )
    return _ODD if odd else _USUAL


def output_silence(one: RankState, latest: float) -> float:
    """Seconds from this rank's last output (or start) to `latest`,
    the newest output of all ranks.
    """
    begun = one.heard if one.heard is not None else one.started
    return 0.0 if begun is None else max(latest - begun, 0.0)


def _step(one: RankState) -> int:
    found = _STEP.search(one.last_line)
    return int(found[1][:15]) if found else 1 << 60
