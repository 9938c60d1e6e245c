"""How every screen writes numbers, ages, signals, and the state of nodes and ranks."""

import time
from collections.abc import Sequence
from datetime import datetime

from rankdeck.model.health import REMEMBERED, Occurrence, with_device
from rankdeck.model.rank import Activity, signal_name, signal_of
from rankdeck.model.safe_text import printable_line
from rankdeck.model.text import day_time
from rankdeck.rules.query import Subject
from rankdeck.state.fleet import NodeState
from rankdeck_agent.rules.levels import Level, Reason, by_cause

NOTHING = "–"
BYTES = ("B", "K", "M", "G", "T", "P")


def format_percent(value: float | None) -> str:
    """`42%`."""
    return "" if value is None else f"{value:.0f}%"


def format_plain(value: float | None, digits: int = 0) -> str:
    """A number without a unit."""
    return "" if value is None else f"{value:.{digits}f}"


def format_celsius(value: float | None) -> str:
    """`61°`."""
    return "" if value is None else f"{value:.0f}°"


def format_watts(value: float | None) -> str:
    """`340W`, `1.2kW`, `1.5MW`."""
    if value is None:
        return ""
    if value < 999.5:
        return f"{value:.0f}W"
    kilo, unit = (value / 1e3, "kW") if value < 999.5e3 else (value / 1e6, "MW")
    return f"{kilo:.0f}{unit}" if kilo >= 99.95 else f"{kilo:.1f}{unit}"


def format_size(value: float | None, step: int = 1024) -> str:
    """`1.5G`: at most three digits and a letter."""
    if value is None:
        return ""
    for unit in BYTES[:-1]:
        if abs(value) < 999.5:
            digits = 1 if abs(value) < 9.95 and unit != "B" else 0
            return f"{value:.{digits}f}{unit}"
        value /= step
    return f"{value:.0f}{BYTES[-1]}"


def format_count(value: float) -> str:
    """A count: `7`, `1.2K`."""
    return format_size(value, 1000).removesuffix("B")


def format_rate(value: float | None) -> str:
    """Bytes per second: `12M/s`."""
    return "" if value is None else f"{format_size(value, 1000)}/s"


def format_traffic(value: float | None) -> str:
    """Bytes per second on a network, in the unit in which links are rated: `96Mb/s`."""
    return "" if value is None else f"{format_size(value * 8, 1000).removesuffix('B')}b/s"


def format_link_speed(value: float | None) -> str:
    """The speed of a link: `25 Gb/s`."""
    return "" if value is None else f"{value / 1e9:g} Gb/s"


def format_age(seconds: float | None) -> str:
    """`3s`, `4m`, `2h`, `5d`: how long ago, in one unit."""
    if seconds is None:
        return "never"
    for length, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= length:
            return f"{seconds // length:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"


def format_duration(seconds: float) -> str:
    """`1:02:03` or `2:03`."""
    whole = max(int(seconds), 0)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def format_clock(at: float, *, millis: bool = False) -> str:
    """Time of day in this machine's time zone."""
    moment = datetime.fromtimestamp(at)
    return f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03}" if millis else f"{moment:%H:%M:%S}"


def format_day(at: float) -> str:
    """Day and time of day in this machine's time zone; NOTHING if `at` is not a valid time."""
    return day_time(at) or NOTHING


def format_many(number: int, noun: str, more: bool = False) -> str:
    """`1 node`, `2 nodes`; with `more`, `2+ nodes`."""
    return f"{number:,} {noun}" if number == 1 and not more else f"{number:,}{'+' * more} {noun}s"


def describe_activity(activity: Activity | None) -> str:
    """`in ep_poll`, `computes 0.98 cores`; "" if it is not known."""
    if activity is None:
        return ""
    if activity.computes:
        return f"computes {activity.cores:.2f} cores"
    return f"in {activity.wchan}" if activity.wchan else f"in state {activity.state}"


def describe_ending(code: int | None, number: int | None) -> str:
    """How a process ended: `exit 3`, `SIGKILL`; "" if it has not."""
    if number is not None:
        return signal_name(number)
    if code is None:
        return ""
    ended_by = signal_of(code, None)
    return f"exit {code} ({signal_name(ended_by)})" if ended_by else f"exit {code}"


LISTED = frozenset({"cpu.used", "mem.used", "gpu.temp", "cpu.load1", "disk.used", "cpu.cores"})
"""Metrics whose largest value is known for every node, without a full sample."""


def node_number(node: NodeState, metric: str) -> float | None:
    """One number for a metric: the largest of its devices; None if it is not known."""
    if metric in LISTED and not node.detailed:
        return node.summary(metric)
    return max(node.values.get(metric, {}).values(), default=None)


def is_acknowledged(node: NodeState) -> bool:
    """Whether the node counts as well only because what is wrong, or
    the whole node, was acknowledged.
    """
    return node.health.level is Level.OK and bool(node.health.reasons or node.silenced)


def word_of(level: Level, *, acknowledged: bool) -> str:
    """One word for how a node is."""
    return "acked" if acknowledged else level.word


def describe_worst_reason(node: NodeState) -> str:
    """The worst reason and how many more there are; without reasons, whether it is
    silenced, or only its scheduler says that all is well.
    """
    if node.health.reasons:
        return describe_worst_cause(node.health.reasons)
    if silenced := node.silenced:
        return f"silenced until {format_day(silenced.until)}"
    view = node.in_scheduler
    return view.alone if view is not None and not node.was_heard else ""


def describe_worst_cause(reasons: Sequence[Reason]) -> str:
    """The first cause in words, whether it is only remembered, and
    how many more causes there are.
    """
    causes = [cause for cause, _ in by_cause(reasons)]
    others = [reason for reason in causes[1:] if reason.check != REMEMBERED.check]
    more = f" (+{len(others)})" if others else ""
    before = "remembered: " if len(others) + 1 < len(causes) else ""
    return f"{before}{printable_line(causes[0].sentence.seen)}{more}"


def advise_on_worst_cause(reasons: Sequence[Reason]) -> str:
    """What to do about the first cause; "" without reasons, or if that is not known."""
    cause = next((cause for cause, _ in by_cause(reasons)), None)
    return printable_line(cause.sentence.action) if cause else ""


def describe_occurrence(one: Occurrence) -> str:
    """What happened on a node in a few words, with its device; what is over is called that."""
    over = "over: " if one.kind == "ended" else ""
    return f"{over}{with_device(one.device, one.seen, one.check)}"


def node_subject(node: NodeState) -> Subject:
    """The node as filters see it."""
    word = word_of(node.health.level, acknowledged=is_acknowledged(node))
    searched = printable_line(node.in_scheduler.searched, 4000) if node.in_scheduler else ""
    text = f"{node.name} {word} {describe_worst_reason(node)} {searched}"
    checks = frozenset(reason.check for reason in node.health.reasons)
    return Subject(
        text,
        node.health.level.word,
        lambda metric: node_number(node, metric),
        node.name,
        checks,
        lambda word: node.in_scheduler.values_of(word) if node.in_scheduler else (),
    )


def is_simulated(node: NodeState, metric: str) -> bool:
    """Whether the numbers of this metric are simulated."""
    return any(metric == prefix or metric.startswith(f"{prefix}.") for prefix in node.simulated)


def seconds_since(at: float) -> float:
    """Seconds from `at` (epoch seconds) until now."""
    return time.time() - at
