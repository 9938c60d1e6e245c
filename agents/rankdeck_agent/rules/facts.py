"""The input of a judgement: numbers of a sample, events and how
long they count, what cannot be read.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Optional, Union

from rankdeck_agent.rdma_counters import COUNTED
from rankdeck_agent.rules.levels import Expected, Level, Reason, Sentence
from rankdeck_agent.rules.table import BY_METRIC, CHECKS, RULES
from rankdeck_agent.wire import Event

Number = Union[int, float]
Table = Mapping[str, Mapping[str, Number]]


@dataclass(frozen=True)
class Facts:
    """Everything that a node is judged by."""

    now: float
    """When it is judged: seconds on the judge's clock."""
    at: float = 0.0
    """Time of the newest sample, on the node's clock."""
    up: bool = True
    heard_s: Optional[float] = 0.0
    """Seconds since the last sample; None: never."""
    patience: float = 3.0
    """Seconds of silence after which the node counts as silent."""
    attach: str = ""
    """What is wrong with the SSH connection or the agent's start; "" if nothing."""
    values: Table = field(default_factory=dict[str, dict[str, Number]])
    """Metric -> device -> number, as in wire.Sample."""
    absent: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    blind: frozenset[str] = frozenset()
    """See wire.Sample."""
    inventory: Mapping[str, str] = field(default_factory=dict[str, str])
    boot: str = ""
    uptime: Optional[float] = None
    """Seconds since boot; None if not known."""
    events: tuple[Event, ...] = ()
    """Events since the last judgement."""
    seen_up: frozenset[tuple[str, str]] = frozenset()
    """(metric, device) of links that were up in any sample so far."""
    skew: Optional[float] = None
    """Seconds that the node's clock is ahead of the judge's; negative: behind; None: not known."""
    seen: frozenset[tuple[str, str]] = frozenset()
    """(metric of KEPT, device) of what was there in any sample of this
    boot; without it nothing can be gone.
    """
    most: Mapping[str, Number] = field(default_factory=dict[str, Number])
    """Metric of SIZES -> its largest number in this boot."""
    expected: Expected = field(default_factory=Expected)
    busy: bool = False
    """A job of ours runs there, so memory in use is not a leftover of an earlier job."""
    driver_limit: float = 30.0
    """Seconds without an answer after which the GPU driver counts as hanging."""
    drift: Optional[tuple[Reason, ...]] = None
    """How the node differs from its peers; None if there are none to compare with."""


@dataclass(frozen=True)
class RuleMark:
    """The state of one rule for one device."""

    began: float
    held: float
    """When the condition last held."""
    fired: bool
    text: str = ""


@dataclass(frozen=True)
class ActiveEvent:
    """An event that still counts."""

    reason: Reason
    at: float
    """On the node's clock."""
    until: float
    """On the judge's clock."""
    count: int = 1


EventKey = tuple[str, str, Level]
"""(check, device with the Xid number if there is one, level)."""
Key = tuple[int, str]
"""(row in RULES, device)."""
Growth = tuple[tuple[float, Number], ...]
"""(when, by how much) a counter grew, oldest first."""


@dataclass(frozen=True)
class Memory:
    """What the next judgement needs from earlier ones. Immutable."""

    boot: str = ""
    marks: Mapping[Key, RuleMark] = field(default_factory=dict[Key, RuleMark])
    last: Table = field(default_factory=dict[str, dict[str, Number]])
    """The newest readings of counters."""
    grown: Mapping[Key, Growth] = field(default_factory=dict[Key, Growth])
    happened: Mapping[EventKey, ActiveEvent] = field(default_factory=dict[EventKey, ActiveEvent])
    calm: Table = field(default_factory=dict[str, dict[str, Number]])
    """Readings for which no rule can hold; not checked again while they are the same objects."""
    settled: bool = False
    """A sample was judged before, so the growth of counters is known."""


MOST_UNREAD = 3
_LOG = "kernel.events"
CUT = ("net.interfaces", "disk.disks", "disk.mounts", "nvme.drives")
"""Kinds of devices of which a node may have more than are read."""
_COUNTERS = ("rdma.counters.", "rdma.counters_ext.", "rdma.hw_counters.")
_SAME_CHECK: Mapping[str, frozenset[str]] = {
    metric: frozenset(
        other.metric for other in RULES for _, rule in rows if other.part_of == rule.part_of
    )
    for metric, rows in BY_METRIC.items()
}
_FABRIC = next(check.number for check in CHECKS if check.name == "fabric")
"""A check that never finds a problem: if it cannot be judged, the node does not become unknown."""
_OF_THE_NODE = frozenset(rule.metric for rule in RULES if rule.part_of != _FABRIC)


@dataclass(frozen=True)
class Unread:
    """What could not be read: metric or metric/device -> why, in two groups."""

    trouble: Mapping[str, str]
    """Numbers that a rule needs: the rule cannot be judged without them."""
    beside: Mapping[str, str]
    """What is not needed: missing permissions, saturated counters whose check
    others still judge, numbers without a rule.
    """


_NOTHING = Unread({}, {})


def split_unread(failed: Mapping[str, str], blind: Collection[str], values: Table) -> Unread:
    """Sort what a node could not read by whether a check needs it; `blind` as in wire.Sample."""
    if not failed:
        return _NOTHING
    beside = {key: why for key, why in failed.items() if is_beside(key, blind, values)}
    return Unread({key: why for key, why in failed.items() if key not in beside}, beside)


def is_beside(key: str, blind: Collection[str], values: Table) -> bool:
    """Whether health can be judged although this could not be read."""
    if key == _LOG:
        return key in blind
    if key in CUT:
        return True
    metric, _, device = key.partition("/")
    name = kernel_name(metric)
    if name:
        return key in blind or not any(m in BY_METRIC for m in COUNTED.get(name, ()))
    if not metric.startswith("rdma.") or key not in blind:
        return False
    others = _SAME_CHECK.get(metric, ())
    return metric not in _OF_THE_NODE or any(device in values.get(o, ()) for o in others)


def kernel_name(metric: str) -> str:
    """The kernel's name of an RDMA counter; "" for any other metric."""
    return next((metric[len(p) :] for p in _COUNTERS if metric.startswith(p)), "")


def describe_limits(beside: Mapping[str, str]) -> str:
    """A sentence about what cannot be seen, and what to do; "" for nothing."""
    if not beside:
        return ""
    parts = [beside[key] for key in (_LOG, *CUT) if key in beside]
    alike: dict[tuple[str, str], list[str]] = {}
    for key, why in beside.items():
        metric, _, device = key.partition("/")
        name = kernel_name(metric)
        if name:
            alike.setdefault((name, why), []).append(device)
    parts += [
        f"{name} of {name_first_device(devices)}: {why}"
        for (name, why), devices in list(alike.items())[:MOST_UNREAD]
    ]
    more = len(alike) - MOST_UNREAD
    return "; ".join((*parts, f"{more} other counters") if more > 0 else parts)


def blind_words(blind: Iterable[str], number: int) -> str:
    """The saturated counters of the check of this number: `blind: symbol_error
    of mlx5_0/1 and 8 more`; "" for none.
    """
    names: dict[str, list[str]] = {}
    for key in sorted(blind):
        metric, _, device = key.partition("/")
        name = kernel_name(metric)
        rows = (row for m in COUNTED.get(name, ()) for row in BY_METRIC.get(m, ()))
        if any(rule.part_of == number for _, rule in rows):
            names.setdefault(name, []).append(device)
    unread = ", ".join(f"{name} of {name_first_device(devices)}" for name, devices in names.items())
    return f"blind: {unread}" if unread else ""


_KINDS: Mapping[str, str] = {
    "agent": "the agent", "cgroup": "the agent's control group", "cpu": "the processor",
    "disk": "disk", "edac": "memory module", "gpu": "GPU", "hwmon": "sensor chip",
    "kernel": "the kernel", "md": "RAID array", "mem": "memory", "net": "interface",
    "nvme": "NVMe drive", "pi": "the Raspberry Pi's firmware", "psi": "the kernel's pressure",
    "rdma": "RDMA port", "sensor": "sensor",
}  # fmt: skip
"""First part of a metric -> what it is about, for people."""
_OF_ALL: Mapping[str, str] = {
    "disk": "the disks", "edac": "the memory modules", "gpu": "the GPUs", "hwmon": "the sensors",
    "md": "the RAID arrays", "net": "the interfaces", "nvme": "the NVMe drives",
    "rdma": "the RDMA ports", "sensor": "the sensors",
}  # fmt: skip
"""The same where no device is named."""


def name_device(key: str) -> str:
    """What `METRIC/DEVICE` or `METRIC` is about: `GPU 1`, `the processor`, `the disks`."""
    metric, _, device = key.partition("/")
    kind = metric.partition(".")[0]
    name = _KINDS.get(kind, kind)
    return f"{name} {device}" if device else _OF_ALL.get(kind, name)


def name_first_device(names: list[str]) -> str:
    """`mlx5_0/1 and 8 more`."""
    return names[0] + (f" and {len(names) - 1} more" if names[1:] else "")


MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
EPOCH = 1e9
"""Times before this, in epoch seconds, are not a real date: the clock is not set."""
MOST = 64
LEVELS = {"ok": Level.OK, "info": Level.OK, "warn": Level.WARN, "bad": Level.BAD}


@dataclass(frozen=True)
class EventKind:
    """How events of one check are judged; `do` is used if the event
    itself does not say what to do.
    """

    part_of: int
    lasts: float
    """Seconds until an event no longer counts; a reboot ends it earlier."""
    means: str
    do: str = "see the kernel log of the node"


KINDS: Mapping[str, EventKind] = {
    "kernel.xid": EventKind(4, 3 * DAY, "the driver reports an error of this GPU"),
    "kernel.sxid": EventKind(4, 3 * DAY, "an NVSwitch reports an error", "drain, check NVSwitch and fabric manager"),
    "kernel.gpu": EventKind(2, 3 * DAY, "the GPU is lost to the node"),
    "kernel.nvlink": EventKind(10, HOUR, "NVLinks of a GPU do not start"),
    "kernel.amdgpu": EventKind(5, DAY, "the GPU hung or was reset"),
    "kernel.ras": EventKind(5, DAY, "the memory or the blocks of the GPU have errors"),
    "kernel.nic": EventKind(7, HOUR, "the adapter is in trouble"),
    "kernel.ceph": EventKind(9, HOUR, "a Ceph server does not answer"),
    "kernel.cifs": EventKind(9, HOUR, "a file server does not answer"),
    "kernel.lustre": EventKind(9, HOUR, "the node lost a Lustre server"),
    "kernel.gpfs": EventKind(9, HOUR, "the node lost its GPFS cluster"),
    "kernel.bnxt": EventKind(7, HOUR, "the adapter is in trouble"),
    "kernel.peermem": EventKind(12, HOUR, "RDMA to GPU memory fails"),
    "kernel.nccl": EventKind(24, 10 * MINUTE, "a program failed, not the node"),
    "kernel.oom": EventKind(17, 10 * MINUTE, "a process was killed because memory ran out", "use fewer ranks or a smaller problem"),
    "kernel.edac": EventKind(16, DAY, "a memory module is failing", "replace the DIMM that it names"),
    "kernel.mce": EventKind(16, DAY, "the processor found a hardware error"),
    "kernel.nfs": EventKind(9, 10 * MINUTE, "processes that use the path hang", "do not touch it; check the server"),
    "kernel.disk": EventKind(18, HOUR, "the disk or its controller fails", "save what is on it, replace it"),
    "kernel.hung": EventKind(21, 10 * MINUTE, "a driver or file server hangs"),
    "kernel.lockup": EventKind(21, HOUR, "a core is stuck in the kernel", "drain, reboot"),
    "kernel.panic": EventKind(21, DAY, "the kernel is damaged", "drain, reboot, keep the log"),
    "kernel.thermal": EventKind(19, 10 * MINUTE, "a processor slows down", "check fans and inlet air"),
    "kernel.voltage": EventKind(19, HOUR, "the board slows down, cards get corrupted", "use a stronger supply"),
    "kernel.mlx5": EventKind(7, HOUR, "the adapter is in trouble"),
    "kernel.link": EventKind(8, 2 * MINUTE, "the link went down"),
    "kernel.pcie": EventKind(15, HOUR, "the lanes of a device are disturbed", "reseat it"),
    "kernel.iommu": EventKind(15, HOUR, "transfers of this device were refused"),
    "kernel.files": EventKind(21, HOUR, "no process can open another file"),
    "kernel.limits": EventKind(21, HOUR, "a limit of the kernel is reached: connections or programs fail"),
    "kernel.clock": EventKind(20, DAY, "the clock of the processor cannot be trusted"),
    "kernel.log": EventKind(1, 10 * MINUTE, "not all lines were seen"),
    "node.reboot": EventKind(20, HOUR, "whatever ran there is gone", "see the end of the last kernel log, power and BMC"),
    "agent": EventKind(1, 10 * MINUTE, "its checks are not judged", "look at what the error names"),
}  # fmt: skip
"""Check of an event -> its kind; for `a.b.c` the longest of `a.b.c`,
`a.b` and `a` that is listed here.
"""
OTHER = EventKind(21, 10 * MINUTE, "the node says so itself")


def event_kind(check: str) -> EventKind:
    """The kind of events of this check."""
    while check:
        if check in KINDS:
            return KINDS[check]
        check = check.rpartition(".")[0]
    return OTHER


def remember_events(facts: Facts, memory: Memory) -> Mapping[EventKey, ActiveEvent]:
    """The events that count now: earlier ones that have not ended, and the new ones."""
    kept = memory.happened
    if facts.boot and memory.boot and facts.boot != memory.boot:
        kept = dict[EventKey, ActiveEvent]()
    if any(one.until <= facts.now for one in kept.values()):
        kept = {key: one for key, one in kept.items() if one.until > facts.now}
    for event in facts.events:
        kept = _with(kept, event, facts)
    return kept


def _with(
    kept: Mapping[EventKey, ActiveEvent], event: Event, facts: Facts
) -> Mapping[EventKey, ActiveEvent]:
    """Add an event.

    A milder one does not replace a worse one of the same thing: only an "ok" ends that.
    """
    device = event.device if event.link is None else f"{event.device} link {event.link}"
    part = device if event.number is None else f"{device}/{event.number}"
    level = LEVELS.get(event.level, Level.WARN)
    if level is Level.OK:
        return _ended(kept, event, part) if event.level == "ok" else kept
    key = (event.check, part, level)
    before = kept.get(key)
    kind = event_kind(event.check)
    age = max(0.0, facts.at - event.at) if event.at > EPOCH < facts.at else 0.0
    # An agent that starts sends recent events again.
    if age >= kind.lasts or (before and event.at == before.at):
        return kept
    count = before.count + 1 if before else 1
    text = event_sentence(event, kind)
    since = before.reason.since if before else facts.now - age
    text = f"{count} times: {text}" if count > 1 else text
    reason = Reason(event.check, level, text, device, since)
    made = ActiveEvent(reason, event.at, facts.now - age + kind.lasts, count)
    rest = {k: one for k, one in kept.items() if k != key}
    return dict([*_room(rest), (key, made)])


def _ended(
    kept: Mapping[EventKey, ActiveEvent], event: Event, part: str
) -> Mapping[EventKey, ActiveEvent]:
    """Remove the events that this "ok" ends; not those with the same time, for
    both are sent again when an agent starts.
    """
    return {
        key: one
        for key, one in kept.items()
        if key[:2] != (event.check, part) or one.at == event.at
    }


def _room(kept: Mapping[EventKey, ActiveEvent]) -> list[tuple[EventKey, ActiveEvent]]:
    """Make room for one more: drop the oldest of the mildest events, so
    that a flood hides nothing worse.
    """
    rows = list(kept.items())
    if len(rows) >= MOST:
        rows.remove(min(rows, key=lambda row: row[1].reason.level))
    return rows


def event_sentence(event: Event, kind: EventKind) -> str:
    """seen · means · do; the first comes from the event, and the last if the event has it."""
    parts = Sentence.of(event.text)
    if parts.action:
        return event.text
    return str(Sentence(parts.seen, kind.means, parts.means or kind.do))
