"""In what a node differs from its peers: versions, models and settings, the majority against the odd one."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from rankdeck.model.health import Level, Reason

PEERS = 3
"""So many nodes must tell a thing before one of them is odd."""
SHARE = 0.6
"""So many of them must agree; a cluster of two halves has no odd node."""
MOST = 8
COMPARED = re.compile(
    r"kernel|os|(gpu|rdma|net|nvme|cpu)\.(.+\.)?(model|driver|cuda|vbios|fw|firmware|governor|mtu|persistence|mig|link_layer|hca)|bios|ofed"
)
"""Entries of the inventory in which nodes of one cluster should be alike."""
_DEVICE = re.compile(r"\.(\d+|[^.]*\d[^.]*)\.")


class Peer(NamedTuple):
    """What one node tells of itself."""

    name: str
    inventory: Mapping[str, str]


def drift(peers: tuple[Peer, ...]) -> dict[str, tuple[Reason, ...]]:
    """Node -> in what it differs; a node that tells nothing is left out."""
    told = {peer.name: _settings(peer.inventory) for peer in peers if peer.inventory}
    if len(told) < PEERS:
        return {}
    usual = _usual(told)
    return {name: _odd(settings, usual) for name, settings in told.items()}


def _settings(inventory: Mapping[str, str]) -> dict[str, str]:
    """Key -> value, the devices of a kind taken together: `gpu.*.model`."""
    together: dict[str, set[str]] = {}
    for key, value in inventory.items():
        if COMPARED.fullmatch(key):
            together.setdefault(_DEVICE.sub(".*.", key), set()).add(value)
    return {key: " and ".join(sorted(values)) for key, values in together.items()}


def _usual(told: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[str, int, int]]:
    """Key -> (what most nodes say, how many of them, how many say anything)."""
    votes: dict[str, Counter[str]] = {}
    for settings in told.values():
        for key, value in settings.items():
            votes.setdefault(key, Counter())[value] += 1
    usual: dict[str, tuple[str, int, int]] = {}
    for key, counted in votes.items():
        (value, number), all_of_them = counted.most_common(1)[0], counted.total()
        if all_of_them >= PEERS and number >= SHARE * all_of_them and len(counted) > 1:
            usual[key] = value, number, all_of_them
    return usual


def _odd(
    settings: Mapping[str, str], usual: Mapping[str, tuple[str, int, int]]
) -> tuple[Reason, ...]:
    found = [
        Reason(
            "drift",
            Level.WARN,
            f"{key} is {settings[key]}, {number} of {peers} nodes have {value} · jobs across both may fail or differ · make them alike",
            key,
        )
        for key, (value, number, peers) in sorted(usual.items())
        if settings.get(key, value) != value
    ]
    return tuple(found[:MOST])
