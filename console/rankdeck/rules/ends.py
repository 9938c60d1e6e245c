"""Judges the end of one rank, launcher or node on its own: its own fault, or that of another.

No I/O.
"""

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise, takewhile

from msgspec import field

from rankdeck.model.first_failure import RESTARTED, WAS_RESTARTED
from rankdeck.model.rank import how_it_ended, signal_name, signal_of
from rankdeck.model.safe_text import clean_line
from rankdeck.rules.message_table import Message, MessageKind
from rankdeck.rules.messages import (
    bare_message,
    first_by_launcher,
    first_failure_only,
    is_warning,
    message_rows,
    named_ranks,
)
from rankdeck.values import Value
from rankdeck_agent.wire.job_events import ProgramEnd


class Role(IntEnum):
    """What an end means for the job; the lower the number, the more likely it is the cause."""

    CAUSE = 1
    """It crashed, raised an error of its own, called MPI_Abort, or the node went away."""
    LIKELY = 2
    """It ended by itself, for an unknown reason."""
    KILLED = 3
    """It was killed by SIGKILL, perhaps by the launcher, or its end was not seen."""
    PEER = 4
    """Its last lines or exit code say that another process went away."""
    TIMEOUT = 5
    """It waited for others that never came."""
    TERMINATED = 6
    """A signal asked it to end."""
    WELL = 7
    """Exit 0."""
    GOING = 8
    """It has not ended."""


class End(Value, kw_only=True, eq=False):
    """How one rank, launcher or node ended, with the evidence.

    Compared by identity: cache look-ups are fast.
    """

    what: str = "rank"
    """`rank`, `launcher` or `node`."""
    rank: int | None = None
    name: str = ""
    """Name of a launcher: mpirun, torchrun, `daemon 12`; of a node RESTARTED or ""."""
    node: str
    code: int | None = None
    signal: int | None = None
    at: float | None = None
    """When it ended, epoch seconds on the console's clock; None if it has not."""
    slack: float = 0.0
    """Uncertainty of `at`, in ± seconds."""
    stopped: bool = False
    """Whether it ended after the job was told to end."""
    lines: tuple[str, ...] = ()
    """Its last lines, oldest first."""
    ago: tuple[float, ...] = ()
    """How long before its end each of them was written, seconds; () if that is not known."""
    kernel: tuple[str, ...] = ()
    """What the kernel log says about its processes."""
    doing: str = ""
    """What it did at the last look, in words; "" if not known."""
    inside: ProgramEnd | None = None
    """How its program failed, although the rank itself ended with exit 0."""

    @property
    def failed(self) -> bool:
        """Whether it ended in another way than with exit code 0."""
        return self.at is not None and (self.signal is not None or self.code != 0)

    @property
    def failed_unstopped(self) -> bool:
        """Whether it failed, and not because the job was told to end."""
        return self.failed and not self.stopped

    @property
    def killed(self) -> bool:
        """Whether it was ended from outside: by a signal, or in an unknown way."""
        return self.failed and not self.code


class LauncherEnding(Value, eq=False):
    """How one launcher ends its ranks."""

    name: str
    kill_after: float
    """The launcher sends SIGKILL only this many seconds after the first
    failure; 0: at once, infinite: never.
    """
    peer_codes: Mapping[int, str] = field(default_factory=dict[int, str])
    """Exit code of ranks that lost a peer -> its meaning."""
    repeats: bool = False
    """Whether its own end only repeats how its ranks ended, as that of a batch script does."""


_LOST_PEER = "Open MPI's code for a lost peer"
LAUNCHER_ENDINGS: Mapping[str, LauncherEnding] = {
    "openmpi5": LauncherEnding("mpirun", 0.9, {14: _LOST_PEER}),
    "openmpi4": LauncherEnding("mpirun", 0.9, {14: _LOST_PEER}),
    "mpich": LauncherEnding("mpiexec", 0.0),
    "torchrun": LauncherEnding("torchrun", 25.0),
    "slurm": LauncherEnding("srun", 0.0, repeats=True),
    # A Job deletes its other pods about a second after one has failed, and of containers that were
    # killed only the whole second is known.
    "kubernetes": LauncherEnding("Kubernetes", 1.9),
    "": LauncherEnding("", float("inf")),
}
"""MPI flavour, launcher or backend -> how it ends ranks; "": every rank is started separately."""

CRASHES = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGTRAP,
        signal.SIGSYS,
        signal.SIGXCPU,
        signal.SIGXFSZ,
    }
)
"""Signals that a program causes itself; SIGXCPU and SIGXFSZ by exceeding a limit."""
ASKED = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
FROM_OUTSIDE = ASKED | {signal.SIGKILL}
"""Signals by which somebody else ends a program."""

_EXCEPTION = re.compile(
    r"((?!nccl)[A-Za-z_][\w.]{0,100}(?:Error|Exception|Interrupt|Exit|Failure|Refused|Exceeded|Timeout))(?::|$)"
)
_CHAINED = re.compile(
    r"During handling of the above exception, another|The above exception was the direct cause"
    r"|Traceback \(most recent call last\): \(RANK \d"  # of another rank: torch.distributed.checkpoint
    r"|(?:[Ss]ee|[Cc]heck) (?:the )?(?:root cause|stack trace|traceback|error|logs?)\b.{0,20}\b(?:above|for root cause)"
)
"""Says that the exception after it, or on its line, follows from the one before."""
_RELAYED = re.compile(r"ChildFailedError|CalledProcessError|Process(?:Raised|Exited)Exception")
"""An exception of a program that started the one that failed: what that one wrote says more."""
_LABEL = re.compile(r"\[rank(\d{1,7})\]:|\[\d{1,7},(\d{1,7})\](?:\[[^][]*\])?<std\w+>")
"""What torch, and `mpirun --tag-output`, put before a line: the number of the rank."""
_STARTED_OTHERS = re.compile(r"ChildFailedError|\blocal_rank: \d|\b(?:mpirun|prterun|mpiexec)\b")
"""Written by a launcher."""
_STACK = re.compile(
    r"Process received signal|terminate called|Fatal Python error|error stack:|\bforrtl: |AddressSanitizer"
    r"|\*\*\* Error in `|\*\*\* glibc detected|\bpanic(?:ked)?\b.{0,4}[:(]|Program received signal|Caught signal \d|Backtrace for this error"
)
"""The first line of the message of a C, C++, Fortran, Go or Rust program; its stack follows."""
_OWN_ERRORS = frozenset(
    [
        "ArithmeticError",
        "AssertionError",
        "AttributeError",
        "FileExistsError",
        "FileNotFoundError",
        "FloatingPointError",
        "ImportError",
        "IndentationError",
        "IndexError",
        "IsADirectoryError",
        "KeyError",
        "LookupError",
        "MemoryError",
        "ModuleNotFoundError",
        "NameError",
        "NotADirectoryError",
        "NotImplementedError",
        "OutOfMemoryError",
        "OverflowError",
        "PermissionError",
        "RecursionError",
        "StopIteration",
        "SyntaxError",
        "TypeError",
        "UnboundLocalError",
        "UnicodeDecodeError",
        "UnicodeEncodeError",
        "ValueError",
        "ZeroDivisionError",
    ]
)
"""Python exceptions that are not raised because a peer was lost."""
_ABORT = re.compile(r"MPI_Abort|MPI_ABORT was invoked")
_WORDS = re.compile(r"[^\W\d_]{2,}\W+[^\W\d_]{2,}")
"""In a line that says something; not in the frame of a box."""
_RULE = re.compile(r"([=*#~-])\1{3,}.*\1{4}$")
"""A line that is drawn, with a title in it or without."""
_FRAME = " \t*|/\\_"
_BOXED = ("*", "|")
"""How lines in a box begin and end, as CP2K and VASP draw them."""
_HEADING = re.compile(r":$|\bLINE:\s+\d+$")
"""A line whose reason is the next one: `--> FOAM FATAL ERROR:`."""
_ERROR_WORD = re.compile(
    r"(?i)(?<!end of )(?:\b|_)(?:error|fatal|fail(?:ed|ure|s)?|invalid|cannot|unable|illegal|assert(?:ion)?"
    r"|un(?:known|expected|recogni[sz]ed|defined)|missing)\b"
)
LONGEST_QUOTE = 160
"""Most characters of a line in a sentence."""
_LONG_BEFORE = 2.0
"""Seconds; what a rank wrote so long before the first failure does not follow from it."""
_LAST = 12
"""Last lines that are searched for a cause if they contain no exception."""
_BY_KIND = {
    MessageKind.SERVICE: Role.CAUSE,
    MessageKind.TIMEOUT: Role.TIMEOUT,
    MessageKind.PEER: Role.PEER,
    MessageKind.TERMINATED: Role.TERMINATED,
    MessageKind.OWN: Role.CAUSE,
    MessageKind.HOST: Role.CAUSE,
    MessageKind.START: Role.CAUSE,
}
"""Kind of message -> role of the end of the rank that wrote it; the first kind found counts."""


class Meaning(Value, eq=False):
    """An end, what it means for the job, and the sentence that says why."""

    end: End
    role: Role
    why: str
    wrote: float | None = None
    """When it wrote the line that decided, epoch seconds; None if
    none did, or that is not known.
    """
    told: bool = False
    """Whether it is a likely cause although it was told to end: nobody is known who told it."""

    @property
    def began(self) -> float | None:
        """When it first showed, epoch seconds: by the line that decided,
        which may be long before the end.
        """
        return self.end.at if self.wrote is None else self.wrote


@lru_cache(maxsize=1 << 14)
def meaning_of(end: End, ending: LauncherEnding, first: float) -> Meaning:
    """What this end means on its own. Cached, because each new end
    causes the whole job to be judged again.

    `first` is when something in the job first failed, epoch seconds; a
    launcher sends SIGKILL only after that.
    """
    for rule in _RULES:
        if found := rule(end, ending, first):
            return Meaning(end, found[0], found[1], _written(end, *found[2:]))
    if end.code is None and end.signal is None:
        return Meaning(end, Role.KILLED, "it disappeared, and its exit code is not known")
    last = _last_error(_believed_lines(end)[-_LAST:])
    more = f"; it last said: {last}" if last else ""
    return Meaning(end, Role.LIKELY, f"it ended by itself: {_how(end)}{more}")


def _written(end: End, decided: str = "") -> float | None:
    """When it wrote the line with these words, epoch seconds; None
    without words, or if that is not known.
    """
    if end.at is None or not decided or len(end.ago) != len(end.lines):
        return None
    ago = (s for s, line in zip(end.ago, end.lines, strict=True) if decided in line)
    return end.at - next(ago, 0.0)


@lru_cache(maxsize=4096)
def telling_words(lines: tuple[str, ...]) -> tuple[str, ...]:
    """The lines that tell why it ended: the last exception and those
    that led to it, else the last message.
    """
    return lines[_beginning(lines) :]


def _beginning(lines: tuple[str, ...]) -> int:
    starts = [at for at, line in enumerate(lines) if _exception(line)]
    if not starts:
        stacks = [at for at, line in enumerate(lines) if _STACK.search(line)]
        return min([*stacks[-1:], max(len(lines) - _LAST, 0)])
    at = starts.pop()
    while starts and _follows(lines[starts[-1] + 1 : at + 1]):
        at = starts.pop()
    return at


def _follows(between: Sequence[str]) -> bool:
    """Whether the exception in the last of these lines follows from the one before them."""
    return bool(_RELAYED.search(between[-1])) or any(map(_CHAINED.search, between))


@lru_cache(maxsize=4096)
def _exception(line: str) -> str:
    """The class of the exception that this line tells, without its module; "" if it tells none."""
    found = None if is_warning(line) else _EXCEPTION.match(bare_message(line))
    return found[1].rpartition(".")[2] if found else ""


def fill_word_caches(lines: tuple[str, ...]) -> None:
    """Fill the caches with the last lines of one rank.

    Otherwise the verdict would read those of a thousand ranks at once,
    and the screen would not react to keys.
    """
    _reasons(telling_words(lines))
    aborted_ranks(lines)


def exception_of(words: Sequence[str]) -> str:
    """The class of the exception in the first of these lines, without
    its module; "" if there is none.
    """
    return _exception(words[0]) if words else ""


@lru_cache(maxsize=4096)
def aborted_ranks(lines: tuple[str, ...]) -> frozenset[int]:
    """Ranks that called MPI_Abort according to these lines."""
    return frozenset(rank for line in lines if _ABORT.search(line) for rank in named_ranks(line))


@lru_cache(maxsize=4096)
def keep_own_lines(end: End) -> tuple[str, ...]:
    """Its last lines without those that carry the label of another rank, as in a report that one
    rank gathers of all. A launcher that ran as this rank labels lines of its own processes: there
    they are those of the process that it says failed first.
    """
    labels = {_label(line) for line in end.lines} - {None, end.rank}
    if end.rank is None or not labels:
        return end.lines
    if not any(map(_STARTED_OTHERS.search, end.lines)):
        return tuple(line for line in end.lines if _label(line) not in labels)
    first = first_by_launcher(end.lines)
    report = first_failure_only(end.lines)
    return tuple(line for line in report if not first or _label(line) in (None, *first))


def ends_in_output(launchers: Sequence[End]) -> Mapping[int, End]:
    """Rank -> its end, for ranks that raised an exception in the output of these launchers, and
    those that they name besides: the output stayed there, and labels tell whose lines are.

    Nothing else is known of these ends: `at` is when the first launcher ended.
    """
    said = [_by_label(one.lines) for one in launchers]
    if not any(said):
        return {}
    named = [first_by_launcher(one.lines) for one in launchers]
    first = min((one.at for one in launchers if one.at is not None), default=None)
    return {
        rank: _end_in_output(launcher, rank, lines.get(rank, ()), first)
        for launcher, lines, failed in zip(launchers, said, named, strict=True)
        for rank in (*lines, *failed)
        if rank in failed or any(map(_exception, lines[rank]))
    }


@lru_cache(maxsize=4096)
def _end_in_output(launcher: End, rank: int, lines: tuple[str, ...], at: float | None) -> End:
    """Cached, because ends are compared by identity."""
    return End(rank=rank, node=launcher.node, at=at, slack=launcher.slack, lines=lines)


@lru_cache(maxsize=512)
def _by_label(lines: tuple[str, ...]) -> Mapping[int, tuple[str, ...]]:
    found: dict[int, list[str]] = {}
    for line in lines:
        if (rank := _label(line)) is not None:
            found.setdefault(rank, []).append(line)
    return {rank: tuple(said) for rank, said in found.items()}


def _label(line: str) -> int | None:
    """The number of the rank in the innermost label before this line; None if it has none."""
    if not _LABEL.search(line):
        return None
    marks = line[: len(line) - len(bare_message(line))]
    numbers = [first or second for first, second in _LABEL.findall(marks)]
    return int(numbers[-1]) if numbers else None


@lru_cache(maxsize=4096)
def _believed_lines(end: End) -> tuple[str, ...]:
    """Its last lines without those of others, or that say of another that it called MPI_Abort."""
    lines = keep_own_lines(end)
    if end.rank is None or end.rank in aborted_ranks(lines):
        return lines
    return tuple(line for line in lines if not (_ABORT.search(line) and named_ranks(line)))


@lru_cache(maxsize=1 << 14)
def abort_meaning(end: End) -> Meaning:
    """What it means that it called MPI_Abort: its own fault, unless it says before that it was told
    to end, as a handler of that signal does.
    """
    said = tuple(line for line in keep_own_lines(end) if not _ABORT.search(line))
    found = _decisive(said) if said else None
    if found is not None and found.role is Role.TERMINATED:
        return Meaning(end, found.role, f"{found.why}, and then called MPI_Abort")
    if found is not None and found.role is Role.CAUSE:
        return Meaning(end, Role.CAUSE, f"it called MPI_Abort; {found.why}")
    last = _last_error(said) or _last_sentence(said)
    more = f"; it last said: {last}" if last else ""
    return Meaning(end, Role.CAUSE, f"it called MPI_Abort{more}")


def _last_error(lines: Sequence[str]) -> str:
    """The last of these lines that speaks of an error, with its reason; "" if none does."""
    at = (at for at, line in _from_last(lines) if _ERROR_WORD.search(line))
    return next((_quote(lines, number) for number in at if not is_warning(lines[number])), "")


def _last_sentence(lines: Sequence[str]) -> str:
    """The last of these lines with words, which is no frame of a box; "" if there is none."""
    told = (at for at, line in _from_last(lines) if _WORDS.search(line))
    return next((_quote(lines, at) for at in told if not _RULE.match(lines[at].strip())), "")


def _from_last(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    return ((at, lines[at]) for at in range(len(lines) - 1, -1, -1))


def _quote(lines: Sequence[str], at: int) -> str:
    """A line without the frame of a box around it; a heading with the line below it."""
    said = _unframed(lines[at])
    if _HEADING.search(said):
        below = (_unframed(line) for line in lines[at + 1 :] if _WORDS.search(line))
        said = f"{said} {next(below, '')}".strip()
    return said[:LONGEST_QUOTE]


def _unframed(line: str) -> str:
    line = line.strip()
    return line.strip(_FRAME) if line.startswith(_BOXED) and line.endswith(_BOXED) else line


def _how(end: End) -> str:
    return how_it_ended(end.code, end.signal)


def _signal(end: End) -> int | None:
    """The signal that ended it; not from a launcher's exit code, which may be that of a rank."""
    if end.what == "launcher":
        return end.signal
    return signal_of(end.code, end.signal)


Found = tuple[Role, str] | tuple[Role, str, str] | None
"""(role, sentence, the line that decided)."""


def _going(end: End, _ending: LauncherEnding, _first: float) -> Found:
    if end.what == "node":
        restarted = end.name == RESTARTED
        return Role.CAUSE, f"it {WAS_RESTARTED}" if restarted else "it stopped answering"
    return (Role.GOING, "it has not ended") if end.at is None else None


def _after_stop(end: End, _ending: LauncherEnding, _first: float) -> Found:
    return (Role.TERMINATED, "it ended after the job was stopped") if end.stopped else None


def _wrapped(end: End, ending: LauncherEnding, first: float) -> Found:
    # Where nothing in the job has failed, nobody needed that program: a
    # note tells it (`state/job_events.py`).
    if end.failed or end.inside is None or not first:
        return None
    why = f"it ended with exit 0, but {program_in(end.inside)}"
    if end.inside.code in ending.peer_codes:
        return Role.PEER, f"{why}, {ending.peer_codes[end.inside.code or 0]}"
    return (Role.CAUSE if end.inside.signal is not None else Role.LIKELY), why


def program_in(inside: ProgramEnd) -> str:
    """`the program in its shell (./solver) ended with signal 11 (SIGSEGV)`."""
    name = f" ({clean_line(inside.command, LONGEST_QUOTE)})" if inside.command else ""
    how = how_it_ended(inside.code, inside.signal)
    return f"the program in its shell{name} ended with {how}"


def _well(end: End, _ending: LauncherEnding, _first: float) -> Found:
    return None if end.failed else (Role.WELL, "exit 0")


def _vanished(end: End, _ending: LauncherEnding, _first: float) -> Found:
    if end.what == "launcher" and end.code is None and end.signal is None:
        return Role.CAUSE, f"the {end.name} of {end.node} was gone all at once"
    return None


def _named_by_kernel(end: End, _ending: LauncherEnding, _first: float) -> Found:
    # Lines with "somewhere" only count for the whole node, and do not name this process.
    if end.kernel and "somewhere" not in end.kernel[0]:
        return Role.CAUSE, f"the kernel says: {end.kernel[0]}"
    return None


def _crashed(end: End, _ending: LauncherEnding, _first: float) -> Found:
    number = _signal(end)
    if number in CRASHES:
        return Role.CAUSE, f"it crashed by itself ({signal_name(number or 0)})"
    return None


def _aborted(end: End, _ending: LauncherEnding, _first: float) -> Found:
    if end.rank in aborted_ranks(keep_own_lines(end)):
        told = abort_meaning(end)
        return told.role, told.why
    return None


def _asked(end: End, _ending: LauncherEnding, _first: float) -> Found:
    number = _signal(end)
    if number in ASKED:
        return Role.TERMINATED, f"it was told to end ({signal_name(number or 0)})"
    return None


def _broken_pipe(end: End, _ending: LauncherEnding, _first: float) -> Found:
    if _signal(end) == signal.SIGPIPE:
        return Role.PEER, "it wrote to a connection that somebody had closed (SIGPIPE)"
    return None


def _killed(end: End, ending: LauncherEnding, first: float) -> Found:
    if _signal(end) != signal.SIGKILL:
        return None
    if end.what == "launcher":
        return Role.CAUSE, f"{end.name} was killed by SIGKILL"
    if end.at is not None and end.at - first >= ending.kill_after > 0:
        return Role.TERMINATED, f"{ending.name} killed it after it had been told to end"
    why = "it was killed (SIGKILL), by whom is not known"
    return (Role.LIKELY if ending.kill_after > 0 else Role.KILLED), why


def _peer_code(end: End, ending: LauncherEnding, _first: float) -> Found:
    if end.what == "rank" and end.signal is None and end.code in ending.peer_codes:
        return Role.PEER, f"{_how(end)}, {ending.peer_codes[end.code or 0]}"
    return None


class _Reason(Value):
    """What one exception, or a last message without one, means."""

    role: Role
    why: str
    line: str
    raised: bool = False
    """Whether an exception says it."""
    kind: MessageKind | None = None
    """Kind of the message that it is; None if the table does not know it."""


@lru_cache(maxsize=4096)
def _reasons(words: tuple[str, ...]) -> tuple[_Reason, ...]:
    """The reasons in the last words, in the order of a chain of exceptions;
    cached: each end is judged again and again.
    """
    starts = [at for at, line in enumerate(words) if at == 0 or _exception(line)]
    parts = [words[at:end] for at, end in pairwise([*starts, len(words)])]
    telling = [part for part in parts if not _RELAYED.search(part[0])] or parts
    return tuple(reason for part in telling if (reason := _reason(part)))


def _reason(part: Sequence[str]) -> _Reason | None:
    """What the lines of one exception mean, or those of a message;
    None if nothing is known about them.
    """
    known, name = sorted(message_rows(part), key=_weight), _exception(part[0])
    raised = part[0][part[0].find(name) :].strip()[:LONGEST_QUOTE]
    if not known:
        own = Role.CAUSE if name in _OWN_ERRORS else Role.LIKELY
        return _Reason(own, f"it raised {raised}", part[0].strip(), raised=True) if name else None
    row, line = known[0]
    said = line.strip()[:LONGEST_QUOTE]
    if not name or _BY_KIND[row.kind] is not Role.CAUSE:
        quote = _quote(part, max(at for at, one in enumerate(part) if line in one))
        return _Reason(_BY_KIND[row.kind], f"it said: {quote}", said, kind=row.kind)
    more = "" if line == part[0].strip() else f" ({said})"
    return _Reason(Role.CAUSE, f"it raised {raised}{more}", said, raised=True, kind=row.kind)


def _weight(known: tuple[Message, str]) -> tuple[bool, int]:
    row, _ = known
    return row.general, list(_BY_KIND).index(row.kind)


def _decisive(lines: tuple[str, ...]) -> _Reason | None:
    """The first exception of a chain decides whose fault it was; of
    several of its own, the last says most.
    """
    reasons = _reasons(telling_words(lines))
    services = [one for one in reasons if one.kind is MessageKind.SERVICE]
    own = [*takewhile(lambda one: one.role <= Role.LIKELY, reasons)]
    causes = [one for one in own if one.role is Role.CAUSE]
    return next(iter(services or causes[-1:] or own[-1:] or reasons), None)


def raised_itself(end: End) -> str:
    """The exception of its own that its last lines tell, in words, though it
    may not have ended; "" if there is none.
    """
    found = _decisive(_believed_lines(end))
    return found.why if found and found.raised and found.role is Role.CAUSE else ""


def tells_own_fault(end: End) -> bool:
    """Whether its last words tell a fault of its own, however it ended."""
    found = _decisive(_believed_lines(end))
    return found is not None and found.role is Role.CAUSE


def raised_and_waited(end: End, first: float) -> Meaning | None:
    """What it means if an exception of its own is the last that it wrote, long before it was
    ended from outside and before anything else failed at `first`; else None.
    """
    found = _decisive(_believed_lines(end))
    if not (found and found.raised and found.role is Role.CAUSE and end.lines[-1:] and end.ago):
        return None
    wrote = _written(end, found.line)
    last = found.line in end.lines[-1]
    if not last or wrote is None or wrote > first - _LONG_BEFORE:
        return None
    return Meaning(end, Role.CAUSE, f"{found.why}, and waited until it was ended", wrote)


def _by_last_lines(end: End, _ending: LauncherEnding, _first: float) -> Found:
    found = _decisive(_believed_lines(end))
    if found is None:
        return None
    return found.role, found.why if found.raised else f"{_how(end)}, and {found.why}", found.line


def _own_code(end: End, ending: LauncherEnding, first: float) -> Found:
    # An exit code that a program returned is no signal and no
    # launcher's code where its words say more.
    found = _by_last_lines(end, ending, first) if end.signal is None else None
    return found if found and found[0] is Role.CAUSE else None


_RULES = (
    _going,
    _after_stop,
    _wrapped,
    _well,
    _vanished,
    _named_by_kernel,
    _crashed,
    _aborted,
    _own_code,
    _asked,
    _broken_pipe,
    _killed,
    _peer_code,
    _by_last_lines,
)
"""Tried in this order; the first that returns a result decides."""
