"""Network interfaces: bytes, errors, link and speed; pause frames and drops that
only the driver counts (as in `ethtool -S`).
"""

import array
import contextlib
import fcntl
import re
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Optional

from rankdeck_agent.collectors.base import Reading, parse_unsigned
from rankdeck_agent.older_python import is_ascii
from rankdeck_agent.rules.derived import UNWATCHED
from rankdeck_agent.system_files import Tree
from rankdeck_agent.text import clean_text
from rankdeck_agent.values import Record, Value, field

_COLUMNS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("net.rx", (0,)),
    ("net.tx", (8,)),
    ("net.errors", (2, 10)),
    ("net.drops", (3, 11)),
    ("net.frame_errors", (5,)),
    ("net.fifo_errors", (4, 12)),
    ("net.carrier_errors", (14,)),
    ("net.rx_packets", (1,)),
    ("net.rx_errors", (2,)),
    ("net.rx_drops", (3,)),
    ("net.rx_fifo", (4,)),
    ("net.rx_compressed", (6,)),
    ("net.multicast", (7,)),
    ("net.tx_packets", (9,)),
    ("net.tx_errors", (10,)),
    ("net.tx_drops", (11,)),
    ("net.tx_fifo", (12,)),
    ("net.collisions", (13,)),
    ("net.tx_compressed", (15,)),
)
"""Metric -> the columns (of sixteen) in /proc/net/dev that add up to it."""
_STATISTICS: Mapping[int, tuple[str, ...]] = {
    0: ("rx_bytes",),
    1: ("rx_packets",),
    2: ("rx_errors",),
    3: ("rx_dropped", "rx_missed_errors"),
    4: ("rx_fifo_errors",),
    5: ("rx_length_errors", "rx_over_errors", "rx_crc_errors", "rx_frame_errors"),
    6: ("rx_compressed",),
    7: ("multicast",),
    8: ("tx_bytes",),
    9: ("tx_packets",),
    10: ("tx_errors",),
    11: ("tx_dropped",),
    12: ("tx_fifo_errors",),
    13: ("collisions",),
    15: ("tx_compressed",),
    14: ("tx_carrier_errors", "tx_aborted_errors", "tx_window_errors", "tx_heartbeat_errors"),
}
"""Column -> files in /sys/class/net/*/statistics that add up to it,
as in linux net/core/net-procfs.c.
"""
_COUNTERS = tuple(metric for metric, _ in _COLUMNS)
_FILES = (("net.mtu", "mtu"), ("net.carrier_changes", "carrier_changes"))
_LIMIT = 64
_USE = ("net.needed", "net.bond_leg")
_ROUTES = (
    ("proc/self/net/route", "proc/net/route"),
    ("proc/self/net/ipv6_route", "proc/net/ipv6_route"),
)
"""Tables of routes, of IPv4 and IPv6; of each the first that can be read."""
_BY_ITSELF = re.compile(rb"0000FEA9|fe80|ff[0-9a-f]{2}")
"""Beginnings of destinations that every interface has by itself: link-local and multicast."""
_IPV6_WORDS = 10
"""A row of IPv4 has eleven."""
_ABOVE = 4
"""Most interfaces (bridge, VLAN, bond) on top of each other."""
_SELDOM = 10.0
"""Seconds between two readings of the speed, for which the kernel
takes a lock and asks the driver.
"""
_IDENTITY_EVERY = 60.0
_KINDS = (("wifi", "phy80211"), ("bond", "bonding"), ("vf", "device/physfn"))
"""Kind of an interface -> the file that tells it."""


class NetCollector:
    """Counters and link of every interface, without purely virtual ones (UNWATCHED)."""

    name = "net"
    lane = "proc"
    period = 0.0
    metrics: tuple[str, ...] = (
        *_COUNTERS,
        "net.up",
        "net.speed",
        *(metric for metric, _ in _FILES),
        *_USE,
    )

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._physical: dict[str, bool] = {}
        self._facts: dict[str, InterfaceFacts] = {}
        self._routed: Optional[frozenset[str]] = None
        """Interfaces with a route; None if the tables of routes cannot be read."""
        self._routes_read = -_SELDOM
        self._needed: set[str] = set()
        """Interfaces that were needed when they were last up: the
        routes of one that goes down vanish.
        """
        self._identified = -_IDENTITY_EVERY
        self._inventory: dict[str, str] = {}

    def collect(self, now: float) -> Reading:
        reading = Reading()
        reading.attempt(_COUNTERS, lambda: self._interfaces(reading, now))
        reading.inventory = self._inventory
        return reading

    def _interfaces(self, reading: Reading, now: float) -> None:
        wanted = [row for row in self._rows() if self._wanted(row[0])]
        chosen = wanted[:_LIMIT]
        reading.say_cut("net.interfaces", "interfaces", len(wanted), _LIMIT)
        for name, numbers in chosen:
            for metric, columns in _COLUMNS if numbers else ():
                reading.put(metric, sum(numbers[c] for c in columns), name)
            self.doing = name
            reading.attempt(
                ("net.up", "net.speed"), lambda n=name: self._link(reading, n, now), name
            )
        self.doing = ""

        names = [name for name, _ in chosen]
        self._facts = {n: s for n, s in self._facts.items() if n in names}
        if now - self._identified >= _IDENTITY_EVERY:
            self._identified = now
            self._inventory = _identities(self._tree, names)

    def _rows(self) -> "list[tuple[str, list[int]]]":
        """`(interface, its sixteen numbers)`, from /sys if /proc has none."""
        try:
            return parse_net_dev(self._read())
        except OSError:
            names = [name for name in self._tree.names("sys/class/net") if clean_text(name) == name]
            if not names:
                raise
        return [(name, self._statistics(name)) for name in names if self._wanted(name)]

    def _read(self) -> bytes:
        try:
            return self._tree.read("proc/self/net/dev")
        except OSError:
            return self._tree.read("proc/net/dev")

    def _statistics(self, name: str) -> list[int]:
        """The sixteen numbers; empty if one that is used cannot be read."""
        numbers = [0] * 16
        try:
            for column, files in _STATISTICS.items():
                paths = [f"sys/class/net/{name}/statistics/{file}" for file in files]
                numbers[column] = sum(parse_unsigned(self._tree.read(path)) for path in paths)
        except (OSError, ValueError):
            return []
        return numbers

    def _wanted(self, name: str) -> bool:
        if not UNWATCHED.fullmatch(name):
            return True
        if name not in self._physical:
            if len(self._physical) > 1000:
                self._physical.clear()
            self._physical[name] = self._tree.exists(f"sys/class/net/{name}/device")
        return self._physical[name]

    def _link(self, reading: Reading, name: str, now: float) -> None:
        carrier = f"sys/class/net/{name}/carrier"
        state = self._tree.text(f"sys/class/net/{name}/operstate")
        up = state == "up" or (state == "unknown" and self._tree.maybe(carrier) == "1")
        reading.put("net.up", int(up), name)

        facts = self._facts.get(name)
        if facts is None or now - facts.asked >= _SELDOM or up != facts.up:
            facts = self._facts[name] = self._ask(name, now, up=up)
        reading.put_all(facts.values, name)
        for metric, error in facts.errors.items():
            reading.fail((metric,), error, name)

    def _ask(self, name: str, now: float, *, up: bool) -> "InterfaceFacts":
        base = f"sys/class/net/{name}"
        facts = InterfaceFacts(now, up)
        for metric, file in _FILES:
            try:
                facts.values[metric] = parse_unsigned(self._tree.read(f"{base}/{file}"))
            except (OSError, ValueError) as error:  # noqa: PERF203  each for itself
                facts.errors[metric] = error
        facts.values.update(self._use(name, now, up=up))

        if up:
            # -1 or EINVAL: the driver does not know it, as for most virtual cards.
            with contextlib.suppress(OSError, ValueError):
                speed = parse_unsigned(self._tree.read(f"{base}/speed")) * 1_000_000
                if speed:
                    facts.values["net.speed"] = speed
        return facts

    def _use(self, name: str, now: float, *, up: bool) -> dict[str, int]:
        """The metrics of _USE that are known of an interface."""
        if now - self._routes_read >= _SELDOM:
            self._routes_read, self._routed = now, routed_interfaces(self._tree)
        base, found = f"sys/class/net/{name}", dict[str, int]()
        bond = self._tree.link(f"{base}/master")
        if bond and self._tree.exists(f"{base}/bonding_slave"):
            found["net.bond_leg"] = int(self._is_used(name, bond))
        if self._routed is None:
            return found
        if up:
            wanted = (
                bool(self._routed & self._above(name))
                or self._tree.exists(f"{base}/bonding_slave")
                or self._tree.exists(f"{base}/device/infiniband")
            )
            (self._needed.add if wanted else self._needed.discard)(name)
        found["net.needed"] = int(name in self._needed)
        return found

    def _above(self, name: str) -> "set[str]":
        """The interface, and bridges, VLANs and bonds that it is part of."""
        found, fresh = {name}, {name}
        for _ in range(_ABOVE):
            fresh = {
                entry[len("upper_") :]
                for one in fresh
                for entry in self._tree.names(f"sys/class/net/{one}")
                if entry.startswith("upper_")
            } - found
            found |= fresh
        return found

    def _is_used(self, leg: str, bond: str) -> bool:
        """Whether a bond uses this leg: its link is up, and with LACP
        its partner is that of the bond.
        """
        base = f"sys/class/net/{leg}/bonding_slave"
        if (self._tree.maybe(f"{base}/mii_status") or "up") != "up":
            return False
        ours = self._tree.maybe(f"{base}/ad_aggregator_id")
        active = self._tree.maybe(f"sys/class/net/{bond}/bonding/ad_aggregator")
        return ours is None or not active or ours == active


class InterfaceFacts(Record):
    """What is read seldom from an interface: MTU, carrier changes,
    speed; `asked` in monotonic seconds.
    """

    asked: float
    up: bool
    values: dict[str, int] = field(default_factory=dict[str, int])
    errors: dict[str, Exception] = field(default_factory=dict[str, Exception])


def routed_interfaces(tree: Tree) -> Optional[frozenset[str]]:
    """Interfaces with a route that somebody has set; None if no table of routes can be read."""
    tables: list[bytes] = []
    for paths in _ROUTES:
        for path in paths:
            with contextlib.suppress(OSError):
                tables.append(tree.read(path))
                break
    if not tables:
        return None
    found: set[str] = set()
    for row in b"\n".join(tables).splitlines():
        words = row.split()
        # IPv4: interface, destination, …; IPv6: destination, …, interface.
        ipv6 = len(words) == _IPV6_WORDS
        if len(words) < _IPV6_WORDS or words[0] == b"Iface":
            continue
        name, destination = (words[-1], words[0]) if ipv6 else (words[0], words[1])
        if not _BY_ITSELF.match(destination):
            found.add(clean_text(name.decode("utf-8", "replace")))
    return frozenset(found)


def _identities(tree: Tree, names: Sequence[str]) -> dict[str, str]:
    """Inventory: driver, RDMA device and kind of each interface, if it has them."""
    found: dict[str, str] = {}
    for name in names:
        base, devices = f"sys/class/net/{name}", list[str]()
        with contextlib.suppress(OSError):
            devices = tree.names(f"{base}/device/infiniband")[:4]
        rows = {
            "driver": tree.link(f"{base}/device/driver"),
            "rdma": " ".join(devices),
            "kind": _kind(tree, base),
        }
        found.update({f"net.{name}.{k}": clean_text(v) for k, v in rows.items() if v})
    return found


def _kind(tree: Tree, base: str) -> str:
    """What an interface is: wifi, bond, vf (a virtual function), usb, virtual
    (no device below it); "" for a card.
    """
    for kind, file in _KINDS:
        if tree.exists(f"{base}/{file}"):
            return kind
    if not tree.exists(f"{base}/device"):
        # A recording, or an older kernel, may lack the folder of the device: then nothing is said.
        return "virtual" if tree.exists(f"{base}/ifindex") else ""
    return "usb" if tree.link(f"{base}/device/subsystem") == "usb" else ""


def parse_net_dev(data: bytes) -> list[tuple[str, list[int]]]:
    """`(interface, its sixteen numbers)`; lines that do not fit are skipped."""
    found: list[tuple[str, list[int]]] = []
    for line in data.decode("utf-8", "replace").splitlines():
        name, colon, rest = line.rpartition(":")
        fields = rest.split()
        name = name.strip()
        named = colon and name and clean_text(name) == name and "/" not in name
        if not named or len(fields) < 16:
            continue
        if all(f.isdecimal() and is_ascii(f) and len(f) <= 20 for f in fields[:16]):
            found.append((name, [int(f) for f in fields[:16]]))
    return found


# linux include/uapi/linux/{sockios.h,ethtool.h}
_SIOCETHTOOL = 0x8946
_GSSET_INFO, _GSTRINGS, _GSTATS = 0x37, 0x1B, 0x1D
_SS_STATS = 1
_STRING = 32
_MOST = 8192
"""Most counters of one interface: mlx5 with many queues has some thousand."""
_SLACK = 65536


class CounterSum(Value):
    """A metric and the counters that add up to it: those of the first group
    that matches any, plus all of `beside`.
    """

    metric: str
    factor: float
    groups: tuple[re.Pattern[str], ...]
    """A group `prio…` in a pattern is the priority that the counter is for."""
    beside: Optional[re.Pattern[str]] = None


def _any(*patterns: str) -> re.Pattern[str]:
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


def _frames(way: str) -> tuple[tuple[re.Pattern[str], re.Pattern[str]], re.Pattern[str]]:
    """Patterns of: PFC frames by priority, or their total if a driver has only
    that; pause frames for the whole link.
    """
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
    _any("rx_discard_packets_cos[0-7]"),  # bnxt, if it has no statistics of the port
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
"""ena: amazon/ena/ena_ethtool.c; packets that were held back or dropped because
of the cloud's limits for this machine.
"""
SUMS: tuple[CounterSum, ...] = (
    CounterSum("net.paused", 1e-6, (_DURATION,), _LINK_DURATION),
    CounterSum("net.pause_frames", 1, *_frames("rx")),
    CounterSum("net.pause_sent", 1, *_frames("tx")),
    CounterSum("net.card_drops", 1, _DROPS),
    CounterSum("net.over_limit", 1, (_OVER_LIMIT,)),
)
"""Names of counters: linux drivers/net/ethernet, in the file beside each.

Packets that a card drops because the host had no buffer ready count as
`net.drops`, if the driver reports them.
"""
PRIORITIES = {"net.paused": "net.prio_paused", "net.pause_frames": "net.prio_frames"}
"""Metric -> the metric of the same by priority, whose devices are like `eth0/3`."""
METRICS = (*(row.metric for row in SUMS), *PRIORITIES.values())
_MOST_COUNTERS = 32
_NOTHING: list[tuple[str, int]] = []


class EthtoolCollector:
    """Pause frames and drops of the interfaces whose drivers count them; only
    on this machine, not of a recording.
    """

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
        """Interfaces of physical (or emulated) devices."""
        names = self._tree.names("sys/class/net")
        return [n for n in names if self._tree.exists(f"sys/class/net/{n}/device")][:_MOST_COUNTERS]

    def _sums(self, reading: Reading, handle: int, name: str) -> None:
        for metric, by_priority in added_up(read_driver_counters(handle, name)).items():
            for priority, number in by_priority.items():
                reading.put(metric, number, f"{name}/{priority}" if priority else name)


def added_up(counters: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """Metric -> priority ("" for the total) -> number, for what this driver counts."""
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


def _matching(counters: Mapping[str, int], pattern: re.Pattern[str]) -> list[tuple[str, int]]:
    """`(priority or "", number)` of each counter that matches the pattern."""
    matches = ((pattern.fullmatch(name), number) for name, number in counters.items())
    return [(next(filter(None, match.groups()), ""), number) for match, number in matches if match]


def read_driver_counters(handle: int, interface: str) -> dict[str, int]:
    """Name -> number of all counters of an interface's driver; `handle` is any socket's descriptor.

    Raises OSError.
    """
    head = struct.pack("=IIQ", _GSSET_INFO, 0, 1 << _SS_STATS)
    (count,) = struct.unpack("=I", _ask(handle, interface, head, 4))
    if not 0 < count <= _MOST:
        return {}
    head = struct.pack("=III", _GSTRINGS, _SS_STATS, count)
    strings = _ask(handle, interface, head, count * _STRING)
    head = struct.pack("=II", _GSTATS, count)
    numbers = struct.unpack(f"={count}Q", _ask(handle, interface, head, count * 8))
    # Chelsio pads names with spaces.
    names = (
        strings[at : at + _STRING].partition(b"\0")[0] for at in range(0, len(strings), _STRING)
    )
    return dict(zip((name.decode("ascii", "replace").rstrip() for name in names), numbers))


def _ask(handle: int, interface: str, head: bytes, size: int) -> bytes:
    """The `size` bytes that the kernel writes after the head of a request; raises OSError."""
    # Extra room: the kernel writes all that the driver has by then, even if that is more.
    data = array.array("B", head + bytes(size + _SLACK))
    address, _ = data.buffer_info()
    fcntl.ioctl(handle, _SIOCETHTOOL, struct.pack("16sQ16x", interface.encode()[:15], address))
    return data[len(head) : len(head) + size].tobytes()
