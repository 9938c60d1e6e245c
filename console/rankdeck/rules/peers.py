"""How nodes differ from most others in what they report of themselves."""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from functools import lru_cache
from math import inf

from rankdeck_agent.rules.levels import Level, Reason

SHARE = 0.6
"""Least share of the nodes with a value that must agree on it."""
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
