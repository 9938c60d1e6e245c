"""What only a network driver itself counts: pause by priority, packets dropped in the card (as `ethtool -S`)."""

import array
import fcntl
import re
import socket
import struct
from collections.abc import Mapping

from rankdeck_agent.collectors.base import Reading
from rankdeck_agent.files import Tree

# linux include/uapi/linux/{sockios.h,ethtool.h}
_SIOCETHTOOL = 0x8946
_GSSET_INFO, _GSTRINGS, _GSTATS = 0x37, 0x1B, 0x1D
_SS_STATS = 1
_STRING = 32
_MOST = 8192
"""Counters of one interface: mlx5 has some thousand with many queues."""
_SLACK = 65536

_PRIORITY = r"(?:prio|pri)_?[0-7]"
SUMS: tuple[tuple[str, float, "re.Pattern[str]"], ...] = (
    # Microseconds for which the other side had us wait: mlx5; bnxt.
    ("net.paused", 1e-6, re.compile(rf"rx_(?:{_PRIORITY}|global)_pause_duration|pfc_{_PRIORITY}_rx_duration_us")),
    # Frames that asked us to wait: mlx5; ice and i40e; bnxt.
    ("net.pause_frames", 1, re.compile(
        rf"rx_(?:{_PRIORITY}|global)_pause|(?:port\.)?rx_priority_[0-7]_xoff(?:\.nic)?|rx_pfc_ena_frames_{_PRIORITY}")),
    # Dropped in the card for want of room: mlx5; ice; bnxt.
    ("net.card_drops", 1, re.compile(
        rf"[rt]x_discards_phy|rx_{_PRIORITY}_(?:buf_)?discards?|rx_dropped\.nic|tx_dropped_link_down\.nic|rx_discard_frames")),
)  # fmt: skip
"""Metric, factor, the names that add up to it: linux Documentation/networking/device_drivers, drivers/net/ethernet."""
METRICS = tuple(metric for metric, _, _ in SUMS)
_LIMIT = 32


class EthtoolCollector:
    """Pause and drops of the interfaces whose drivers count them; of this machine only."""

    name = "ethtool"
    lane = "slow"
    period = 30.0
    metrics: tuple[str, ...] = METRICS

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._here = root == "/"
        self._tree = Tree(root)

    def collect(self, now: float) -> Reading:
        reading = Reading()
        if self._here:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
                for name in self._cards():
                    self.doing = name
                    reading.attempt(
                        METRICS, lambda n=name: self._sums(reading, asked.fileno(), n), name
                    )
        self.doing = ""
        return reading

    def _cards(self) -> list[str]:
        """Interfaces with a device behind them."""
        names = self._tree.names("sys/class/net")
        return [n for n in names if self._tree.exists(f"sys/class/net/{n}/device")][:_LIMIT]

    def _sums(self, reading: Reading, handle: int, name: str) -> None:
        for metric, number in added_up(statistics(handle, name)).items():
            reading.put(metric, number, name)


def added_up(counters: Mapping[str, int]) -> dict[str, float]:
    """The metrics that these counters of a driver add up to; none where it has none of them."""
    found: dict[str, float] = {}
    for metric, factor, pattern in SUMS:
        parts = [number for name, number in counters.items() if pattern.fullmatch(name)]
        if parts:
            found[metric] = sum(parts) * factor
    return found


def statistics(handle: int, interface: str) -> dict[str, int]:
    """All counters of the driver of an interface, asked through a socket; raises OSError."""
    head = struct.pack("=IIQ", _GSSET_INFO, 0, 1 << _SS_STATS)
    (count,) = struct.unpack("=I", _ask(handle, interface, head, 4))
    if not 0 < count <= _MOST:
        return {}
    head = struct.pack("=III", _GSTRINGS, _SS_STATS, count)
    strings = _ask(handle, interface, head, count * _STRING)
    head = struct.pack("=II", _GSTATS, count)
    numbers = struct.unpack(f"={count}Q", _ask(handle, interface, head, count * 8))
    names = (
        strings[at : at + _STRING].partition(b"\0")[0] for at in range(0, len(strings), _STRING)
    )
    return dict(zip((name.decode("ascii", "replace") for name in names), numbers))


def _ask(handle: int, interface: str, head: bytes, size: int) -> bytes:
    """The `size` bytes that the kernel writes after the head of a request."""
    # The kernel writes as much as the driver has by then, whatever room was said to be there.
    data = array.array("B", head + bytes(size + _SLACK))
    address, _ = data.buffer_info()
    fcntl.ioctl(handle, _SIOCETHTOOL, struct.pack("16sQ16x", interface.encode()[:15], address))
    return data[len(head) : len(head) + size].tobytes()
