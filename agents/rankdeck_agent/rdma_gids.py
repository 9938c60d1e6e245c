"""The GIDs of this node's RDMA ports by index, from which NCCL_IB_GID_INDEX and the like choose."""

from pathlib import Path
from typing import Any, Union

from rankdeck_agent.text import plain_line

_MOST_PORTS, _MOST_GIDS, _MOST_TRIED = 64, 64, 512


def list_rdma_ports(sys_tree: Path = Path("/sys")) -> list[dict[str, Any]]:
    """A row per RDMA port: `name`, `active`, `link` (Ethernet, InfiniBand), and `gids`, rows of
    index, GID, type and network device.
    """
    found = sorted((sys_tree / "class/infiniband").glob("*/ports/*"))[:_MOST_PORTS]
    return [
        {
            "name": plain_line(f"{port.parent.parent.name}/{port.name}", 64),
            "active": _line(port / "state").startswith("4:"),
            "link": _line(port / "link_layer"),
            "gids": _gids(port),
        }
        for port in found
    ]


def _gids(port: Path) -> list[list[Union[int, str]]]:
    numbers = sorted(int(file.name) for file in port.glob("gids/*") if file.name.isdecimal())
    rows: list[list[Union[int, str]]] = []
    for number in numbers[:_MOST_TRIED]:
        gid = _line(port / "gids" / str(number))
        if gid.strip("0:") and len(rows) < _MOST_GIDS:
            attributes = port / "gid_attrs"
            kind, device = (_line(attributes / what / str(number)) for what in ("types", "ndevs"))
            rows.append([number, gid, kind, device])
    return rows


def _line(file: Path) -> str:
    try:
        return plain_line(file.read_bytes()[:256].decode("utf-8", "replace").strip(), 64)
    except OSError:  # an entry of the table that is not used cannot be read
        return ""
