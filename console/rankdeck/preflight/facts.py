"""Facts that a node reports about itself, parsed without trust."""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Interface
from typing import Any, cast

from rankdeck.images.locate import ImageAt, image_rows
from rankdeck.model.text import clean

Raw = Mapping[str, Any]
_MOST = 4096


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface and its IPv4 address."""

    name: str
    up: bool
    mtu: int
    address: IPv4Interface | None


@dataclass(frozen=True, slots=True)
class Program:
    """A command on a node; `path` "": not there. `digest` "": not read."""

    path: str
    size: int = 0
    digest: str = ""


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """A file system as this user has it; bytes. `free` None: could not be read."""

    path: str
    total: int | None
    free: int | None
    inodes: int | None
    writable: bool


@dataclass(frozen=True, slots=True)
class Name:
    """What a host name means on a node; `error` "" where it means something."""

    addresses: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Gpus:
    """What the driver shows: how many, how many uncorrected errors each, who uses them."""

    error: str = ""
    names: tuple[str, ...] = ()
    uncorrected: tuple[int | None, ...] = ()
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The facts of one node."""

    base: str
    base_there: bool
    programs: Mapping[str, Program]
    versions: Mapping[str, str]
    image: ImageAt | None
    names: Mapping[str, Name]
    own: Name
    own_name: str
    gpus: Gpus | None
    machine: str
    cores: int
    memlock: int | None
    """None: unlimited."""
    interfaces: tuple[Interface, ...]
    spaces: Mapping[str, DiskSpace]
    userns: bool
    fuse: bool
    port_trouble: str
    skew: float
    """Seconds by which the clock is off for certain; 0 within what the question took."""
    listen: int


def node_facts(raw: Raw, asked: float, heard: float) -> NodeFacts:
    """The facts in an answer that was asked for and heard at these epoch seconds."""
    images = image_rows(raw.get("images"))
    own, base = _table(raw, "own"), _table(raw, "base")
    return NodeFacts(
        base=clean(base.get("path"), 400),
        base_there=base.get("there") is True,
        programs={k: _program(v) for k, v in _tables(raw, "programs")},
        versions={clean(k): clean(v) for k, v in _table(raw, "versions").items()},
        image=images[0] if images else None,
        names={k: _name(v) for k, v in _tables(raw, "names")},
        own=_name(own),
        own_name=clean(own.get("name"), 64),
        gpus=_gpus(_table(raw, "gpus")) if "gpus" in raw else None,
        machine=clean(raw.get("machine"), 32),
        cores=_count(raw.get("cores")) or 0,
        memlock=_count(raw.get("memlock")),
        interfaces=tuple(_interface(row) for row in _rows(raw, "interfaces")),
        spaces={k: _space(v) for k, v in _tables(raw, "spaces")},
        userns=raw.get("userns") == "yes",
        fuse=raw.get("fuse") is True,
        port_trouble=clean(raw.get("port")),
        skew=_skew(raw.get("at"), asked, heard),
        listen=_count(raw.get("listen")) or 0,
    )


def _table(raw: Raw, key: str) -> Raw:
    value = raw.get(key)
    return cast("Raw", value) if isinstance(value, dict) else {}


def _tables(raw: Raw, key: str) -> list[tuple[str, Raw]]:
    rows = list(_table(raw, key).items())[:_MOST]
    return [(name, cast("Raw", row)) for name, row in rows if isinstance(row, dict)]


def _rows(raw: Raw, key: str) -> list[Raw]:
    value = raw.get(key)
    rows = cast("list[Any]", value)[:_MOST] if isinstance(value, list) else []
    return [cast("Raw", row) for row in rows if isinstance(row, dict)]


def _count(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:18])
    return value if type(value) is int and 0 <= value < 1 << 62 else None


def _program(raw: Raw) -> Program:
    size = _count(raw.get("size")) or 0
    return Program(clean(raw.get("path"), 400), size, clean(raw.get("digest"), 80))


def _name(raw: Raw) -> Name:
    found = raw.get("addresses")
    rows = cast("list[object]", found)[:8] if isinstance(found, list) else []
    return Name(tuple(clean(row, 64) for row in rows), clean(raw.get("error")))


def _space(raw: Raw) -> DiskSpace:
    total, free, inodes = (_count(raw.get(key)) for key in ("total", "free", "inodes"))
    path, writable = clean(raw.get("path"), 400), raw.get("writable") is True
    return DiskSpace(path, total, free, inodes, writable)


def _interface(raw: Raw) -> Interface:
    address = raw.get("address")
    try:
        found = IPv4Interface(str(address)[:40]) if address else None
    except ValueError:
        found = None
    mtu = _count(raw.get("mtu")) or 0
    return Interface(clean(raw.get("name"), 32), raw.get("up") is True, mtu, found)


def _gpus(raw: Raw) -> Gpus:
    rows, users = _rows(raw, "rows"), _rows(raw, "users")
    errors = (row.get("ecc.errors.uncorrected.volatile.total") for row in rows)
    return Gpus(
        error=clean(raw.get("error")),
        names=tuple(clean(row.get("name"), 64) for row in rows),
        uncorrected=tuple(_count(clean(error).strip()) for error in errors),
        users=tuple(
            f"pid {clean(u.get('pid'), 12)} {clean(u.get('process_name'), 60)}" for u in users[:64]
        ),
    )


def _skew(at: object, asked: float, heard: float) -> float:
    """How far the node's stamp lies outside of the time in which it was made."""
    if not isinstance(at, int | float) or not 0 <= at < 1e12:
        return 0.0
    return max(0.0, float(at) - heard) + min(0.0, float(at) - asked)
