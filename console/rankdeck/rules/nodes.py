"""Judges nodes in addition to their agents: how they differ from most
others, and what Slurm and Kubernetes report.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING

from rankdeck.model.health import of_reasons
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.schedulers import SlurmFlag
from rankdeck_agent.rules.levels import Health, Level, Reason

if TYPE_CHECKING:
    from rankdeck.model.schedulers import Condition, DeviceCount, KubernetesNode, SlurmNode


SHARE = 0.6
"""Least share of the nodes with a value that must agree on it."""

Value = str | int | float


@dataclass(frozen=True, slots=True)
class NodeSight:
    """The inventory and the newest numbers of one node."""

    name: str
    inventory: Mapping[str, str]
    values: Mapping[str, Mapping[str, int | float]]
    simulated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LearntExpectations:
    """Entries for `expect:`, and notes on some of their keys."""

    values: Mapping[str, Value]
    notes: Mapping[str, str]


def learn_expectations(nodes: Sequence[NodeSight]) -> LearntExpectations:
    """What most nodes have in common; a key on which they differ
    too much gets a note and no value.
    """
    values: dict[str, Value] = {}
    notes: dict[str, str] = {}
    for key, of in _LEARNT.items():
        reported = {node.name: value for node in nodes if (value := _of(key, of, node))}
        if not reported:
            continue
        (value, number), *_ = Counter(reported.values()).most_common(1)
        if number < SHARE * len(reported):
            notes[key] = f"nodes differ: {_spread(reported)}"
            continue
        values[key] = value
        odd = [name for name, other in reported.items() if other != value]
        if odd:
            notes[key] = f"not so on {fold_nodes(odd)}"
    return LearntExpectations(values, notes)


def _of(key: str, of: Callable[[NodeSight], Value], node: NodeSight) -> Value:
    """The value; 0 or "" if it is simulated or not known."""
    return 0 if key.partition("_")[0] in node.simulated else of(node)


def _spread(values: Mapping[str, Value]) -> str:
    by_value: dict[Value, list[str]] = {}
    for name, value in values.items():
        by_value.setdefault(value, []).append(name)
    return "; ".join(f"{value} on {fold_nodes(names)}" for value, names in by_value.items())


def _count(*metrics: str) -> Callable[[NodeSight], int]:
    return lambda node: max(len(node.values.get(metric, {})) for metric in metrics)


def _word(kind: str, tail: str) -> Callable[[NodeSight], str]:
    """A function that gives the inventory entry shared by all
    devices of a kind; "" if they differ.
    """

    def find(node: NodeSight) -> str:
        found = {
            text
            for name, text in node.inventory.items()
            if name.startswith(f"{kind}.") and name.endswith(f".{tail}")
        }
        return found.pop() if len(found) == 1 else ""

    return find


def _rate(node: NodeSight) -> Value:
    """The rate of the slowest RDMA port that is up, in Gbit/s."""
    up = node.values.get("rdma.up", {})
    rates = [
        rate / 1e9
        for device, rate in node.values.get("rdma.rate", {}).items()
        if rate > 0 and up.get(device)
    ]
    return _plain(min(rates)) if rates else 0


def _plain(number: float) -> int | float:
    return int(number) if number == int(number) else round(number, 1)


def _mounts(node: NodeSight) -> str:
    mounted = node.values.get("disk.mounted", {})
    return ", ".join(sorted(path for path, there in mounted.items() if there))


_LEARNT: Mapping[str, Callable[[NodeSight], Value]] = {
    "gpu_count": _count("gpu.mem_total", "gpu.used"),
    "gpu_model": _word("gpu", "model"),
    "gpu_driver": _word("gpu", "driver"),
    "rdma_count": _count("rdma.up"),
    "rdma_rate_gbps": _rate,
    "rdma_fw": _word("rdma", "fw"),
    "mounts": _mounts,
}


PEERS = 3
"""Fewest nodes that must report a value before one of them can count as odd."""
MOST = 8
COMPARED = re.compile(
    r"kernel|os|(gpu|rdma|net|nvme|cpu)\.(.+\.)?(model|driver|cuda|vbios|fw|firmware|governor|mtu|persistence|mig|link_layer|hca)|bios|ofed"
)
"""Entries of the inventory in which nodes of one cluster should be alike."""
_DEVICE = re.compile(r"\.(\d+|[^.]*\d[^.]*)\.")
_COUNTED = re.compile(r"(gpu|rdma|nvme)\.(\d+|[^.]*\d[^.]*)\.")
"""Entries of the inventory by which devices are counted."""
ABSENT = "absent"
"""What a node has for a setting of its peers that it lacks."""
_ALIKE = ("cpu.model",)
"""Only nodes with equal entries here are peers in what they lack: a login
node has no GPU, and need not have one.
"""


Settings = tuple[tuple[str, str], ...]
"""(key, value) pairs that are compared; the devices of a kind
have one key, such as `gpu.*.model`.
"""


class Peers:
    """What each node reports about itself.

    Nodes with equal settings are stored, counted and compared together.
    """

    def __init__(self) -> None:
        self._of: dict[str, Settings] = {}
        self._since: dict[str, float] = {}
        """Node -> when it began to report what it reports now."""
        self._alike: dict[Settings, set[str]] = {}

    def take(self, name: str, inventory: Mapping[str, str], at: float = 0.0) -> bool:
        """Store what the node reports at `at`; returns whether it changed.

        A node that reports nothing is left out.
        """
        now, before = _settings(inventory) if inventory else None, self._of.pop(name, None)
        if before is not None:
            self._alike[before].discard(name)
            if not self._alike[before]:
                del self._alike[before]
        if now is not None:
            self._of[name] = now
            self._alike.setdefault(now, set()).add(name)
        if now != before:
            self._since[name] = at
        return now != before

    def drift(self, before: float = inf) -> dict[str, tuple[Reason, ...]]:
        """Node -> how it differs from most nodes; those that do not differ are left out.

        Only a node that has reported the same since `before` can lack something: an agent that has
        just started does not know all of its devices yet.
        """
        usual, found = _usual(self._alike), dict[str, tuple[Reason, ...]]()
        lacked = _lacked(self._alike)
        for settings, names in self._alike.items():
            odd, lacking = _odd(dict(settings), usual), lacked.get(settings, ())
            for name in names:
                settled = self._since.get(name, 0.0) <= before
                if reasons := (*odd, *(lacking if settled else ()))[:MOST]:
                    found[name] = reasons
        return found

    def changed(self, name: str, since: float) -> bool:
        """Whether what the node reports has changed after `since`."""
        return self._since.get(name, 0.0) > since

    @property
    def enough(self) -> bool:
        """Whether enough nodes have reported to compare them."""
        return len(self._of) >= PEERS

    def __contains__(self, name: object) -> bool:
        return name in self._of


def _settings(inventory: Mapping[str, str]) -> Settings:
    together: dict[str, set[str]] = {}
    for key, value in inventory.items():
        if place := _compared(key):
            together.setdefault(place, set()).add(value)
    devices: dict[str, set[str]] = {}
    for found in filter(None, map(_COUNTED.match, inventory)):
        devices.setdefault(f"{found[1]}.count", set()).add(found[2])
    counted = {kind: str(len(names)) for kind, names in devices.items()}
    words = {key: " and ".join(sorted(values)) for key, values in together.items()}
    return tuple(sorted({**words, **counted}.items()))


@lru_cache(maxsize=4096)
def _compared(key: str) -> str:
    """The key for all devices of a kind; "" if it is not compared."""
    return _DEVICE.sub(".*.", key) if COMPARED.fullmatch(key) else ""


def _usual(alike: Mapping[Settings, set[str]]) -> dict[str, tuple[str, int, int]]:
    """Key -> (value of most nodes, how many have it, how many have any
    value); only keys on which nodes differ.
    """
    votes: dict[str, Counter[str]] = {}
    for settings, names in alike.items():
        for key, value in settings:
            votes.setdefault(key, Counter())[value] += len(names)
    usual: dict[str, tuple[str, int, int]] = {}
    for key, counted in votes.items():
        (value, number), all_of_them = counted.most_common(1)[0], counted.total()
        if all_of_them >= PEERS and number >= SHARE * all_of_them and len(counted) > 1:
            usual[key] = value, number, all_of_them
    return usual


def _lacked(alike: Mapping[Settings, set[str]]) -> dict[Settings, tuple[Reason, ...]]:
    """Settings -> what nodes with them lack that most nodes of their kind
    have; only those that lack something.
    """
    kinds: dict[tuple[str, ...], list[Settings]] = {}
    for settings in alike:
        words = dict(settings)
        kinds.setdefault(tuple(words.get(key, "") for key in _ALIKE), []).append(settings)
    found: dict[Settings, tuple[Reason, ...]] = {}
    for kind in kinds.values():
        everyone = sum(len(alike[settings]) for settings in kind)
        having = Counter[str]()
        for settings in kind:
            having.update(dict.fromkeys(dict(settings), len(alike[settings])))
        usual = {k: n for k, n in having.items() if n >= PEERS and SHARE * everyone <= n < everyone}
        for settings in kind if usual else ():
            if missing := _missing(usual.keys() - dict(settings).keys()):
                found[settings] = tuple(
                    _lacks(key, usual[key], everyone) for key in sorted(missing)
                )
    return found


def _missing(keys: Collection[str]) -> list[str]:
    """The keys without those of devices of which none is there: their count says it."""
    none = tuple(f"{key.partition('.')[0]}." for key in keys if key.endswith(".count"))
    return [key for key in keys if key.endswith(".count") or not key.startswith(none)]


def _lacks(key: str, having: int, everyone: int) -> Reason:
    text = (
        f"{key} is {ABSENT}, {having} of {everyone} nodes like it have one · a device or its driver"
        " is missing · look at it with `rankdeck nodes --live`, or make them alike"
    )
    return Reason("drift", Level.WARN, text, key)


def _odd(
    settings: Mapping[str, str], usual: Mapping[str, tuple[str, int, int]]
) -> tuple[Reason, ...]:
    found = [
        Reason(
            "drift",
            Level.WARN,
            f"{key} is {settings[key]}, {number} of {peers} nodes have {value} · jobs across both"
            " may fail or differ · make them alike",
            key,
        )
        for key, (value, number, peers) in sorted(usual.items())
        if settings.get(key, value) != value
    ]
    return tuple(found[:MOST])


_LOOK = "look at slurmd there (`systemctl status slurmd`, its log) and at the way to the controller"

_BACK = {True: "`:resume` gives it back", False: "`:resume anyway` gives it back"}
_USED = ("idle", "mixed", "alloc", "compl", "planned")
"""Prefixes of Slurm's states in which jobs run on a node or may be started."""


def with_slurm(health: Health, view: "SlurmNode | None", *, heard: bool) -> Health:
    """The agent's health merged with the node's state in Slurm;
    `heard`: whether the agent is heard now.
    """
    if view is None:
        return health
    reasons = tuple(filter(None, (_state(view, health, heard=heard), _touch(view, heard=heard))))
    reasons = reasons or tuple(filter(None, (_still_used(view, health),)))
    if not reasons:
        return health
    return of_reasons(health, (*health.reasons, *reasons))


def _state(view: "SlurmNode", health: Health, *, heard: bool) -> Reason | None:
    """A reason if the node's Slurm state keeps jobs away; else None."""
    if view.gone:
        text = "Slurm has no such node any more · it was removed from slurm.conf"
        return Reason("slurm.gone", Level.UNKNOWN, text)
    if view.state.startswith(("down", "error")):
        return _down(view, heard=heard)
    if view.state == "inval":
        text = (
            f"Slurm gives it no jobs: less is there than slurm.conf says{_why(view)} · compare"
            " `slurmd -C` there with slurm.conf"
        )
        return Reason("slurm.state", Level.WARN, text)
    if not view.out:
        return None
    well = heard and health.level is Level.OK
    ours = view.ours
    text = f"{view.state} in Slurm: it gets no new jobs{_why(view)}"
    text += (
        f" · our agent finds nothing wrong there · {_BACK[ours]}{'' if ours else ', once whoever did it agrees'}"
        if well
        else f" · {_BACK[ours]} once it is repaired"
    )
    return Reason("slurm.state", Level.WARN, text)


def _down(view: "SlurmNode", *, heard: bool) -> Reason:
    text = f"Slurm calls it down{_why(view)}"
    if heard:
        return Reason("slurm.state", Level.WARN, f"{text} but our agent is heard · {_LOOK}")
    return Reason("slurm.state", Level.BAD, f"{text} · is it up? {_LOOK}")


def _touch(view: "SlurmNode", *, heard: bool) -> Reason | None:
    """A reason if slurmd on the node does not answer Slurm, or Slurm has
    powered the node down; else None.
    """
    if SlurmFlag.POWERED_DOWN in view.also and not heard:
        text = "Slurm has powered it down to save energy · it starts when a job needs it"
        return Reason("slurm.power", Level.UNKNOWN, text)
    if SlurmFlag.NOT_RESPONDING not in view.also or view.state.startswith("down"):
        return None
    but = " but our agent is heard" if heard else ""
    level = Level.WARN if heard else Level.UNKNOWN
    return Reason("slurm.silent", level, f"its slurmd does not answer Slurm{but} · {_LOOK}")


def _still_used(view: "SlurmNode", health: Health) -> Reason | None:
    """A reason if Slurm still gives jobs to a node with an unacknowledged BAD reason; else None."""
    bad = any(one.level is Level.BAD and one.acknowledged_until is None for one in health.reasons)
    if not bad or view.also or not view.state.startswith(_USED):
        return None
    text = f"Slurm still gives it jobs ({view.words}) · `:drain WHY` takes it out of service"
    return Reason("slurm.usable", Level.WARN, text)


def _why(view: "SlurmNode") -> str:
    """` (bad cable, by root, since 11-22 18:23)`."""
    since = time.strftime("since %m-%d %H:%M", time.localtime(view.since)) if view.since else ""
    known = (view.reason, f"by {view.by}" if view.by else "", since if view.reason else "")
    words = ", ".join(filter(None, known))
    return f" ({words})" if words else ""


SILENT = "node.silent"
"""The check that fires while no Rankdeck agent is heard."""
_GOOD_ENDS = ("Ready", "Healthy", "OK", "Available")
"""Endings of the condition types for which True is good; for all others True is a fault."""
_USUAL = {
    "MemoryPressure": "memory is short there: the kubelet evicts pods",
    "DiskPressure": "disk is short there: the kubelet evicts pods and images",
    "PIDPressure": "processes are short there: the kubelet evicts pods",
    "NetworkUnavailable": "its network is not set up: pods there reach nobody",
}


def merge_kubernetes(
    health: Health, view: "KubernetesNode | None", *, heard: bool, tried: bool
) -> Health:
    """The agent's health merged with what Kubernetes reports about the node.

    `heard`: whether the agent is heard now; `tried`: whether one was ever heard, or could not be
    started there. A node without an agent of Rankdeck is judged by Kubernetes alone.
    """
    if view is None:
        return health
    reasons = kubernetes_reasons(view, heard=heard)
    if heard or tried:
        still = () if heard or not _is_ready(view) else (_still_ready(),)
        kept = (*health.reasons, *still, *reasons)
    else:
        kept = (*(one for one in health.reasons if one.check != SILENT), *reasons)
    return of_reasons(health, kept)


def kubernetes_reasons(view: "KubernetesNode", *, heard: bool) -> tuple[Reason, ...]:
    """Why the node is not healthy according to Kubernetes; () if it is."""
    if view.gone:
        text = "Kubernetes has no such node any more · it was removed from the cluster"
        return (Reason("kubernetes.gone", Level.UNKNOWN, text),)
    found = [_condition(one, heard=heard) for one in view.conditions]
    if view.ready is None:
        text = "Kubernetes says nothing of its state · its kubelet may never have started"
        found.append(Reason("kubernetes.ready", Level.UNKNOWN, text))
    if view.unschedulable:
        text = (
            "cordoned: Kubernetes places no new pods here · "
            "`kubectl uncordon` ends that, once whoever did it agrees"
        )
        found.append(Reason("kubernetes.cordoned", Level.WARN, text))
    return (*filter(None, found), *_devices(view.devices.items()))


def _is_ready(view: "KubernetesNode") -> bool:
    return not view.gone and view.ready is not None and view.ready.status == "True"


def _still_ready() -> Reason:
    text = "Kubernetes still calls it Ready · it notices a dead node after some 40 s"
    return Reason("kubernetes.ready", Level.UNKNOWN, text)


def _condition(one: "Condition", *, heard: bool) -> Reason | None:
    """A reason if the condition shows a fault, in its own words, with
    the meaning of known ones; else None.
    """
    if one.is_ready:
        return None if one.status == "True" else _not_ready(one, heard=heard)
    if one.status == "Unknown":
        text = f"Kubernetes does not know its {_words(one)}"
        return Reason("kubernetes.condition", Level.UNKNOWN, text, device=one.type)
    if (one.status == "True") is one.type.endswith(_GOOD_ENDS):
        return None
    means = f" · {_USUAL[one.type]}" if one.type in _USUAL else ""
    status = f" is {one.status}" if one.type.endswith(_GOOD_ENDS) else ""
    text = f"{_words(one, status)}{means}"
    return Reason("kubernetes.condition", Level.WARN, text, device=one.type)


def _not_ready(one: "Condition", *, heard: bool) -> Reason:
    sentence = (
        "Kubernetes calls it not ready"
        if one.status == "False"
        else "Kubernetes lost touch with it"
    )
    text = f"{sentence} ({_words(one)})"
    if heard:
        text += " but our agent is heard · its kubelet or the way to the server may be down · look at the kubelet there"
        return Reason("kubernetes.ready", Level.WARN, text)
    level = Level.BAD if one.status == "False" else Level.UNKNOWN
    return Reason("kubernetes.ready", level, f"{text} · look at its kubelet, or whether it is up")


def _words(one: "Condition", status: str = "") -> str:
    return ": ".join(filter(None, (one.type + status, one.reason, one.message)))


def _devices(counts: "Iterable[tuple[str, DeviceCount]]") -> list[Reason]:
    return [
        Reason(
            "kubernetes.devices",
            Level.WARN,
            f"{count.capacity - count.allocatable} of {count.capacity} {name} are not given out: "
            "their device plugin calls them unhealthy · look at its log and at the devices",
            device=name,
        )
        for name, count in counts
        if count.allocatable < count.capacity
    ]
