"""What only a network driver itself counts: pause by priority, packets dropped in the card (as `ethtool -S`)."""

import array
import fcntl
import re
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

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

Pattern = re.Pattern[str]


@dataclass(frozen=True)
class Sum:
    """A metric and the counters that add up to it: the first group with any, and all of `beside`."""

    metric: str
    factor: float
    groups: tuple[Pattern, ...]
    """With a group `prio` the counter also tells of one priority."""
    beside: Optional[Pattern] = None


def _any(*patterns: str) -> Pattern:
    return re.compile("|".join(patterns))


_N = "(?P<prio>[0-7])"
_DURATION = _any(  # microseconds
    rf"rx_prio{_N}_pause_duration",  # mlx5: mellanox/mlx5/core/en_stats.c, units in counters.rst
    r"rx_pause_duration_prio_(?P<prio2>[0-7])",  # mlx4: mellanox/mlx4/en_ethtool.c
    r"pfc_pri(?P<prio3>[0-7])_rx_duration_us",  # bnxt: broadcom/bnxt/bnxt_ethtool.c
    r"rx_pripause_(?P<prio4>[0-7])_1us_count",  # ionic: pensando/ionic/ionic_stats.c
)
_LINK_DURATION = _any(
    "rx_global_pause_duration",  # mlx5
    "rx_pause_duration",  # mlx4
    "rx_pause_1us_count",  # ionic
)


def _frames(way: str) -> tuple[tuple[Pattern, Pattern], Pattern]:
    """PFC frames by priority; where a driver has only their total, that; frames for the whole link."""
    by_priority = _any(
        rf"{way}_prio{_N}_pause",  # mlx5
        rf"{way}_pause_prio_(?P<prio2>[0-7])",  # mlx4
        rf"{way}_pfc_ena_frames_pri(?P<prio3>[0-7])",  # bnxt
        # ice: intel/ice/ice_ethtool.c; i40e: intel/i40e/i40e_ethtool.c
        rf"(?:port\.)?{way}_priority_(?P<prio4>[0-7])_xoff(?:\.nic|_{way})?",
        rf"{way}_pb_(?P<prio5>[0-7])_pxoff",  # ixgbe: intel/ixgbe/ixgbe_ethtool.c
        rf"mac_{way}_pfc_pri(?P<prio6>[0-7])_pkt_num",  # hns3: hisilicon/hns3/hns3pf/hclge_main.c
        rf"{way}_ppp(?P<prio7>[0-7])_frames",  # cxgb4: chelsio/cxgb4/cxgb4_ethtool.c
        rf"mac\.{way}_pause_frames_class(?P<prio8>[0-7])",  # nfp: netronome/nfp/nfp_net_ethtool.c
        rf"mac_{way}_CBFCPAUSE(?P<prio9>[0-7])",  # funeth: fungible/funeth/funeth_ethtool.c
    )
    totals = _any(
        rf"{way}_pfc_frames",  # bnxt, qede: qlogic/qede/qede_ethtool.c
        rf"frames_{way}_pripause",  # ionic
        rf"{way}_priority_pause_?frames",  # be2net: emulex/benet/be_ethtool.c
        "pfc_frames_received"
        if way == "rx"
        else "pfc_frames_sent",  # bnx2x: broadcom/bnx2x/bnx2x_ethtool.c
    )
    link = _any(
        rf"{way}_global_pause",  # mlx5
        rf"{way}_pause",  # mlx4; genet: broadcom/genet/bcmgenet.c
        rf"{way}_pause_?frames",  # bnxt, qede, bnx2x, be2net, cxgb4; xgbe: amd/xgbe/xgbe-ethtool.c
        rf"frames_{way}_pause",  # ionic
        rf"(?:port\.)?link_xoff_{way}(?:\.nic)?",  # ice, i40e
        rf"{way}_flow_control_xoff",  # ixgbe; igb, igc, e1000e: intel/*/*ethtool.c
        rf"mac_{way}_mac_pause_num",  # hns3
        rf"mac\.{way}_pause_mac_ctrl_frames",  # nfp
        rf"port_{way}_pause",  # sfc: sfc/ef10.c
        "rx_xoff_pause_rcvd" if way == "rx" else "tx_xoff_sent",  # tg3: broadcom/tg3.c
    )
    return (by_priority, totals), link


_DROPS = (
    _any(r"rx_prio[0-7]_(?:buf_|cong_)?discards?", "[rt]x_discards_phy"),  # mlx5
    _any("rx_stat_discard", "tx_stat_discard", "rx_discard_frames"),  # bnxt
    _any("rx_discard_packets_cos[0-7]"),  # bnxt, where the port's statistics are not there
    _any(
        r"rx_dropped\.nic", r"tx_dropped_link_down\.nic",  # ice
        r"port\.rx_discards", r"port\.tx_dropped_link_down",  # i40e
        "frames_rx_dropped", "hw_[rt]x_dropped",  # ionic
        "hc_rx_discards_no_wqe",  # mana: microsoft/mana/mana_ethtool.c
        r"rx_bg\d_frames_dropped", "tx_frames_dropped",  # cxgb4
        "brb_discards", "no_buff_discards",  # qede
        "port_rx_nodesc_drops", "port_rx_pm_discard_(?:bb_overflow|vfifo_full|qbb)",  # sfc
        "rx_brb_discard",  # bnx2x
        "[rt]x_discards",  # tg3, bnx2x
        "rxpp_fifo_overflow_drop", "rx_input_fifo_overflow_drop", "rx_drops_no_pbuf", "rx_drops_no_erx_descr",  # be2net
        "dev_[rt]x_discards",  # nfp
    ),
)  # fmt: skip
_OVER_LIMIT = re.compile("(?:bw_in|bw_out|pps|conntrack|linklocal)_allowance_exceeded")
"""ena: amazon/ena/ena_ethtool.c; packets that the cloud held back or dropped over what it grants this machine."""
SUMS: tuple[Sum, ...] = (
    Sum("net.paused", 1e-6, (_DURATION,), _LINK_DURATION),
    Sum("net.pause_frames", 1, *_frames("rx")),
    Sum("net.pause_sent", 1, *_frames("tx")),
    Sum("net.card_drops", 1, _DROPS),
    Sum("net.over_limit", 1, (_OVER_LIMIT,)),
)
"""Names of counters: linux drivers/net/ethernet, the file beside each.

What a card drops because the host had no buffer ready counts as `net.drops` where the driver tells the kernel.
"""
PRIORITIES = {"net.paused": "net.prio_paused", "net.pause_frames": "net.prio_frames"}
"""Sum -> the same by priority; the device is `eth0/3`."""
METRICS = (*(row.metric for row in SUMS), *PRIORITIES.values())
_LIMIT = 32
_NOTHING: list[tuple[str, int]] = []


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
        for metric, by_priority in added_up(statistics(handle, name)).items():
            for priority, number in by_priority.items():
                reading.put(metric, number, f"{name}/{priority}" if priority else name)


def added_up(counters: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """Metric -> priority, "" for all together -> number; only what this driver counts."""
    found: dict[str, dict[str, float]] = {}
    for row in SUMS:
        groups = (_matching(counters, pattern) for pattern in row.groups)
        parts = next((group for group in groups if group), _NOTHING)
        beside = _matching(counters, row.beside) if row.beside else _NOTHING
        if parts or beside:
            total = sum(number for _, number in (*parts, *beside))
            found[row.metric] = {"": total * row.factor}
        of_one = {prio: number * row.factor for prio, number in parts if prio}
        if of_one and row.metric in PRIORITIES:
            found[PRIORITIES[row.metric]] = of_one
    return found


def _matching(counters: Mapping[str, int], pattern: Pattern) -> list[tuple[str, int]]:
    """`(priority or "", number)` of each counter that the pattern names."""
    matches = ((pattern.fullmatch(name), number) for name, number in counters.items())
    return [(_priority(match), number) for match, number in matches if match]


def _priority(match: "re.Match[str]") -> str:
    return next(filter(None, match.groups()), "")


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
    # Chelsio's names are filled up with spaces.
    names = (
        strings[at : at + _STRING].partition(b"\0")[0] for at in range(0, len(strings), _STRING)
    )
    return dict(zip((name.decode("ascii", "replace").rstrip() for name in names), numbers))


def _ask(handle: int, interface: str, head: bytes, size: int) -> bytes:
    """The `size` bytes that the kernel writes after the head of a request."""
    # The kernel writes as much as the driver has by then, whatever room was said to be there.
    data = array.array("B", head + bytes(size + _SLACK))
    address, _ = data.buffer_info()
    fcntl.ioctl(handle, _SIOCETHTOOL, struct.pack("16sQ16x", interface.encode()[:15], address))
    return data[len(head) : len(head) + size].tobytes()
