"""Keys, known hosts and cluster file of the embedded cluster, made on the spot."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import asyncssh
import yaml

from rankdeck.demo.layout import NODES, SLOTS, Layout, search_path, user

_ADDRESS = "127.0.0.1"
EXPECTED: Mapping[str, object] = {
    "gpu_count": 4,
    "gpu_model": "Simulated",
    "rdma_count": 2,
    "rdma_rate_gbps": 400,
}
"""What the simulated devices of a node are: one that is missing or down is noticed."""
_ALGORITHM = "ssh-ed25519"


def lay(layout: Layout) -> None:
    """Make the folders, and the keys that are not there yet."""
    for name in NODES:
        for part in ("home", "state", "run"):
            (layout.node(name) / part).mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_key(layout.host_key(name), f"rankdeck demo {name}")
    _make_key(layout.identity, "rankdeck demo")


def write_cluster(
    layout: Layout, ports: Mapping[str, int], faults: Sequence[str]
) -> None:
    """Write known_hosts and the cluster file for nodes on these ports."""
    known = [_known_host(layout, name, port) for name, port in ports.items()]
    _write(layout.known_hosts, "".join(known))
    interface = _interface()
    nodes = [
        {
            "name": name,
            "address": _ADDRESS,
            "port": port,
            "slots": SLOTS,
            "interface": interface,
        }
        for name, port in ports.items()
    ]
    content = {
        "cluster": "demo",
        "nodes": nodes,
        "ssh": {
            "user": user(),
            "identity": str(layout.identity),
            "known_hosts": str(layout.known_hosts),
            "config": "none",
            "python": sys.executable,
        },
        "simulate": ["gpu", "rdma", *faults],
        "expect": EXPECTED,
        "environment": {"PATH": search_path()},
    }
    _write(layout.cluster_file, yaml.safe_dump(content, sort_keys=False))


def _interface() -> str:
    """The interface of the default route: Open MPI 5 takes loopback only where there is no other."""
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        name, destination, *_ = line.split()
        if destination == "00000000":
            return name
    return "lo"


def _known_host(layout: Layout, name: str, port: int) -> str:
    key = asyncssh.read_public_key(f"{layout.host_key(name)}.pub")
    return f"[{_ADDRESS}]:{port} {key.export_public_key().decode().strip()}\n"


def _make_key(path: Path, comment: str) -> None:
    public = path.with_name(f"{path.name}.pub")
    if path.exists() and public.exists():
        return
    key = asyncssh.generate_private_key(  # pyright: ignore[reportUnknownMemberType]
        _ALGORITHM, comment=comment
    )
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key.export_private_key())
    public.write_bytes(key.export_public_key())


def _write(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.rename(path)
