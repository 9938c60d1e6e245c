"""Stages, measurements and verdicts of acceptance."""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from rankdeck.values import Value


class Stage(StrEnum):
    """What a measurement was made for, in the order of a run."""

    GATE = "gate"
    """Which nodes may be measured."""
    IDENTITY = "identity"
    """How the nodes differ from the majority."""
    SINGLE = "single"
    PAIRS = "pairs"
    CONFIRM = "confirm"
    INSIDE = "inside"
    """All pairs are within a leaf: no traffic crosses leaves."""
    CROSSING = "crossing"
    """All pairs cross leaves at the same time."""
    ALONE = "alone"
    """One pair crosses leaves, everything else is idle."""
    GROUPS = "groups"
    """Collectives over more and more nodes."""
    SOAK = "soak"
    """The groups, repeated for a given time."""


GROUPED = (Stage.GROUPS, Stage.SOAK)
"""Stages that measure a group of nodes as one."""


class Outcome(StrEnum):
    """State or result of a measurement, or of all between two nodes, before
    judging; only `measured` has a value.
    """

    PENDING = "pending"
    RUNNING = "running"
    MEASURED = "measured"
    FAILED = "failed"
    """It failed, or computed wrong values: this counts against its nodes."""
    NOT_MEASURED = "not measured"
    """Nothing was learned about the nodes: it never began, was cut off, or gave no clear result."""
    REFUSED = "refused"
    """There is a number, but not for the hosts and ranks that were asked for."""
    EXCLUDED = "excluded"
    """The operator took one of its nodes out; this does not count against it."""

    @property
    def final(self) -> bool:
        return self not in (Outcome.PENDING, Outcome.RUNNING)


READ = (Outcome.MEASURED, Outcome.FAILED, Outcome.NOT_MEASURED, Outcome.REFUSED)
"""The outcomes that can be read from an output."""


class Result(Value, kw_only=True):
    """One measurement that was planned, runs, or is done."""

    stage: Stage
    recipe: str
    sender: str
    """The sending node; for a test of one node that node, for a group its first node."""
    receiver: str = ""
    """"" for a test of one node or of a group."""
    group: tuple[str, ...] = ()
    rail: int = 0
    port: int = 0
    round: int = 0
    repeat: int = 0
    outcome: Outcome = Outcome.PENDING
    value: float | None = None
    unit: str = ""
    seconds: float = 0.0
    text: str = ""
    """One sentence: what was read and what it means, or why there is no value."""
    raw: str = ""
    """File on this machine with the whole output; "" until there is output."""
    job: str = ""
    """Id of the job that measured it."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes that took part."""
        return self.group or tuple(filter(None, (self.sender, self.receiver)))

    @property
    def key(self) -> "Key":
        """What identifies it among the measurements of the run."""
        path = (self.stage, self.recipe, self.sender, self.receiver, self.group)
        return (*path, self.rail, self.port, self.round, self.repeat)


Key = tuple[Stage, str, str, str, tuple[str, ...], int, int, int, int]


class Answer(StrEnum):
    """The judgement of a node or a path, made from its measurements;
    only the first two are accepted.
    """

    GOOD = "good"
    FAIR = "fair"
    SLOW = "slow"
    UNSTEADY = "unsteady"
    WRONG_VALUES = "wrong values"
    FAILED = "failed"
    NOT_MEASURED = "not measured"
    REFUSED = "refused"
    LEFT_OUT = "left out"

    @property
    def accepted(self) -> bool:
        return self in (Answer.GOOD, Answer.FAIR)

    @property
    def bad(self) -> bool:
        """Whether it ran and is not good. If neither `bad` nor `accepted`, nothing was learned."""
        return self in (Answer.SLOW, Answer.UNSTEADY, *FAILS)


FAILS = {Answer.FAILED: "fails", Answer.WRONG_VALUES: "gives wrong values"}
"""Answer -> verb for a sentence about what failed."""


class Kind(StrEnum):
    """What is at fault."""

    NODE = "node"
    SENDS = "node, sending"
    RECEIVES = "node, receiving"
    HCA = "one port of a node"
    RAIL = "rail"
    PAIR = "pair"
    EQUAL_PATH = "one of equal paths"
    UPLINK = "uplink"
    LEAF = "leaf"
    SCALE = "scale"
    CONFIGURATION = "configuration"


class Verdict(Value, kw_only=True):
    """One fault that was found."""

    kind: Kind
    subject: str
    """`n3`, `n2–n6`, `leaf A`, `rail 2 of leaf A`."""
    answer: Answer
    sentence: str
    """What was seen and how often; what it means; what to try."""
    nodes: tuple[str, ...] = ()
    """Nodes that are not good because of it; () for a path or a switch."""
    leaves: tuple[str, ...] = ()
    """The leaves, if the fault is in leaves."""
    ends: tuple[str, ...] = ()
    """The two nodes of the path, if the fault is in a path."""
    stage: Stage = Stage.PAIRS
    """Where it was seen."""
    recipe: str = ""


class PathEnd(NamedTuple):
    """One end of a path: a node and the number of its rail (port)."""

    node: str
    rail: int = 0


Path = tuple[PathEnd, PathEnd]
"""Sender, receiver."""


class Measurement(Value, kw_only=True):
    """One measurement as the judge takes it: a value, or why there is none."""

    stage: Stage
    sender: str
    receiver: str = ""
    """"" for a test of one node."""
    value: float | None
    """Higher is better; None unless `status` is measured."""
    status: Outcome = Outcome.MEASURED
    round: int = 0
    repeat: int = 0
    rail: int = 0
    port: int = 0
    """Number of the TCP port (or queue pair) tried: each may take another ECMP path."""
    group: tuple[str, ...] = ()
    """All nodes of a collective over more than two."""
    text: str = ""
    """One sentence about its output; see `Result.text`."""
    resent: float = 0.0
    """Share of packets that were retransmitted, from 0 to 1."""

    @property
    def path(self) -> Path:
        return PathEnd(self.sender, self.rail), PathEnd(self.receiver, self.rail)

    @property
    def speed(self) -> float | None:
        """The value; 0 if it failed; None if nothing was learned."""
        return 0.0 if self.status is Outcome.FAILED else self.value


def failure_answer(failed: Iterable[Measurement | Result]) -> Answer:
    """The answer for failed runs: WRONG_VALUES if the text of any run says so, else FAILED."""
    wrong = any(Answer.WRONG_VALUES in one.text for one in failed)
    return Answer.WRONG_VALUES if wrong else Answer.FAILED


def measurement_of(one: Result, *, lower_is_better: bool = False) -> Measurement:
    """The measurement of a result.

    Higher is better, so a latency in µs becomes round trips a second.
    """
    value = one.value
    if value and lower_is_better:
        value = 1e6 / value
    status = one.outcome if one.outcome in READ else Outcome.NOT_MEASURED
    return Measurement(
        stage=one.stage,
        sender=one.sender,
        receiver=one.receiver,
        value=value if status is Outcome.MEASURED else None,
        status=status,
        round=one.round,
        repeat=one.repeat,
        rail=one.rail,
        port=one.port,
        group=one.group,
        text=one.text,
        resent=_resent(one),
    )


_RESENT = re.compile(r"\b(\d{1,12}) retransmits\b")
_SEGMENT = 1448
"""Payload bytes of a TCP packet with an MTU of 1,500; with a
larger MTU the true share is larger.
"""


def _resent(one: Result) -> float:
    """The share of packets that TCP retransmitted, from 0 to 1."""
    found = _RESENT.search(one.text) if one.unit == "Gb/s" else None
    packets = (one.value or 0.0) * 1e9 / 8 * one.seconds / _SEGMENT
    return min(int(found[1]) / packets, 1.0) if found and packets else 0.0
