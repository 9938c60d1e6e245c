"""The filter language: words, node sets and conditions, joined by `&`
and `|`, with parentheses and `!`.
"""

import operator
import re
import time
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING

from rankdeck.model.nodeset import expand_nodes
from rankdeck.model.rank import State
from rankdeck.values import Value
from rankdeck_agent.wire import METRICS

if TYPE_CHECKING:  # the first picture needs no jobs
    from rankdeck.model.job import Job
    from rankdeck.model.queue import QueueJob, QueueStatus

SHORT = {
    "cpu": "cpu.used",
    "mem": "mem.used",
    "gpu": "gpu.used",
    "temp": "gpu.temp",
    "load": "cpu.load1",
}
OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "==": operator.eq,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
CONDITION = re.compile(r"\s*([\w.]+)\s*(<=|>=|!=|==|=|<|>)\s*(\S+)\s*")
SCHEDULER_STATES = (
    "completing", "completed", "timeout", "out_of_memory", "node_fail", "preempted", "suspended", "configuring",
    "requeued", "deadline", "boot_fail", "stopped", "launch_failed", "reconfig_fail", "revoked",
)  # fmt: skip
"""Words of schedulers for the state of a job that a filter may use beside ours."""
STATES = ("ok", "unknown", "warn", "bad", *(str(state) for state in State), *SCHEDULER_STATES)
JOB_WORDS = ("user", "partition", "account", "qos", "reason")
"""What a scheduler says of a job, or of the jobs and partitions of a node."""
WORDS = ("state", "node", "check", "age", *JOB_WORDS)
AGE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd])")
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
DEEPEST = 40


class QueryError(ValueError):
    """A filter cannot be understood; the text says what to write, `column` (from 0) where."""

    def __init__(self, text: str, column: int = 0) -> None:
        super().__init__(text)
        self.column = column


class Subject(Value):
    """One line of a list, as filters see it."""

    text: str
    state: str
    number: Callable[[str], float | None]
    name: str = ""
    checks: frozenset[str] = frozenset()
    values: Callable[[str], Iterable[str]] = lambda _: ()
    """One of JOB_WORDS, `state` or `node` -> the further values of this line."""
    at: float | None = None
    """When it happened or began, in epoch seconds; None: it has no time."""


def job_subject(job: "Job", queued: "QueueJob | None", more: str) -> Subject:
    """A job that the console follows, as filters see it; `queued`: the same in
    the queue, `more`: further words.
    """
    nodes, state = job.nodes, job.state.value
    text = (
        f"{job.id} {job.name} {job.plan.part_of} {job.plan.owner} {state} {' '.join(nodes)} {more}"
    )
    status, user = (queued.status, queued.user) if queued else (job.in_scheduler, "")
    values = job_values(status, user, nodes)
    return Subject(text, state, lambda _: None, values=values, at=job.created)


def job_values(
    status: "QueueStatus | None", user: str, nodes: Iterable[str] = ()
) -> Callable[[str], Iterable[str]]:
    """`Subject.values` of a job: of this user, with these nodes besides those of the queue."""

    def values(word: str) -> Iterable[str]:
        if word == "user":
            return (user,)
        if status is None:
            return nodes if word == "node" else ()
        if word == "node":
            return (*nodes, *_names(status.nodes))
        if word == "reason":
            return (status.reason, *_FIRST_WORD.findall(status.reason))
        return (
            str(getattr(status, word)).split(",")
            if word == "partition"
            else (getattr(status, word),)
        )

    return values


_FIRST_WORD = re.compile(r"\A\w+")
"""`ReqNodeNotAvail` of `ReqNodeNotAvail, UnavailableNodes:n1`."""


@lru_cache(maxsize=4096)
def _names(nodes: str) -> tuple[str, ...]:
    """The nodes of a set as the queue writes it; () if it was cut or is none."""
    try:
        return tuple(expand_nodes(nodes.removesuffix(",…"))) if nodes else ()
    except ValueError:
        return ()


Query = Callable[[Subject], bool]


def query_metrics(text: str) -> frozenset[str]:
    """The metrics that the conditions of this filter use."""
    found = map(CONDITION.fullmatch, re.split(r"[&|()!]", text))
    names = {each[1] for each in found if each} - set(WORDS)
    return frozenset(SHORT.get(name, name) for name in names)


def parse_query(text: str) -> Query:
    """The filter for `text`; an empty text matches everything. Raises QueryError."""
    if not text.strip():
        return lambda subject: True
    reader = _Reader(text)
    query = reader.either(0)
    if reader.at < len(text):
        raise QueryError("a `)` without its `(`", reader.at)
    return query


class _Reader:
    """Parses from left to right; `at` is the current column."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def either(self, depth: int) -> Query:
        if depth > DEEPEST:
            raise QueryError("too many parentheses", self.at)
        parts = [self._both(depth)]
        while self._take("|"):
            parts.append(self._both(depth))
        return parts[0] if len(parts) == 1 else _joined(any, parts)

    def _both(self, depth: int) -> Query:
        parts = [self._one(depth)]
        while self._take("&"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else _joined(all, parts)

    def _one(self, depth: int) -> Query:
        if self._take("!"):
            if depth > DEEPEST:
                raise QueryError("too many `!`", self.at)
            inner = self._one(depth + 1)
            return lambda subject: not inner(subject)
        begin = self.at
        if self._take("("):
            query = self.either(depth + 1)
            if not self._take(")"):
                raise QueryError("this `(` has no `)`", begin + self._blank(begin))
            return query
        return self._atom()

    def _atom(self) -> Query:
        """The text up to the next operator or parenthesis."""
        self.at += self._blank(self.at)
        begin = self.at
        while self.at < len(self.text) and self.text[self.at] not in "&|()":
            self.at += 1
        words = self.text[begin : self.at].rstrip()
        if not words:
            raise QueryError("something is missing here", min(begin, len(self.text)))
        return _atom(words, begin)

    def _take(self, sign: str) -> bool:
        at = self.at + self._blank(self.at)
        if at < len(self.text) and self.text[at] == sign:
            self.at = at + 1
            return True
        self.at = at if at == len(self.text) else self.at
        return False

    def _blank(self, at: int) -> int:
        return len(self.text[at:]) - len(self.text[at:].lstrip())


def _joined(by: Callable[[Iterable[bool]], bool], parts: list[Query]) -> Query:
    return lambda subject: by(part(subject) for part in parts)


def _atom(text: str, column: int) -> Query:
    found = CONDITION.fullmatch(text)
    if found:
        return _condition(found, column)
    sign = next((at for at, c in enumerate(text) if c in "<>="), None)
    if sign is not None:
        what = f"cannot read `{text}`; write metric>number, for example gpu.temp>80"
        raise QueryError(what, column + sign)
    if "[" in text:
        return _nodes(text, column)
    word = text.lower()
    return lambda subject: word in subject.text.lower()


def _nodes(text: str, column: int) -> Query:
    """The names of a node set such as n[01-04]."""
    try:
        names = frozenset(expand_nodes(text))
    except ValueError as error:
        raise QueryError(str(error), column) from error
    return lambda subject: subject.name in names or not names.isdisjoint(subject.values("node"))


def _condition(found: "re.Match[str]", column: int) -> Query:
    name, sign, value = found.groups()
    if name not in WORDS:
        return _metric(found, column)
    if name == "age":
        return _age(found, column)
    if sign not in ("=", "==", "!="):
        raise QueryError(f"{name} takes = or !=", column + found.start(2))
    if name == "state" and value.lower() not in STATES:
        known = ", ".join(STATES)
        raise QueryError(f"no state `{value}`; there are {known}", column + found.start(3))
    inner = _named(name, value, column + found.start(3))
    if sign != "!=":
        return inner
    return lambda subject: not inner(subject)


def _named(name: str, value: str, column: int) -> Query:
    if name == "node":
        return _nodes(value, column)
    if name == "check":
        return lambda subject: value in subject.checks
    wanted = value.lower()
    if name == "state":
        return lambda subject: (
            subject.state == wanted or wanted in map(str.lower, subject.values("state"))
        )
    return lambda subject: wanted in map(str.lower, subject.values(name))


def _age(found: "re.Match[str]", column: int) -> Query:
    """What happened or began less, or more, than so long ago."""
    _, sign, value = found.groups()
    span = AGE.fullmatch(value)
    if span is None:
        raise QueryError(
            f"`{value}` is no age; write age<2h, with s, m, h or d", column + found.start(3)
        )
    limit, compare = float(span[1]) * SECONDS[span[2]], OPERATORS[sign]
    return lambda subject: subject.at is not None and compare(time.time() - subject.at, limit)


def _metric(found: "re.Match[str]", column: int) -> Query:
    name, sign, value = found.groups()
    metric = SHORT.get(name, name)
    if metric not in METRICS:
        near = get_close_matches(name, [*METRICS, *SHORT, *WORDS], 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise QueryError(f"no metric `{name}`{hint}", column + found.start(1))
    try:
        limit = float(value.rstrip("%"))
    except ValueError:
        raise QueryError(f"`{value}` is not a number", column + found.start(3)) from None
    compare = OPERATORS[sign]

    def judge(subject: Subject) -> bool:
        number = subject.number(metric)
        return number is not None and compare(number, limit)

    return judge


def point_at_mistake(error: QueryError, width: int) -> str:
    """A line to show under the prompt: a mark below the mistake, and the sentence beside it."""
    text, column = str(error), error.column
    if column + len(text) + 2 <= width or len(text) + 2 > column:
        return " " * column + f"^ {text}"
    return f"{text} ^".rjust(column + 1)
