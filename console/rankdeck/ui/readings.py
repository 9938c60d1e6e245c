"""What is read from a node, as the screens say it."""

import time

from rankdeck.model.health import Level
from rankdeck.model.text import printable
from rankdeck.state.fleet import NodeState
from rankdeck.ui import words
from rankdeck.ui.query import Subject


def number(node: NodeState, metric: str) -> float | None:
    """One number for a metric: the largest over its devices; None where nothing is known."""
    return words.highest([node.value(metric, device) for device in node.devices(metric)])


def mean(node: NodeState, metric: str) -> float | None:
    """The mean over the devices."""
    return words.mean([node.value(metric, device) for device in node.devices(metric)])


def total_rate(node: NodeState, metric: str) -> float | None:
    """The sum of a counter's rates over its devices."""
    return words.total([node.rate(metric, device) for device in node.devices(metric)])


def network(node: NodeState) -> float | None:
    """Bytes per second both ways, over all interfaces."""
    return words.total([total_rate(node, "net.rx"), total_rate(node, "net.tx")])


def gpu_memory(node: NodeState) -> float | None:
    """Percent of the memory of all GPUs in use."""
    used = words.total([node.value("gpu.mem_used", d) for d in node.devices("gpu.mem_used")])
    there = words.total([node.value("gpu.mem_total", d) for d in node.devices("gpu.mem_total")])
    return used / there * 100 if used is not None and there else None


def temperature(node: NodeState) -> float | None:
    """The hottest GPU, else the CPU."""
    gpu = number(node, "gpu.temp")
    return number(node, "cpu.temp") if gpu is None else gpu


def why(node: NodeState) -> str:
    """The worst reason in words, and how many more there are."""
    reasons = node.health.reasons
    if not reasons:
        return ""

    worst, *others = reasons
    more = f" (+{len(others)})" if others else ""
    text = printable(worst.text).split(" · ")[0]
    return f"{text}{more}"


def told(device: str, text: str) -> str:
    """What happened, with its device in front where the text does not name it."""
    device, text = printable(device), printable(text, 600)
    return text if device in text.split(" · ")[0] else f"{device}: {text}"


def seen(node: NodeState) -> str:
    """How long ago the node was heard."""
    return words.age(node.heard_s())


def subject(node: NodeState) -> Subject:
    """What the filter looks at."""
    text = f"{node.name} {node.health.level.word} {why(node)}"
    checks = frozenset(reason.check for reason in node.health.reasons)
    return Subject(
        text,
        node.health.level.word,
        lambda metric: number(node, metric),
        node.name,
        checks,
    )


def worst_first(node: NodeState) -> tuple[int, str]:
    """A sort key: bad nodes first, then by name."""
    return -int(node.health.level), node.name


def is_simulated(node: NodeState, metric: str) -> bool:
    """True where the numbers of this metric are made up."""
    return any(metric == prefix or metric.startswith(f"{prefix}.") for prefix in node.simulated)


def since(at: float) -> float:
    """Seconds from a wall-clock moment until now."""
    return time.time() - at


LEVEL_OF_WORD = {
    "ok": Level.OK,
    "info": Level.OK,
    "warn": Level.WARN,
    "bad": Level.BAD,
}
