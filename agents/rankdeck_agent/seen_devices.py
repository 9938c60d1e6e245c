"""What a machine has shown since it booted: what goes is noticed,
also by an agent that starts again.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from rankdeck_agent.collectors.base import BootMemory, own_memory
from rankdeck_agent.rules.derived import KEPT, PACES, SIZES, SPEEDS, is_kept
from rankdeck_agent.rules.facts import Number, Table

MOST_SEEN = 4096
"""Most devices that are remembered."""
_LINKS = ("rdma.up", "net.up")
_PRESENT, _UP = "present", "up"
_NONE: Mapping[str, Number] = {}


def memory_of_this_boot(root: str) -> Optional[BootMemory]:
    """Where what was seen of this machine is kept; None for the recording of another.

    A container sees other mounts and interfaces of the same boot: each view has a file of its own.
    """
    try:
        view = [Path(f"/proc/self/ns/{kind}").stat().st_ino for kind in ("mnt", "net")]
    except OSError:
        return None
    return own_memory(root, ".".join(map(str, ("seen", *view))))


class SeenDevices:
    """Devices that were there, links that were up and the largest
    sizes. Use it from one thread only.

    `boot` names the boot. What `memory` has is there from the
    beginning, and what is new is kept in it.
    """

    def __init__(self, boot: str, memory: Optional[BootMemory] = None) -> None:
        self.boot, self._memory = boot, memory
        kept = memory.recall("devices", MOST_SEEN) if memory else {}
        pairs = [(key.partition("/"), how) for key, how in kept.items()]
        self.present = frozenset(
            (metric, device) for (metric, _, device), _ in pairs if metric in KEPT
        )
        """(metric of KEPT, device) of what was there."""
        self.up = frozenset((metric, device) for (metric, _, device), how in pairs if how == _UP)
        """(metric, device) of links that were up."""
        sizes = memory.recall("sizes", MOST_SEEN) if memory else {}
        self.most: dict[str, Number] = {
            key: int(size)
            for key, size in sizes.items()
            if key.partition("/")[0] in (*SIZES, *PACES) and size.isdigit()
        }
        """See Facts.most."""

    def take(self, values: Table, inventory: Mapping[str, str]) -> None:
        """Remember what these numbers, metric -> device -> number, show."""
        up = {(m, device) for m in _LINKS for device, up in values.get(m, _NONE).items() if up}
        present = {
            (metric, device)
            for metric in KEPT
            for device, number in values.get(metric, _NONE).items()
            if (metric, device) not in self.present
            and is_kept(metric, device, number, values, inventory)
        }
        sizes = {metric: values.get(metric, _NONE).get("", 0) for metric in SIZES}
        sizes.update(_paces(values))
        grown = {m: size for m, size in sizes.items() if size > self.most.get(m, 0)}
        if len(self.present) >= MOST_SEEN:
            present = set[tuple[str, str]]()
        if up <= self.up and not present and not grown:
            return
        self.up |= up
        self.present |= present
        self.most.update(grown)
        if self._memory is not None:
            self._keep(self._memory)

    def _keep(self, memory: BootMemory) -> None:
        devices = {
            f"{metric}/{device}": _UP if (metric, device) in self.up else _PRESENT
            for metric, device in sorted(self.present)
        }
        memory.keep("devices", devices)
        memory.keep("sizes", {metric: str(int(size)) for metric, size in self.most.items()})


def _paces(values: Table) -> dict[str, Number]:
    """METRIC/DEVICE -> speed of each link that is up: that of one which is down means nothing."""
    return {
        f"{metric}/{device}": speed
        for metric, up, _ in SPEEDS.values()
        for device, speed in values.get(metric, _NONE).items()
        if values.get(up, _NONE).get(device)
    }
