"""What makes a node unhealthy: one table, one pure function."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rankdeck.model.health import Health, Level, Reason
from rankdeck.model.units import duration, written
from rankdeck.rules.table import RULES, Rule

REASONS = 64
CLOCK_SKEW = 2.0
AT_MOST_SHOWN = 5

Number = int | float
Table = Mapping[str, Mapping[str, Number]]


def _nothing() -> dict[str, dict[str, float]]:
    return {}


@dataclass(frozen=True, slots=True)
class Expected:
    """What the cluster file says a node has."""

    gpus: int = 0
    rdma: int = 0
    interface: str = ""
    other: Mapping[str, str | int | float] = field(
        default_factory=dict[str, str | int | float]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that a node is judged by, at one instant of the console's clock."""

    now: float
    up: bool = True
    heard_s: float | None = 0.0
    """Seconds since the last sample; None: never."""
    patience: float = 3.0
    """Silence longer than this is noticed."""
    attach: str = ""
    """What is wrong with the SSH connection or the agent's start; "" if nothing."""
    values: Table = field(default_factory=_nothing)
    rates: Table = field(default_factory=_nothing)
    absent: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    inventory: Mapping[str, str] = field(default_factory=dict[str, str])
    seen_up: frozenset[tuple[str, str]] = frozenset()
    """(metric, device) of links that were up while we looked."""
    skew: float | None = None
    expected: Expected = Expected()


@dataclass(frozen=True, slots=True)
class Mark:
    """Where one rule stands for one device."""

    since: float
    """When the condition began to hold, or, of one that fired, last held."""
    fired: bool
    text: str = ""


Memory = Mapping[tuple[int, str], Mark]
"""(row in RULES, device) -> mark."""


def assess(facts: Facts, memory: Memory) -> tuple[Health, Memory]:
    """Health now, and what must be remembered for the next time. Silence is never OK."""
    checks = _count(facts)
    if silence := _silence(facts):
        return Health(silence.level, (silence,), 0, len(checks)), memory
    reasons, kept = _by_rules(facts, memory)
    reasons += _expectations(facts) + _links(facts) + _unread(facts)
    if facts.attach:
        reasons.append(Reason("node.ssh", Level.WARN, facts.attach))
    evaluated = sum(checks.values())
    if not evaluated:
        text = "no check could be judged · the node sends no number that is known · look at its agent"
        reasons.append(Reason("node.coverage", Level.UNKNOWN, text))
    worst = tuple(sorted(_worst_each(reasons), key=lambda r: -r.level)[:REASONS])
    level = worst[0].level if worst else Level.OK
    return Health(level, worst, evaluated, len(checks)), kept


def _silence(facts: Facts) -> Reason | None:
    why = (
        facts.attach or "the node, its network or its agent may be down · try to log in"
    )
    if not facts.up:
        return Reason("node.silent", Level.UNKNOWN, f"the agent has gone · {why}")
    if facts.heard_s is None:
        return Reason(
            "node.silent",
            Level.UNKNOWN,
            facts.attach or "not heard yet · waiting for the agent",
        )
    if facts.heard_s > facts.patience:
        return Reason(
            "node.silent",
            Level.UNKNOWN,
            f"silent for {duration(facts.heard_s)} · {why}",
        )
    return None


def _count(facts: Facts) -> dict[str, bool]:
    """Check -> whether it can be judged; what the node does not have is left out."""
    checks: dict[str, bool] = {}
    for rule in RULES:
        if rule.metric in facts.absent:
            continue
        source = facts.rates if rule.rate else facts.values
        checks[rule.check] = checks.get(rule.check, False) or bool(
            source.get(rule.metric)
        )
    return checks


# ---- the table


def _by_rules(facts: Facts, memory: Memory) -> tuple[list[Reason], Memory]:
    reasons: list[Reason] = []
    kept: dict[tuple[int, str], Mark] = {}
    for row, rule in enumerate(RULES):
        numbers = (facts.rates if rule.rate else facts.values).get(rule.metric)
        if not numbers or not (rule.sticky or _may_hold(rule, numbers)):
            continue
        for device, number in numbers.items():
            mark = _step(
                rule,
                _shown(rule, facts, device, number),
                device,
                memory.get((row, device)),
                facts.now,
            )
            if mark:
                kept[row, device] = mark
                if mark.fired:
                    reasons.append(Reason(rule.check, rule.level, mark.text, device))
    return reasons, kept


def _may_hold(rule: Rule, numbers: Mapping[str, Number]) -> bool:
    """Whether any device can be over the line: most rows end here."""
    return max(numbers.values()) >= min(rule.enter, rule.clear) or bool(rule.over)


def _shown(rule: Rule, facts: Facts, device: str, number: Number) -> float | None:
    """The number to compare: itself, or its share of another metric."""
    if not rule.over:
        return number
    by = facts.values.get(rule.over, {}).get(device)
    return number / by if by else None


def _step(
    rule: Rule, number: float | None, device: str, mark: Mark | None, now: float
) -> Mark | None:
    """The mark of one rule and device after this reading."""
    if number is None:
        return None
    fired = mark is not None and mark.fired
    if number >= (rule.clear if fired else rule.enter):
        since = now if fired or mark is None else mark.since
        return Mark(
            now if fired else since,
            fired or now - since >= rule.hold,
            rule.say(device, number),
        )
    if mark and fired and now - mark.since < rule.sticky:
        return mark
    return None


# ---- what is not a threshold


def _expectations(facts: Facts) -> list[Reason]:
    wanted = facts.expected
    found = [
        _counted("gpu.count", "GPU", wanted.gpus, facts, "gpu.mem_total", "gpu.used"),
        _counted("rdma.count", "RDMA port", wanted.rdma, facts, "rdma.up"),
    ]
    found += [_as_told(key, value, facts) for key, value in wanted.other.items()]
    if facts.skew is not None and abs(facts.skew) > CLOCK_SKEW:
        text = f"clock is {duration(abs(facts.skew))} {'ahead' if facts.skew > 0 else 'behind'} · times of this node are not comparable · check chrony or ntp"
        found.append(Reason("node.clock", Level.WARN, text))
    return [reason for reason in found if reason]


def _counted(
    check: str, what: str, wanted: int, facts: Facts, *metrics: str
) -> Reason | None:
    """The reason if fewer devices than expected are there; unread is not missing."""
    if not wanted or any(key.partition("/")[0] in metrics for key in facts.failed):
        return None
    heard = any(metric in facts.values or metric in facts.absent for metric in metrics)
    seen = max((len(facts.values.get(metric, {})) for metric in metrics), default=0)
    if not heard or seen >= wanted:
        return None
    text = f"{seen} of {wanted} {what}s · a device is lost or its driver is not loaded · look at the kernel log, reboot"
    return Reason(check, Level.BAD, text)


_SPEEDS = {
    "rdma_rate_gbps": ("rdma.rate", "rdma.up"),
    "net_speed_gbps": ("net.speed", "net.up"),
}


def _as_told(key: str, value: str | float, facts: Facts) -> Reason | None:
    """Compare one `expect:` entry with what the node says."""
    if key in _SPEEDS:
        return (
            _slow(key, float(value) * 1e9, facts)
            if isinstance(value, int | float)
            else None
        )
    kind, _, tail = key.partition("_")
    names = [
        n
        for n in facts.inventory
        if n == key or (tail and n.startswith(f"{kind}.") and n.endswith(f".{tail}"))
    ]
    for name in names:
        if str(value).lower() not in facts.inventory[name].lower():
            text = f"{name} is {facts.inventory[name]}, expected {value} · the node differs from the cluster file · correct one of them"
            return Reason(f"expect.{key}", Level.WARN, text)
    return None


def _slow(key: str, wanted: float, facts: Facts) -> Reason | None:
    metric, up = _SPEEDS[key]
    links = facts.values.get(up, {})
    only = facts.expected.interface if metric == "net.speed" else ""
    for device, rate in facts.values.get(metric, {}).items():
        if 0 < rate < wanted and links.get(device, 1) and device == (only or device):
            text = f"{device} runs at {written(rate, 'bit/s')}, expected {written(wanted, 'bit/s')} · transfers are slower · check cable, switch port, negotiation"
            return Reason(f"expect.{key}", Level.WARN, text, device)
    return None


def _links(facts: Facts) -> list[Reason]:
    """Links that are down and were wanted: expected, named, or up before."""
    found: list[Reason] = []
    for metric, what in (("rdma.up", "RDMA port"), ("net.up", "interface")):
        for device, up in facts.values.get(metric, {}).items():
            named = metric == "net.up" and device == facts.expected.interface
            if not up and (named or (metric, device) in facts.seen_up):
                text = f"{what} {device} is down · jobs that use it stop or hang · check cable and switch port"
                found.append(
                    Reason(
                        "rdma.link" if metric == "rdma.up" else "net.link",
                        Level.BAD,
                        text,
                        device,
                    )
                )
    ports = facts.values.get("rdma.up", {})
    working = sum(1 for up in ports.values() if up)
    if not any(
        r.check == "rdma.link" for r in found
    ) and working < facts.expected.rdma <= len(ports):
        text = f"{working} of {facts.expected.rdma} RDMA ports are active · jobs that use them fail · check cables and subnet manager"
        found.append(Reason("rdma.link", Level.BAD, text))
    return found


def _unread(facts: Facts) -> list[Reason]:
    """What should have been read and was not."""
    if not facts.failed:
        return []
    named = [f"{key}: {why}" for key, why in list(facts.failed.items())[:AT_MOST_SHOWN]]
    more = len(facts.failed) - len(named)
    text = "cannot read " + ", ".join(named) + (f" and {more} more" if more > 0 else "")
    return [
        Reason(
            "agent.reads",
            Level.UNKNOWN,
            f"{text} · its checks are not judged · see the error",
        )
    ]


def _worst_each(reasons: Sequence[Reason]) -> list[Reason]:
    """One reason for a check and device: the worst."""
    kept: dict[tuple[str, str], Reason] = {}

    for reason in reasons:
        key = (reason.check, reason.device)
        kept[key] = max(kept.get(key, reason), reason, key=_level)
    return list(kept.values())


def _level(reason: Reason) -> Level:
    return reason.level
