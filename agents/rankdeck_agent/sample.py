"""`sample`: one complete reading of this machine, or of a recorded tree."""

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rankdeck_agent.beat import Beats
from rankdeck_agent.collectors import collectors
from rankdeck_agent.files import Tree, clean
from rankdeck_agent.machine import machine, name
from rankdeck_agent.wire import Event, Sample

_BETWEEN = 0.2
"""Seconds between two readings: enough for a share of the CPU's time."""
_LIMIT = 6.0
"""Seconds for collectors and network mounts to answer."""


@dataclass(frozen=True)
class Reading:
    """All that a machine says of itself at one moment."""

    node: str
    first: Sample
    """The reading before; of a recording the same one."""
    sample: Sample
    pending: tuple[str, ...]
    """Metrics for which one reading is not enough."""
    inventory: Mapping[str, str]
    events: tuple[Event, ...]
    """What the kernel log tells of the recent past, and of GPUs since boot."""


def take(root: str) -> Reading:
    """Read the machine under `root`: twice where it lives, once where it is a recording."""
    beats = Beats(collectors(root), patience=_LIMIT - _BETWEEN)
    deadline = time.monotonic() + _LIMIT
    first = beat = beats.take(limit=_LIMIT)
    events, values = beat.events, dict(beat.sample.values)
    # A recording stands still: nothing more would be known the second time.
    while root == "/" and beat.pending - set(values) and time.monotonic() < deadline:
        time.sleep(_BETWEEN)
        beat = beats.take(limit=max(_BETWEEN, deadline - time.monotonic()))
        events = events + beat.events
        values.update(beat.sample.values)
    tree = Tree(root)
    inventory = {**machine(tree), **beat.inventory}
    pending = tuple(sorted(beat.pending - set(values)))
    taken = replace(beat.sample, values=values)
    return Reading(name(tree), first.sample, taken, pending, inventory, tuple(events))


def sample(root: str, *, as_json: bool) -> int:
    """Print what the machine under `root` says of itself now."""
    if not Tree(root).exists(""):
        print(f"rankdeck-agent: {clean(root, 200)}: no such folder", file=sys.stderr)
        return 2
    reading = take(root)
    print(json.dumps(_object(reading)) if as_json else "\n".join(_table(reading)))
    return 0


def _object(reading: Reading) -> dict[str, object]:
    taken = reading.sample
    return {
        "node": reading.node,
        "at": taken.at,
        "values": taken.values,
        "absent": taken.absent,
        "failed": taken.failed,
        "pending": reading.pending,
        "inventory": reading.inventory,
        "events": [vars(event) for event in reading.events],
    }


def _table(reading: Reading) -> list[str]:
    taken = reading.sample
    lines = [f"{key:<40} {value}" for key, value in reading.inventory.items()]
    for metric in sorted(taken.values):
        for device, value in sorted(taken.values[metric].items()):
            lines.append(f"{metric:<40} {device:<16} {value}")
    failed = taken.failed.items()
    lines += [f"{key:<40} could not be read: {why}" for key, why in failed]
    lines += [f"{metric:<40} needs a second reading" for metric in reading.pending]
    lines += [f"{metric:<40} not here" for metric in taken.absent]
    lines += [f"{e.check:<40} {e.level:<4} {e.device} {e.text}" for e in reading.events]
    return lines
