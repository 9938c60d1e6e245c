"""Events of a job: one frozen value for each kind, its bounds,
and who may say it about which ranks.

The `events` file of a run folder and the stream of `job follow` hold these as JSON objects, one a
line: {"seq": number from 0, "at": epoch seconds, "kind": …} and the fields of the kind's class.
`parse_event` is the only reader; it checks the sender too. The stream has frames beside them that
are not in the file (`Looks`, `Now`, and `data` and `tail`, whose bytes the reader of the stream
takes itself); these have no `seq`.

stdin of `job follow` takes lines {"watch": {"<rank>": {"out": offset, "err": offset}}}. Each
replaces the one before; an offset below 0 counts from the end. These lines, or lines of their own,
may also have {"taken": bytes of `data` that the console has processed since the start}: the
follower then sends ahead only as much as that console processes in a moment. End of file ends the
follower, never the job.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Any, Callable, NamedTuple, Optional, Union, cast

from rankdeck_agent.rules.scheduler_verdict import (
    SchedulerVerdict,
    parse_scheduler_verdict,
    verdict_row,
)
from rankdeck_agent.text import shown_line
from rankdeck_agent.values import NEEDED, Value, field, list_fields
from rankdeck_agent.wire import NodePlan


class Part(Enum):
    """What sends events."""

    SUPERVISOR = "supervisor"
    """Of one node: it starts the ranks there."""
    KEEPER = "keeper"
    """Of a job that a scheduler runs: it reports the ranks on all nodes."""
    RANK = "rank"
    """Any process of the job: it can write to the supervisor's FIFO."""
    BROWSE = "browse"
    """`job browse`, which reads logs."""


class Origin(Value):
    """The sender of an event, as known without its help: from the
    connection, and the job's plan.
    """

    node: str
    part: Part
    backend: str
    """Who runs the job: "ssh", "slurm", "kubernetes", or the name of a plug-in."""
    ranks: Collection[int]
    """The ranks that it may speak of."""


def origin_of(plan: NodePlan, backend: str) -> Origin:
    """Who reports this part of a job: the supervisor of a node, or
    the keeper of a scheduler's job.
    """
    part = Part.KEEPER if plan.elsewhere else Part.SUPERVISOR
    return Origin(plan.node, part, backend, frozenset(plan.ranks))


class EventError(ValueError):
    """A row that is no event, or that its sender may not send; the text follows `sent …`."""


class _FieldError(ValueError):
    """A field that is not valid."""


# ---- bounds ----------------------------------------------------------------------------

SENTENCE = 500
"""Most characters of a sentence, and of a line of output."""
_WORD = 2000
_COMMAND = 1 << 18
_MOST_LINES, _MOST_KERNEL, _MOST_ADDRESSES, _MOST_RANKS = 80, 8, 64, 1 << 20
_MOST_COUNT = 1 << 31
_MOST_CORES = 1e5
_LAST_STAMP = 2.5e11
"""Epoch seconds from this on are no time: calendars still support this year."""
_LATEST = 1e300

_INVALID: Any = object()
"""In place of a field's value that is missing or not valid."""

Read = Callable[[object], Any]
"""Makes a field's value of decoded JSON; raises _FieldError."""


def _text(most: int) -> Read:
    """Text on one line without control characters, cut to `most` characters."""

    def read(raw: object) -> str:
        if not isinstance(raw, str):
            raise _FieldError("is no text")
        return shown_line(raw[: 4 * most], most)

    return read


def _raw_text(most: int) -> Read:
    """Text as it is, never shown; longer text is refused."""

    def read(raw: object) -> str:
        if not isinstance(raw, str) or len(raw) > most:
            raise _FieldError(f"is no text of at most {most} characters")
        return raw

    return read


def _list(each: Read, most: int) -> Read:
    """The last `most` items of a list that are valid, as a tuple."""

    def read(raw: object) -> tuple[Any, ...]:
        if not isinstance(raw, list):
            raise _FieldError("is no list")
        found = (_valid(each, one) for one in cast("list[object]", raw)[-most:])
        return tuple(one for one in found if one is not _INVALID)

    return read


def _valid(read: Read, raw: object) -> Any:  # noqa: ANN401 - what `read` makes
    """What `read` makes; _INVALID if that is not valid."""
    try:
        return read(raw)
    except _FieldError:
        return _INVALID


def _whole(least: int = -_MOST_COUNT + 1, most: int = _MOST_COUNT - 1) -> Read:
    """A whole number from `least` to `most`."""

    def read(raw: object) -> int:
        if type(raw) is not int or not least <= raw <= most:
            raise _FieldError(f"is no whole number from {least} to {most}")
        return raw

    return read


def _or_none(read: Read) -> Read:
    """None, or what `read` makes."""
    return lambda raw: None if raw is None else read(raw)


def _flag(raw: object) -> bool:
    if type(raw) is not bool:
        raise _FieldError("is neither true nor false")
    return raw


def _number(least: float, most: float) -> Read:
    def read(raw: object) -> float:
        # Compared like this, NaN and integers too large for a float are refused too.
        if type(raw) not in (int, float) or not least <= cast("float", raw) <= most:
            raise _FieldError(f"is no number from {least:g} to {most:g}")
        return float(cast("float", raw))

    return read


_COUNT = _whole(0)
_STAMP = _number(0.0, _LAST_STAMP)
_RANK = _whole(0, _MOST_RANKS)
_LINES = _list(_text(SENTENCE), _MOST_LINES)


class _OnWire(NamedTuple):
    """How a field is read and written."""

    read: Read
    always: bool
    """Whether it is written even if it has its default."""


def _has(read: Read, default: Any, *, always: bool = False) -> Any:  # noqa: ANN401 - as `field`
    """A field that has its default if it is missing or not valid."""
    return field(default=default, metadata=_OnWire(read, always))


def _needs(read: Read) -> Any:  # noqa: ANN401 - as `field`
    """A field without which there is no event."""
    return field(metadata=_OnWire(read, always=True))


# ---- what a supervisor tells -------------------------------------------------------------


class SupervisorReady(Value):
    """The supervisor runs; nothing of the job was started here before."""

    KIND = "ready"
    pid: Optional[int] = _has(_or_none(_COUNT), None)
    boot: str = _has(_text(200), "")
    """The kernel's boot id."""
    addresses: tuple[str, ...] = _has(_list(_text(300), _MOST_ADDRESSES), ())
    """IP addresses and host names of the node."""


class RankStarted(Value):
    """A rank began."""

    KIND = "started"
    rank: int = _needs(_RANK)
    pid: Optional[int] = _has(_or_none(_COUNT), None)
    host: str = _has(_text(64), "")
    """With a shared run folder, the machine on which it runs; else ""."""
    attempt: int = _has(_COUNT, 0)
    """How often its scheduler queued the job again before."""


class LastLook(Value):
    """What the processes of a rank did when the supervisor last looked."""

    state: str
    """As in /proc: R, S, D, …"""
    wchan: str
    """Kernel function in which it waits; "" if none."""
    cores: float
    """Cores that it used."""


def _last_look(raw: object) -> LastLook:
    if not isinstance(raw, list) or len(cast("list[object]", raw)) < 3:
        raise _FieldError("is not state, wchan, cores")
    state, wchan, cores = cast("list[object]", raw)[:3]
    return LastLook(_text(2)(state), _text(60)(wchan), _number(0.0, _MOST_CORES)(cores))


class ProgramEnd(Value):
    """How the program inside a rank ended, of which the rank's own end says nothing."""

    command: str
    """Its command line; "" if it is not known."""
    code: Optional[int]
    signal: Optional[int]


def _program_end(raw: object) -> ProgramEnd:
    if not isinstance(raw, list) or len(cast("list[object]", raw)) < 3:
        raise _FieldError("is not command, code, signal")
    name, code, number = cast("list[object]", raw)[:3]
    return ProgramEnd(_text(200)(name), _or_none(_whole())(code), _or_none(_whole(1, 64))(number))


class RankExited(Value):
    """A rank ended; `code` and `signal` both None: how is not known."""

    KIND = "exited"
    rank: int = _needs(_RANK)
    code: Optional[int] = _has(_or_none(_whole()), None, always=True)
    signal: Optional[int] = _has(_or_none(_whole()), None, always=True)
    said: tuple[str, ...] = _has(_LINES, ())
    """Its last lines, oldest first; only if it or its program failed, as the next two."""
    kernel: tuple[str, ...] = _has(_list(_text(SENTENCE), _MOST_KERNEL), ())
    """Lines of the kernel log about its processes."""
    activity: Optional[LastLook] = _has(_or_none(_last_look), None)
    ago: tuple[float, ...] = _has(_list(_number(0.0, _LAST_STAMP), _MOST_LINES), ())
    """How long before the end each line of `said` was written, seconds; () if that is not known."""
    inside: Optional[ProgramEnd] = _has(_or_none(_program_end), None)
    """How its program failed, although the rank ended with code 0; None if
    that did not happen, or is not known.
    """


class LauncherStarted(Value):
    """A launcher (mpirun, torchrun) or an MPI daemon began."""

    KIND = "process"
    name: str = _has(_text(300), "")
    pid: Optional[int] = _has(_or_none(_COUNT), None)


def _verdict(raw: object) -> SchedulerVerdict:
    found = parse_scheduler_verdict(cast("dict[str, Any]", raw)) if isinstance(raw, dict) else None
    if found is None:
        raise _FieldError("is no verdict")
    return found


class LauncherEnded(Value):
    """A launcher or an MPI daemon ended, or a rank whose shim could not be started."""

    KIND = "ended"
    name: str = _has(_text(300), "")
    code: Optional[int] = _has(_or_none(_whole()), None, always=True)
    signal: Optional[int] = _has(_or_none(_whole()), None, always=True)
    said: tuple[str, ...] = _has(_LINES, ())
    """The last lines of all launchers here, if it failed."""
    verdict: Optional[SchedulerVerdict] = _has(_or_none(_verdict), None)
    """Of the keeper of a Kubernetes job: what ended the job, in the scheduler's view."""


_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")


def is_request_id(text: str) -> bool:
    """Whether `text` can be the id of a request for an MPI daemon: it
    becomes an argument and part of file names.
    """
    return bool(_REQUEST_ID.match(text))


def _request_id(raw: object) -> str:
    if not isinstance(raw, str) or not is_request_id(raw):
        raise _FieldError("is no id of a request")
    return raw


class DaemonAsked(Value):
    """The launcher asks for an MPI daemon on a host."""

    KIND = "spawn"
    id: str = _needs(_request_id)
    host: str = _has(_raw_text(300), "")
    command: str = _has(_raw_text(_COMMAND), "")


class DaemonAnswered(Value):
    """The launch agent got the answer of the console."""

    KIND = "answered"
    id: str = _needs(_request_id)
    ok: bool = _has(_flag, False)
    text: str = _has(_text(SENTENCE), "")


class Trouble(Value):
    """A sentence for the operator; nothing is decided by it."""

    KIND = "trouble"
    text: str = _has(_text(SENTENCE), "")


class Waiting(Value):
    """Why parts of the job do not run yet (its queue, no node, an image that is
    pulled), in words; "" once all of it runs.
    """

    KIND = "waiting"
    text: str = _has(_text(SENTENCE), "", always=True)


class DiskSpace(Value):
    """The output of the job finds no space on this node, or finds some again."""

    KIND = "space"
    full: bool = _has(_flag, False, always=True)
    text: str = _has(_text(SENTENCE), "")


class SupervisorGone(Value):
    """The supervisor ended before the job; written on its behalf."""

    KIND = "gone"
    text: str = _has(_text(SENTENCE), "")
    last: Optional[float] = _has(_or_none(_STAMP), None)
    """When it last wrote anything, epoch seconds."""
    running: tuple[int, ...] = _has(_list(_RANK, _MOST_RANKS), ())
    """Ranks that still run."""
    restarted: bool = _has(_flag, False)
    """The machine has been restarted since the supervisor began."""


class MessagesRefused(Value):
    """Messages that their sender may not send, and that changed nothing."""

    KIND = "refused"
    text: str = _has(_text(SENTENCE), "")
    """What was sent first, following `NODE: `."""
    count: int = _has(_COUNT, 1)
    """How many there were up to now."""


ASKERS = ("user", "abort", "system")
"""Who cancels: a person; the console because a part of the job has failed (gang abort); neither of
the two: SIGTERM to the supervisor, or a launcher's leftovers.
"""


def _asker(raw: object) -> str:
    if raw not in ASKERS:
        raise _FieldError("is nobody who cancels")
    return cast("str", raw)


class CancelBegan(Value):
    """The job is being ended here."""

    KIND = "cancel"
    grace: float = _has(_number(0.0, _LATEST), 0.0, always=True)
    """Seconds from SIGTERM to SIGKILL."""
    by: str = _has(_asker, ASKERS[0], always=True)


class NodeClosed(Value):
    """Nothing more will come from this node."""

    KIND = "closed"


# ---- what the keeper of a scheduler's job tells --------------------------------------------


class SchedulerReport(Value):
    """What the scheduler says of the job; the last one has `over` and the four fields after it.

    Times: the node's clock.
    """

    KIND = "slurm"
    id: str = _has(_text(_WORD), "")
    state: str = _has(_text(_WORD), "")
    reason: str = _has(_text(_WORD), "")
    attempt: int = _has(_COUNT, 0)
    partition: str = _has(_text(_WORD), "")
    account: str = _has(_text(_WORD), "")
    qos: str = _has(_text(_WORD), "")
    nodes: str = _has(_text(_WORD), "")
    text: str = _has(_text(SENTENCE), "")
    do: str = _has(_text(SENTENCE), "")
    stuck: bool = _has(_flag, False)
    position: Optional[int] = _has(_or_none(_COUNT), None)
    waiting: Optional[int] = _has(_or_none(_COUNT), None)
    limit: Optional[float] = _has(_or_none(_number(0.0, _MOST_COUNT)), None)
    start: Optional[float] = _has(_or_none(_STAMP), None)
    ends: Optional[float] = _has(_or_none(_STAMP), None)
    array: str = _has(_text(_WORD), "")
    """Its tasks as sbatch reports them; "" for a job that is no array."""
    over: bool = _has(_flag, False)
    node: str = _has(_text(_WORD), "")
    rank: Optional[int] = _has(_or_none(_RANK), None)
    code: Optional[int] = _has(_or_none(_COUNT), None)
    by: str = _has(_text(_WORD), "")
    end: Optional[float] = _has(_or_none(_STAMP), None)


class AttemptBegan(Value):
    """The scheduler queued the job again: later events belong to this run."""

    KIND = "attempt"
    number: int = _needs(_COUNT)
    text: str = _has(_text(SENTENCE), "")


class TaskReport(Value):
    """What the scheduler says of one task of an array; a higher `attempt`: it was queued again."""

    KIND = "task"
    rank: int = _needs(_RANK)
    id: str = _has(_text(_WORD), "")
    state: str = _has(_text(_WORD), "")
    reason: str = _has(_text(_WORD), "")
    attempt: int = _has(_COUNT, 0)
    text: str = _has(_text(SENTENCE), "")
    do: str = _has(_text(SENTENCE), "")
    over: bool = _has(_flag, False)
    nodes: str = _has(_text(_WORD), "")
    node: str = _has(_text(_WORD), "")
    code: Optional[int] = _has(_or_none(_COUNT), None)
    start: Optional[float] = _has(_or_none(_STAMP), None)
    end: Optional[float] = _has(_or_none(_STAMP), None)


class RanksReset(Value):
    """Kubernetes suspended the job and begins it again: earlier
    starts and exits no longer count.
    """

    KIND = "again"
    text: str = _has(_text(SENTENCE), "")


# ---- frames beside the events --------------------------------------------------------------

_STATES = frozenset("RSDTtZXIKWP")
_FUNCTION = re.compile(r"[\w.\-+@]{0,64}\Z", re.ASCII)
_MOST_LOOKS = 4096
_MOST_MOVES = 1 << 53


class Look(Value):
    """What the processes of a running rank do."""

    rank: int
    state: str
    wchan: str
    cores: float
    system: Optional[float]
    """Share of their CPU time spent in the kernel, from 0 to 1; None: they used none."""
    throttled: Optional[float] = None
    """Share of the periods since the look before in which a CPU quota held
    them back, from 0 to 1; None: no quota.
    """
    moves: Optional[int] = None
    """Page faults, reads and writes since the look before: a process that
    only polls makes none; None: not known.
    """
    wants: Optional[float] = None
    """Share of that time in which its first thread ran or waited for a core: the rest it waited for
    others, a disk or time; None: not known.
    """
    held: Optional[float] = None
    """Share of that time in which a CPU quota held it back; None: no quota."""
    delayed: Optional[float] = None
    """Share of what it `wants` in which it waited for a core; None: not known."""
    blocked: Optional[float] = None
    """Share of that time in which it waited for a disk or a file system; None: its kernel does not
    count it.
    """


def _look(raw: object) -> Look:
    row = cast("list[object]", raw) if isinstance(raw, list) else []
    if len(row) < 5:
        raise _FieldError("is not rank, state, wchan, cores, share")
    rank, state, wchan, cores, share = row[:5]
    # Agents before 27 November 2026 send none of these, those of that day the first two, those
    # before 30 November the first four, those before December all but the last.
    throttled, moves, wants, held, delayed, blocked = [*row[5:11], *[None] * 6][:6]
    if not isinstance(state, str) or state not in _STATES:
        raise _FieldError("is in no state")
    if not isinstance(wchan, str) or not _FUNCTION.match(wchan):
        raise _FieldError("waits in no function")
    return Look(
        _RANK(rank),
        state,
        wchan,
        _number(0.0, _MOST_CORES)(cores),
        _or_none(_number(0.0, 1.0))(share),
        _or_none(_number(0.0, 1.0))(throttled),
        _or_none(_whole(0, _MOST_MOVES))(moves),
        _or_none(_number(0.0, 1.0))(wants),
        _or_none(_number(0.0, 1.0))(held),
        _or_none(_number(0.0, 1.0))(delayed),
        _or_none(_number(0.0, 1.0))(blocked),
    )


class Looks(Value):
    """What the running ranks of this node do; sent after each look of the supervisor."""

    KIND = "activity"
    rows: tuple[Look, ...] = _has(_list(_look, _MOST_LOOKS), ())


class Now(Value):
    """All events up to this time were sent; comes every two seconds."""

    KIND = "now"
    closing: bool = _has(_flag, False)
    """`closed` is held back until the output is sent."""
    ended: Optional[float] = _has(_or_none(_STAMP), None)
    """When the node closed."""


class JobUnknown(Value):
    """There is no such job on this node: it was never started
    there, or its run folder was removed.
    """

    KIND = "unknown"
    text: str = _has(_text(SENTENCE), "")


EventBody = Union[
    SupervisorReady, RankStarted, RankExited, LauncherStarted, LauncherEnded, DaemonAsked, DaemonAnswered, Trouble,
    DiskSpace, SupervisorGone, MessagesRefused, CancelBegan, NodeClosed, SchedulerReport, AttemptBegan, TaskReport, RanksReset,
    Waiting, Looks, Now, JobUnknown,
]  # fmt: skip
CLASSES: "tuple[Any, ...]" = cast("Any", EventBody).__args__
"""The class of every kind of event."""
CLASS_OF: Mapping[str, Any] = {one.KIND: one for one in CLASSES}
"""Kind -> its class."""
_FRAMES = frozenset({Looks.KIND, Now.KIND, JobUnknown.KIND})
"""Kinds without a number: they are not in the `events` file."""
OUTPUT, TAIL = "data", "tail"
"""Frames that the reader of a stream takes itself: bytes of a log; size and
last line of a log that is not watched.
"""

_ANY_NODE = frozenset(
    one.KIND
    for one in (
        SupervisorReady, RankStarted, RankExited, LauncherStarted, LauncherEnded, Trouble, DiskSpace,
        SupervisorGone, MessagesRefused, CancelBegan, NodeClosed, Looks, Now, JobUnknown,
    )
) | {OUTPUT, TAIL}  # fmt: skip
MAY_SAY: Mapping[tuple[Part, str], frozenset[str]] = {
    (Part.SUPERVISOR, ""): _ANY_NODE | {DaemonAsked.KIND, DaemonAnswered.KIND},
    (Part.KEEPER, "slurm"): _ANY_NODE | {SchedulerReport.KIND, AttemptBegan.KIND, TaskReport.KIND},
    (Part.KEEPER, "kubernetes"): _ANY_NODE | {RanksReset.KIND, Waiting.KIND},
    (Part.KEEPER, ""): _ANY_NODE,
    (Part.RANK, ""): frozenset({RankStarted.KIND, RankExited.KIND, DaemonAsked.KIND}),
    (Part.BROWSE, ""): frozenset({OUTPUT, "end", "found", "no"}),
}
"""(part, backend; "": any other) -> the kinds of events and frames that it may send."""


def may_say(part: Part, backend: str, kind: str) -> bool:
    """Whether this part of a job of this backend may send this kind."""
    kinds = MAY_SAY.get((part, backend)) or MAY_SAY[part, ""]
    return kind in kinds


class JobEvent(Value):
    """An event as its sender wrote it."""

    at: float
    """Epoch seconds of the sender's clock."""
    body: EventBody
    seq: Optional[int] = None
    """Its number in the `events` file; None for a frame."""


def parse_event(row: Mapping[str, Any], origin: Origin) -> JobEvent:
    """The event in a row of decoded JSON, if its sender may say it
    about these ranks; raises EventError.

    A field that is missing or not valid has its default, and unknown fields
    are ignored: a newer agent may send them.
    """
    kind, at = row.get("kind"), row.get("at")
    if kind == Trouble.KIND and "gone" in row:
        kind, row = SupervisorGone.KIND, {**row, "last": row["gone"]}  # as older agents wrote it
    make = CLASS_OF.get(kind) if isinstance(kind, str) else None
    if make is None:
        raise EventError("an event of a kind that does not exist")
    if not may_say(origin.part, origin.backend, make.KIND):
        raise EventError(f"`{make.KIND}`, which {_named(origin)} may not say")
    if type(at) not in (int, float) or not 0 <= cast("float", at) < _LAST_STAMP:
        raise EventError("an event at an impossible time")
    seq = None if make.KIND in _FRAMES else _number_of(row)
    return JobEvent(float(cast("float", at)), _own(_body(make, row), origin), seq)


def _number_of(row: Mapping[str, Any]) -> int:
    seq = row.get("seq")
    if type(seq) is not int or not 0 <= seq < 1 << 53:
        raise EventError("an event without a number")
    return seq


def _own(body: EventBody, origin: Origin) -> EventBody:
    """The event without looks at ranks of others; raises EventError if
    it speaks of one in any other way.
    """
    if isinstance(body, Looks):
        return Looks(tuple(look for look in body.rows if look.rank in origin.ranks))
    if isinstance(body, LauncherEnded) and body.verdict and origin.part is not Part.KEEPER:
        raise EventError(f"a verdict of a scheduler, which {_named(origin)} may not say")
    foreign = [rank for rank in _ranks_in(body) if rank not in origin.ranks]
    if foreign:
        raise EventError(f"`{body.KIND}` of rank {min(foreign)}, which does not run there")
    return body


def _named(origin: Origin) -> str:
    return f"the {origin.part.value} of a job on {origin.backend}"


def _ranks_in(body: EventBody) -> Iterable[int]:
    """The ranks that an event speaks of."""
    if isinstance(body, SupervisorGone):
        return body.running
    rank = cast("Optional[int]", getattr(body, "rank", None))
    return () if rank is None else (rank,)


def _body(make: Any, row: Mapping[str, Any]) -> EventBody:  # noqa: ANN401 - a class of events
    values: dict[str, Any] = {}
    for name, known in list_fields(make).items():
        value = _valid(known.metadata.read, row[name]) if name in row else _INVALID
        if value is not _INVALID:
            values[name] = value
        elif known.default is NEEDED:
            raise EventError(f"`{make.KIND}` without a valid `{name}`")
    return cast("EventBody", make(**values))


def as_row(body: EventBody) -> dict[str, Any]:
    """The JSON object of an event: its kind and its fields, most only
    if they differ from their default.
    """
    found: dict[str, Any] = {"kind": body.KIND}
    for name, known in list_fields(body).items():
        value = getattr(body, name)
        if known.metadata.always or value != known.default:
            found[name] = _plain(value)
    return found


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(one) for one in cast("tuple[object, ...]", value)]
    if isinstance(value, SchedulerVerdict):
        return verdict_row(value)
    if isinstance(value, (LastLook, Look, ProgramEnd)):
        return list(vars(value).values())
    return value
