"""Kinds of events of a node, and how long each counts."""

from collections.abc import Mapping

from rankdeck_agent.rules.facts import DAY, HOUR, MINUTE, ActiveEvent, EventKey, Facts, Memory
from rankdeck_agent.rules.levels import EVENT_LEVELS, Level, Reason, Sentence
from rankdeck_agent.values import Value, replace
from rankdeck_agent.wire import Event

EPOCH = 1e9
"""Times before this, in epoch seconds, are not a real date: the clock is not set."""
MOST = 64


class EventKind(Value):
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
    "kernel.irq": EventKind(21, HOUR, "the device of this interrupt is served slowly or not at all"),
    "kernel.panic": EventKind(21, DAY, "the kernel is damaged", "drain, reboot, keep the log"),
    "kernel.thermal": EventKind(19, 10 * MINUTE, "a processor slows down", "check fans and inlet air"),
    "kernel.voltage": EventKind(19, HOUR, "the board slows down, cards get corrupted", "use a stronger supply"),
    "kernel.mlx5": EventKind(7, HOUR, "the adapter is in trouble"),
    "kernel.link": EventKind(8, 2 * MINUTE, "the link went down"),
    "kernel.pcie": EventKind(15, HOUR, "the lanes of a device are disturbed", "reseat it"),
    "kernel.device": EventKind(15, HOUR, "a device or its firmware fails"),
    "kernel.critical": EventKind(21, HOUR, "the kernel calls this critical; Rankdeck does not know it", "look at the lines beside it"),
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
    level = EVENT_LEVELS.get(event.level, Level.WARN)
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


_RECOVERY = "/154"
"""End of the keys of Xid 154, in which the driver says what it needs."""


def event_reasons(happened: Mapping[EventKey, ActiveEvent]) -> tuple[Reason, ...]:
    """The events that count, as one reason of each check, device and level: what happened first,
    which is the cause, and what the driver asks for after it, if it does.
    """
    alike: dict[tuple[str, str, Level], list[tuple[EventKey, Reason]]] = {}
    for key, one in happened.items():
        reason = one.reason
        alike.setdefault((reason.check, reason.device, reason.level), []).append((key, reason))
    return tuple(map(_joined, alike.values()))


def _joined(rows: "list[tuple[EventKey, Reason]]") -> Reason:
    first = min((reason for _, reason in rows), key=lambda reason: reason.since or 0.0)
    asked = next((reason for key, reason in rows if key[1].endswith(_RECOVERY)), first)
    if asked is first:
        return first
    seen, means, _ = first.sentence
    text = Sentence(f"{seen}; then {asked.sentence.seen}", means, asked.sentence.action)
    return replace(first, text=str(text))


def event_sentence(event: Event, kind: EventKind) -> str:
    """seen · means · do; the first comes from the event, and the last if the event has it."""
    parts = Sentence.of(event.text)
    if parts.action:
        return event.text
    return str(Sentence(parts.seen, kind.means, parts.means or kind.do))
