"""What a node answered to the questions before a launch."""

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Interface, IPv6Address
from typing import Any

from rankdeck.images.bring import ImageAt, image_rows
from rankdeck.model.json_tables import as_list, as_table, as_tables, is_table
from rankdeck.model.safe_text import clean_line
from rankdeck.values import Value

Raw = Mapping[str, Any]
_MOST = 4096


class Interface(Value):
    """A network interface and its IPv4 address."""

    name: str
    up: bool
    mtu: int
    address: IPv4Interface | None


class Gid(Value):
    """One GID of an RDMA port, as the address that it stands for."""

    address: IPv4Address | IPv6Address
    kind: str
    """`RoCE v2`, `IB/RoCE v1`."""
    device: str
    """The network device."""

    @property
    def words(self) -> str:
        """`RoCE v2 10.9.0.2`."""
        return f"{self.kind} {self.address}".strip()

    @property
    def family(self) -> str:
        """`RoCE v2 over IPv4`: only GIDs of one family reach each other."""
        local = (
            "a link-local address" if self.address.is_link_local else f"IPv{self.address.version}"
        )
        return f"{self.kind} over {local}".strip()


class RdmaPort(Value):
    """An RDMA port and its GIDs by index."""

    name: str
    active: bool
    link: str
    """`Ethernet` or `InfiniBand`."""
    gids: Mapping[int, Gid]

    @property
    def devices(self) -> frozenset[str]:
        """The network devices of its GIDs."""
        return frozenset(gid.device for gid in self.gids.values())


class Program(Value):
    """A command on a node; `path` is "" if it is missing, `digest` is "" if it was not read."""

    path: str
    size: int = 0
    digest: str = ""
    refused: str = ""
    """The path of a file that is there, but that this user may not run (a Python file: read)."""


class DiskSpace(Value):
    """A file system as this user sees it, in bytes; `free` is None if it could not be read."""

    path: str
    total: int | None
    free: int | None
    inodes: int | None
    writable: bool


class Name(Value):
    """What a host name resolves to on a node; `error` is "" if it resolves."""

    addresses: tuple[str, ...] = ()
    error: str = ""


class Gpus(Value):
    """The GPUs that the driver shows: their number, uncorrected errors
    of each, processes that use them.
    """

    error: str = ""
    names: tuple[str, ...] = ()
    uncorrected: tuple[int | None, ...] = ()
    users: tuple[str, ...] = ()


class NodeFacts(Value, kw_only=True):
    """The facts of one node."""

    base: str
    base_there: bool
    programs: Mapping[str, Program]
    modules: Mapping[str, bool]
    """`PYTHON MODULE` -> whether the module is there, as far as known."""
    versions: Mapping[str, str]
    image: ImageAt | None
    names: Mapping[str, Name]
    own: Name
    own_name: str
    gpus: Gpus | None
    machine: str
    cores: int
    memlock: int | None
    """Limit on locked memory in bytes; None: unlimited."""
    interfaces: tuple[Interface, ...]
    rdma: tuple[RdmaPort, ...]
    spaces: Mapping[str, DiskSpace]
    userns: bool
    fuse: bool
    logout: bool
    """Whether processes are ended with the login in which they were started."""
    port_trouble: str
    skew: float
    """Seconds by which the clock is certainly off; 0 if the difference
    may be due to the time of asking.
    """
    listen: int

    def has(self, program: str) -> bool | None:
        """Whether the node has this command; None if it was not asked."""
        return bool(self.programs[program].path) if program in self.programs else None


def node_facts(raw: Raw, asked: float, answered: float) -> NodeFacts:
    """The facts in an answer; `asked` and `heard` are when it was
    requested and received, in epoch seconds.
    """
    images = image_rows(raw.get("images"))
    own, base = _table(raw, "own"), _table(raw, "base")
    return NodeFacts(
        base=clean_line(base.get("path"), 400),
        base_there=base.get("there") is True,
        programs={k: _program(v) for k, v in _tables(raw, "programs")},
        modules={k: v is True for k, v in list(_table(raw, "modules").items())[:_MOST]},
        versions={clean_line(k): clean_line(v) for k, v in _table(raw, "versions").items()},
        image=images[0] if images else None,
        names={k: _name(v) for k, v in _tables(raw, "names")},
        own=_name(own),
        own_name=clean_line(own.get("name"), 64),
        gpus=_gpus(_table(raw, "gpus")) if "gpus" in raw else None,
        machine=clean_line(raw.get("machine"), 32),
        cores=_count(raw.get("cores")) or 0,
        memlock=_count(raw.get("memlock")),
        interfaces=tuple(_interface(row) for row in _rows(raw, "interfaces")),
        rdma=tuple(_rdma_port(row) for row in _rows(raw, "rdma")[:64]),
        spaces={k: _space(v) for k, v in _tables(raw, "spaces")},
        userns=raw.get("userns") == "yes",
        fuse=raw.get("fuse") is True,
        logout=raw.get("logout") is True,
        port_trouble=clean_line(raw.get("port")),
        skew=_skew(raw.get("at"), asked, answered),
        listen=_count(raw.get("listen")) or 0,
    )


def _table(raw: Raw, key: str) -> Raw:
    return as_table(raw.get(key))


def _tables(raw: Raw, key: str) -> list[tuple[str, Raw]]:
    rows = list(_table(raw, key).items())[:_MOST]
    return [(name, row) for name, row in rows if is_table(row)]


def _rows(raw: Raw, key: str) -> Sequence[Raw]:
    return as_tables(raw.get(key), _MOST)


def _count(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:18])
    return value if type(value) is int and 0 <= value < 1 << 62 else None


def _program(raw: Raw) -> Program:
    size = _count(raw.get("size")) or 0
    refused = clean_line(raw.get("refused"), 400)
    return Program(
        clean_line(raw.get("path"), 400), size, clean_line(raw.get("digest"), 80), refused
    )


def _name(raw: Raw) -> Name:
    addresses = as_list(raw.get("addresses"), 8)
    return Name(tuple(clean_line(one, 64) for one in addresses), clean_line(raw.get("error")))


def _space(raw: Raw) -> DiskSpace:
    total, free, inodes = (_count(raw.get(key)) for key in ("total", "free", "inodes"))
    path, writable = clean_line(raw.get("path"), 400), raw.get("writable") is True
    return DiskSpace(path, total, free, inodes, writable)


def _interface(raw: Raw) -> Interface:
    address = raw.get("address")
    try:
        found = IPv4Interface(str(address)[:40]) if address else None
    except ValueError:
        found = None
    mtu = _count(raw.get("mtu")) or 0
    return Interface(clean_line(raw.get("name"), 32), raw.get("up") is True, mtu, found)


def _rdma_port(raw: Raw) -> RdmaPort:
    gids = dict(filter(None, map(_gid, as_list(raw.get("gids"), 64))))
    name, link = clean_line(raw.get("name"), 64), clean_line(raw.get("link"), 16)
    return RdmaPort(name, raw.get("active") is True, link, gids)


def _gid(row: object) -> tuple[int, Gid] | None:
    """(index, GID) of a row; None if it is not valid."""
    number, gid, kind, device = [*as_list(row, 4), *[None] * 4][:4]
    index = _count(number)
    try:
        address = IPv6Address(str(gid)[:40])
    except ValueError:
        return None
    if index is None:
        return None
    return index, Gid(address.ipv4_mapped or address, clean_line(kind, 32), clean_line(device, 32))


def _gpus(raw: Raw) -> Gpus:
    rows, users = _rows(raw, "rows"), _rows(raw, "users")
    errors = (row.get("ecc.errors.uncorrected.volatile.total") for row in rows)
    return Gpus(
        error=clean_line(raw.get("error")),
        names=tuple(clean_line(row.get("name"), 64) for row in rows),
        uncorrected=tuple(_count(clean_line(error).strip()) for error in errors),
        users=tuple(
            f"pid {clean_line(u.get('pid'), 12)} {clean_line(u.get('process_name'), 60)}"
            for u in users[:64]
        ),
    )


def _skew(at: object, asked: float, answered: float) -> float:
    """How many seconds the node's time is outside of the interval in which it was asked."""
    if not isinstance(at, int | float) or not 0 <= at < 1e12:
        return 0.0
    return max(0.0, float(at) - answered) + min(0.0, float(at) - asked)
