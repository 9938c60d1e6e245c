"""Tables of the kernel that no check needs and dashboards show, under its own
names: memory, protocols, sockets, open files.
"""

import re
from collections.abc import Iterator, Mapping

from rankdeck_agent.collectors.base import Reading, parse_signed, parse_unsigned
from rankdeck_agent.system_files import Tree

_PROTOCOLS = ("proc/net/snmp", "proc/net/netstat")
_ROWS: Mapping[bytes, frozenset[bytes]] = {
    b"Icmp": frozenset({b"InErrors", b"InMsgs", b"OutMsgs"}),
    b"Ip": frozenset({b"Forwarding"}),
    b"IpExt": frozenset({b"InOctets", b"OutOctets"}),
    b"Tcp": frozenset(
        b"ActiveOpens CurrEstab InErrs InSegs OutRsts OutSegs PassiveOpens RetransSegs".split()
    ),
    b"TcpExt": frozenset(
        b"ListenDrops ListenOverflows SyncookiesFailed SyncookiesRecv SyncookiesSent"
        b" TCPSynRetrans TCPTimeouts TCPOFOQueue TCPRcvQDrop".split()
    ),
    b"Udp": frozenset(
        b"InDatagrams InErrors NoPorts OutDatagrams RcvbufErrors SndbufErrors".split()
    ),
    b"UdpLite": frozenset({b"InErrors"}),
}
"""Protocol -> its rows that are read: those of node_exporter (collector/netstat_linux.go)."""
_SOCKETS = "proc/net/sockstat"
_PAGES = frozenset({"TCP_mem", "UDP_mem"})
"""Rows in pages; their size in bytes is a row of its own, as in node_exporter."""
_PAGE = 4096
_FILES = "proc/sys/fs/file-nr"
_NUMBERS: tuple[tuple[str, str, str], ...] = (
    ("kernel.entropy", "available_bits", "proc/sys/kernel/random/entropy_avail"),
    ("kernel.entropy", "pool_size_bits", "proc/sys/kernel/random/poolsize"),
    ("net.conntrack", "entries", "proc/sys/net/netfilter/nf_conntrack_count"),
    ("net.conntrack", "entries_limit", "proc/sys/net/netfilter/nf_conntrack_max"),
)
"""(metric, its row, file with the number)."""


_SIZE = re.compile(r"^([A-Za-z][\w()]{0,40}): +(\d{1,15})( kB)?$", re.MULTILINE)
_SAID = frozenset({"MemTotal", "MemAvailable", "HardwareCorrupted"})
"""Rows of /proc/meminfo that have metrics of their own."""
_PAGING = re.compile(
    rb"^(p(?:gpgin|gpgout|swpin|swpout|gfault|gmajfault)) (\d{1,20})$", re.MULTILINE
)


class KernelTableCollector:
    """Reads the tables every few seconds: reading them costs as much as the CPUs do."""

    name = "tables"
    lane = "proc"
    period = 10.0
    metrics: tuple[str, ...] = (
        "mem.row", "mem.vmstat", "net.stack", "net.sockets", "net.conntrack", "kernel.files",
        "kernel.entropy",
    )  # fmt: skip

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)

    def collect(self, now: float) -> Reading:
        reading = Reading()
        reading.attempt(("mem.row",), lambda: self._memory(reading))
        reading.attempt(("mem.vmstat",), lambda: self._paging(reading))
        for file in _PROTOCOLS:
            reading.attempt(("net.stack",), lambda f=file: self._protocols(reading, f))
        reading.attempt(("net.sockets",), lambda: self._sockets(reading))
        reading.attempt(("kernel.files",), lambda: self._files(reading))
        for metric, row, file in _NUMBERS:
            reading.measure(metric, lambda f=file: parse_unsigned(self._tree.read(f)), row)
        return reading

    def _memory(self, reading: Reading) -> None:
        rows = _SIZE.findall(self._tree.read("proc/meminfo").decode("ascii", "replace"))
        for name, number, kilobytes in rows:
            if name not in _SAID:
                reading.put("mem.row", int(number) << (10 if kilobytes else 0), name)

    def _paging(self, reading: Reading) -> None:
        for name, number in _PAGING.findall(self._tree.read("proc/vmstat")):
            reading.put("mem.vmstat", int(number), name.decode())

    def _protocols(self, reading: Reading, file: str) -> None:
        for protocol, row, number in protocol_rows(self._tree.read(file)):
            reading.put("net.stack", number, f"{protocol}_{row}")

    def _sockets(self, reading: Reading) -> None:
        for line in self._tree.read(_SOCKETS).decode("ascii", "replace").splitlines():
            protocol, _, rest = line.partition(": ")
            words = rest.split()
            for name, number in zip(words[::2], words[1::2]):
                row = f"{protocol}_{name}"
                reading.put("net.sockets", parse_unsigned(number.encode()), row)
                if row in _PAGES:
                    reading.put("net.sockets", int(number) * _PAGE, f"{row}_bytes")

    def _files(self, reading: Reading) -> None:
        allocated, _, most = map(parse_unsigned, self._tree.read(_FILES).split())
        reading.put("kernel.files", allocated, "allocated")
        reading.put("kernel.files", most, "maximum")


def protocol_rows(data: bytes) -> Iterator[tuple[str, str, int]]:
    """(protocol, row, number) for _ROWS, from a file with a line of names
    and one of numbers for each protocol.
    """
    lines = data.splitlines()
    for heads, numbers in zip(lines[::2], lines[1::2]):
        protocol, _, names = heads.partition(b": ")
        same, _, counts = numbers.partition(b": ")
        wanted = _ROWS.get(protocol, frozenset())
        for name, number in zip(
            names.split(), counts.split() if wanted and same == protocol else ()
        ):
            if name in wanted:
                yield protocol.decode(), name.decode(), parse_signed(number)
