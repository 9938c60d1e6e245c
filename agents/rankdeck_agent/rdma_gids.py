"""The GIDs of this node's RDMA ports by index, from which NCCL_IB_GID_INDEX and the like choose."""

from pathlib import Path
from typing import Any, NamedTuple

from rankdeck_agent.older_python import find_paths
from rankdeck_agent.text import plain_line

_MOST_PORTS, _MOST_GIDS, _MOST_TRIED = 64, 64, 512


class GidEntry(NamedTuple):
    """One entry in use of the GID table of a port."""

    number: int
    gid: str
    kind: str
    """As the kernel names it: `RoCE v2`, `IB/RoCE v1`; "" where it does not say."""
    device: str
    """Its network device; "" if it has none."""


def list_rdma_ports(sys_tree: Path = Path("/sys")) -> list[dict[str, Any]]:
    """A row per RDMA port: `name`, `active`, `link` (Ethernet, InfiniBand), and `gids`, rows of
    index, GID, type and network device.
    """
    found = find_paths(sys_tree / "class/infiniband", "*/ports/*")[:_MOST_PORTS]
    return [
        {
            "name": plain_line(f"{port.parent.parent.name}/{port.name}", 64),
            "active": _line(port / "state").startswith("4:"),
            "link": _line(port / "link_layer"),
            "gids": [list(entry) for entry in read_gids(port)],
        }
        for port in found
    ]


def read_gids(port: Path) -> list[GidEntry]:
    """The first entries in use of the GID table of a port, which is a folder in /sys."""
    numbers = sorted(int(file.name) for file in find_paths(port, "gids/*") if file.name.isdecimal())
    found: list[GidEntry] = []
    for number in numbers[:_MOST_TRIED]:
        gid = _line(port / "gids" / str(number))
        if gid.strip("0:") and len(found) < _MOST_GIDS:
            attributes = port / "gid_attrs"
            kind, device = (_line(attributes / what / str(number)) for what in ("types", "ndevs"))
            found.append(GidEntry(number, gid, kind, device))
    return found


def _line(file: Path) -> str:
    try:
        return plain_line(file.read_bytes()[:256].decode("utf-8", "replace").strip(), 64)
    except OSError:  # an entry of the table that is not used cannot be read
        return ""
