"""The log that a view shows: which ranks, in which order; their lines merged by time, equal ones folded; searched and filtered while they grow."""

import heapq
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from itertools import islice
from operator import itemgetter
from typing import Protocol

from rankdeck.logs.compare import mask
from rankdeck.model.health import Occurrence, seconds_of
from rankdeck.model.job import Job, RankState, State
from rankdeck.model.nodeset import expand, expand_ranks
from rankdeck.model.rank import WORST, RankStatus
from rankdeck.model.schedulers import LogRun
from rankdeck.model.text import compiled, printable, searched
from rankdeck.state.lines import Gap, Line, RankLog


class Source(Protocol):
    """A log that can be looked at: one rank's, or several made into one."""

    @property
    def lines(self) -> Sequence[Line]: ...
    @property
    def total(self) -> int:
        """The number after that of the newest line."""
        ...

    @property
    def first(self) -> int:
        """The number of `lines[0]`."""
        ...

    @property
    def partial(self) -> Line | None:
        """A newest line that has no end yet."""
        ...

    @property
    def gaps(self) -> Sequence[Gap]:
        """Where something is missing that the node still has."""
        ...


class TextMatch:
    """A text or regular expression to look for: capitals in it make it exact."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.exact = text != text.lower()
        pattern = searched(text)
        self._pattern = compiled(pattern) if pattern else None

    def spans(self, shown: str) -> list[tuple[int, int]]:
        """Where it is in this line, as characters from and until."""
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
        """Whether it is anywhere in this line."""
        if self._pattern is not None:
            return self._pattern.within(shown)
        return self.text in (shown if self.exact else shown.lower())


KEEP = 20_000
SLICE = 1_000
"""Lines processed in one step: some milliseconds."""
FOLD_WITHIN = 2.0
"""Seconds between equal lines that are shown as one."""
EVENT = -2
"""The rank number of what a node said itself."""
GAP = "gap"
NODE = "node"
"""Streams that no rank has: something is missing here, a node says something."""

Events = Callable[[], Iterable[Occurrence]]
"""In any order; called at every update."""


class MergedLog:
    """Lines in order of time; a line that comes late goes after those already there."""

    partial: Line | None = None
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
        """Rank -> the time of its newest line here: no line of it stands before that."""
        self.late = any(self._seen.values())
        """Whether there are earlier lines that it did not begin with."""
        self._told: frozenset[Occurrence] = frozenset()
        self._events_waiting: list[tuple[float, Line]] = []
        self.lines: list[Line] = []
        self.total = 0
        self.changes = 0
        """Grows whenever something looks different."""
        self._counts: dict[int, dict[int, int]] = {}
        """Line number -> rank -> how often, where more than one line is folded."""
        self._newest: dict[str, int] = {}
        """Text -> number of the newest line with it."""
        self._last_of: dict[int, int] = {}
        """Rank -> number of its newest line."""

    @property
    def _share(self) -> int:
        """Lines of each rank, and a mark, of which all together are as many as are kept."""
        return max(self._keep // max(len(self._logs), 1) - 1, 20)

    @property
    def waiting(self) -> int:
        """Lines that are here and were not taken in yet."""
        return sum(log.total - self._seen[r] for r, log in self._logs.items())

    @property
    def first(self) -> int:
        return self.total - len(self.lines)

    def counts(self, number: int) -> Mapping[int, int]:
        """Which ranks wrote this line, and how often; empty if it is one line of one rank."""
        return self._counts.get(number, {})

    def update(self, most: int = SLICE) -> bool:
        """Process at most so many of the lines that arrived since; True if more are waiting."""
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
        """Take in lines that stand in the order of time."""
        for line in lines:
            self._add(line)
        self._trim()

    def _leave_out(self) -> list[tuple[float, Line]]:
        """Marks in the place of lines that came faster than they could be taken in."""
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
        """What is waiting of a rank: made into lines only as far as it is taken."""
        log, latest = self._logs[rank], self._latest[rank]
        lines = log.lines
        for place in range(self._seen[rank] - log.first, len(lines)):
            line = lines[place]
            # A node whose clock goes back must not turn round what its rank wrote.
            latest = max(latest, line.at)
            yield latest, line

    def _told_now(self) -> None:
        now = frozenset(self._events())
        if now == self._told:
            return
        for one in now - self._told:
            text = f"{one.node}: {one.device + ': ' if one.device else ''}{one.text}"
            self._events_waiting.append((one.at, Line(one.at, EVENT, NODE, 0, text)))
        self._events_waiting.sort(key=itemgetter(0))
        self._told = now

    def _add(self, line: Line) -> None:
        self.changes += 1
        if self._fold and line.rank >= 0 and self._fold_in(line):
            return
        self._newest[line.text] = self._last_of[line.rank] = self.total
        self.lines.append(line)
        self.total += 1

    def _fold_in(self, line: Line) -> bool:
        """Count the line to an equal one, where that keeps the order of its rank."""
        number = self._newest.get(line.text, -1)
        if number < max(self.first, self._last_of.get(line.rank, -1)):
            return False
        there = self.lines[number - self.first]
        if there.stream != line.stream or line.at - there.at > FOLD_WITHIN:
            return False
        counts = self._counts.setdefault(number, {there.rank: 1})
        counts[line.rank] = counts.get(line.rank, 0) + 1
        self._last_of[line.rank] = number
        return True

    def _trim(self) -> None:
        gone = len(self.lines) - self._keep
        if gone <= 0:
            return
        for number, line in enumerate(self.lines[:gone], self.first):
            self._counts.pop(number, None)
            if self._newest.get(line.text) == number:
                del self._newest[line.text]
        del self.lines[:gone]


TROUBLE = re.compile(
    r"error|exception|traceback|fatal|critical|\bfail|abort|segfault|segmentation fault|panic"
    r"|out of memory|killed|not ok|\bxid\b",
    re.IGNORECASE,
)


GOALS = "a line (1200), a time (14:30:05), so long ago (-5m), a place (50%)"
"""What `goal_of` understands."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Where somebody wants to go in a log: to a time (epoch seconds), to a line, or a share of it."""

    at: float | None = None
    line: int | None = None
    share: float | None = None

    def row(self, count: int) -> int:
        """Which of so many lines it is, from 0 on; of a goal that is no time."""
        wanted = self.line - 1 if self.line is not None else round((self.share or 0.0) * count)
        return min(max(wanted, 0), max(count - 1, 0))


def goal_of(text: str, now: float) -> Goal:
    """Where that is; a time of day is the last one before `now`. Raises ValueError."""
    text = text.strip()
    try:
        if text.startswith("-"):
            return Goal(at=now - seconds_of(text[1:]))
        if text.endswith("%"):
            return Goal(share=min(max(float(text[:-1]) / 100, 0.0), 1.0))
        if text.isdigit():
            return Goal(line=int(text))
        if ":" in text:
            return Goal(at=_moment(text, now))
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"not understood: {printable(text)}; write {GOALS}")


def _moment(text: str, now: float) -> float:
    """A time of day, or a day and a time, here."""
    if "-" in text:
        return datetime.fromisoformat(text).timestamp()
    of_day = time.fromisoformat(text if text[1:2] != ":" else f"0{text}")
    moment = datetime.combine(datetime.fromtimestamp(now), of_day)
    return (moment if moment.timestamp() <= now else moment - timedelta(days=1)).timestamp()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Lines with every text of `within`, without any of `without`, and `around` lines about each."""

    within: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    around: int = 0
    run: tuple[int, LogRun] | None = None
    """Only what was written in this run of a job that Slurm queued again: its number from 0, and where its output lies."""

    def __bool__(self) -> bool:
        return bool(self.within or self.without or self.run)

    def __str__(self) -> str:
        words = [
            *([f"attempt {self.run[0]}"] if self.run else []),
            *(f"&{text}" for text in self.within),
            *(f"!{text}" for text in self.without),
        ]
        return " ".join([*words, *([f"±{self.around}"] if self.around else [])])


class Filtered:
    """What is left of another log, with numbers of its own."""

    gaps: tuple[Gap, ...] = ()

    def __init__(self, source: Source, wanted: Wanted) -> None:
        self.source, self.wanted = source, wanted
        self._within = [TextMatch(text) for text in wanted.within]
        self._without = [TextMatch(text) for text in wanted.without]
        self._restart()

    def _restart(self) -> None:
        self._scanned = self.source.first
        self._after = 0
        """Lines still to be kept after the last match."""
        self._last = self._scanned - 1
        """The number, in the source, of the last line kept."""
        self._numbers: list[int] = []
        self.lines: list[Line] = []
        self.total = 0

    @property
    def first(self) -> int:
        return self.total - len(self.lines)

    @property
    def partial(self) -> Line | None:
        partial = self.source.partial
        return partial if partial is not None and self.fits(partial) else None

    def fits(self, line: Line) -> bool:
        """Whether the line is wanted for itself."""
        run = self.wanted.run
        if run and not run[1].has(line.rank, line.stream, line.offset):
            return False
        shown = printable(line.text)
        if any(words.within(shown) for words in self._without):
            return False
        return all(words.within(shown) for words in self._within)

    def number(self, at: int) -> int:
        """The number, in the source, of this line."""
        return self._numbers[at - self.first]

    def place(self, number: int) -> int:
        """The number, here, of the first line from that one of the source on."""
        return self.first + bisect_left(self._numbers, number)

    @property
    def behind(self) -> bool:
        """Whether there are lines that were not looked at yet."""
        return self._scanned != self.source.total

    def update(self, most: int = SLICE) -> None:
        """Look at so many of the lines that are new."""
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
    """The lines that fit; `begin` gives what judges them, again for a log that begins again."""

    def __init__(self, begin: Callable[[], Fits]) -> None:
        self._begin = begin
        self._restart()

    def _restart(self) -> None:
        self._fits = self._begin()
        self._matches: list[int] = []
        self._scanned = 0

    @property
    def matches(self) -> tuple[int, ...]:
        """The numbers of the lines, as far as looked at."""
        return tuple(self._matches)

    def behind(self, log: Source) -> bool:
        """Whether there are lines that were not looked at yet."""
        return self._scanned != log.total

    def update(self, log: Source, most: int = SLICE) -> bool:
        """Look at so many of the lines that are new; True if a match came or went."""
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
        """The next matching line, from the beginning again at the end."""
        if not self._matches:
            return None
        at = bisect_right(self._matches, number)
        return self._matches[at % len(self._matches)]

    def before(self, number: int) -> int | None:
        """The matching line before this one, from the end again at the beginning."""
        return self._matches[bisect_left(self._matches, number) - 1] if self._matches else None

    def count(self, current: int | None) -> str:
        """`3/15`, or `15` where no match is chosen."""
        total = f"{len(self._matches):,}"
        if (
            current is None
            or current not in self._matches[bisect_left(self._matches, current) :][:1]
        ):
            return total
        return f"{bisect_left(self._matches, current) + 1:,}/{total}"


class Search(TextMatch, Picked):
    """Lines with a text or pattern; capitals in it make it exact."""

    def __init__(self, text: str) -> None:
        TextMatch.__init__(self, text)
        Picked.__init__(self, lambda: self._has)

    def _has(self, line: Line) -> bool:
        return self.within(printable(line.text))


def troubles(pattern: re.Pattern[str] = TROUBLE) -> Picked:
    """Lines that speak of trouble; one that only repeats an earlier one is left out."""

    def begin() -> Fits:
        seen: set[bytes] = set()

        def fits(line: Line) -> bool:
            shown = printable(line.text)
            if pattern.search(shown) is None:
                return False
            known = len(seen)
            seen.add(mask(shown.encode("utf-8", "replace"))[0])
            return len(seen) > known

        return fits

    return Picked(begin)


_COMMA = re.compile(r",(?![^\[]*\])")
"""Not those within the brackets of a node set."""
HINT = "write 0-7,96 or node=NODES or state=failed; ! leaves out"


def choose(text: str, ranks: Sequence[RankState]) -> tuple[int, ...]:
    """The ranks that any part of `text` names, in the order of `ranks`; all where it is empty.

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
            raise ValueError(f"there is no rank {rank}: there are {len(known)}")
    return list(found)


def _on_nodes(text: str) -> Callable[[RankState], bool]:
    names = frozenset(expand(text))
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
            continue  # it does not stand still
        stuck = (stall.odd or stall.first) if stall.kind == "all" else stall.ranks
        found |= dict.fromkeys(stuck, RankStatus.STALLED)
    if failure := job.first_failure:
        first = () if failure.rank is None else (failure.rank,)
        found |= dict.fromkeys(failure.victims, RankStatus.VICTIM)
        found |= dict.fromkeys((*first, *failure.tied), RankStatus.FIRST)
    return found


ORDERS = ("unusual", "rank", "node", "slowest")
QUIET = 30.0
"""Seconds behind the newest word of all ranks after which a running rank is unusual."""
_STEP = re.compile(r"\b(?:step|iter(?:ation)?|batch)\b\D{0,3}(\d+)", re.IGNORECASE)
NO_STATUS: Mapping[int, RankStatus] = {}
_USUAL = len(WORST) + 2
_LOST, _ODD = _USUAL - 2, _USUAL - 1


def ordered(
    ranks: Sequence[RankState],
    order: str,
    lines: Callable[[int], int],
    known: Mapping[int, RankStatus] = NO_STATUS,
) -> tuple[RankState, ...]:
    """The ranks in this order; `lines` gives how many lines a rank has written."""
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
    """The smaller, the more a rank wants to be looked at; all that are well are alike."""
    if status is RankStatus.VICTIM:
        return _USUAL
    if status is not None:
        return WORST.index(status)
    if one.state is State.LOST:
        return _LOST
    running = one.state is State.RUNNING
    odd = running and (silence(one, latest) > QUIET or TROUBLE.search(one.last_line) is not None)
    return _ODD if odd else _USUAL


def silence(one: RankState, latest: float) -> float:
    """Seconds that this rank has been quiet while another was not."""
    begun = one.heard if one.heard is not None else one.started
    return 0.0 if begun is None else max(latest - begun, 0.0)


def _step(one: RankState) -> int:
    found = _STEP.search(one.last_line)
    return int(found[1][:15]) if found else 1 << 60
