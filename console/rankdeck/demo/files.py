"""Keys, known hosts and cluster file of the embedded cluster, made on the spot."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from rankdeck.config.private import private_folder, write_private
from rankdeck.demo.layout import NODES, SLOTS, Layout, search_path, user

_ADDRESS = "127.0.0.1"
EXPECTED: Mapping[str, object] = {
    "gpu_count": 4,
    "gpu_model": "Simulated",
    "rdma_count": 2,
    "rdma_rate_gbps": 400,
}
"""What the simulated devices of a node are: one that is missing or down is noticed."""
_KEYS_LIMIT = 60.0


def lay(layout: Layout) -> None:
    """Make the folders, and the keys that are not there yet."""
    for name in NODES:
        for part in ("home", "state", "run"):
            private_folder(layout.node(name) / part)
    wanted = {layout.host_key(name): f"rankdeck demo {name}" for name in NODES}
    wanted[layout.identity] = "rankdeck demo"
    _make_keys({file: note for file, note in wanted.items() if not _has_key(file)})


def write_cluster(layout: Layout, ports: Mapping[str, int], faults: Sequence[str]) -> None:
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
    key = public_part(layout.host_key(name)).read_text().strip()
    return f"[{_ADDRESS}]:{port} {key}\n"


def public_part(key: Path) -> Path:
    """Where the public half of a key is."""
    return key.with_name(f"{key.name}.pub")


def _has_key(key: Path) -> bool:
    return key.exists() and public_part(key).exists()


def _make_keys(wanted: Mapping[Path, str]) -> None:
    """In a process of its own: who only looks at the demo need not wait for an SSH library."""
    if wanted:
        words = [str(word) for pair in wanted.items() for word in pair]
        argv = [sys.executable, "-m", "rankdeck.demo.keys", *words]
        imports = os.pathsep.join(entry for entry in sys.path if entry)
        env = {**os.environ, "PYTHONPATH": imports}
        subprocess.run(argv, check=True, timeout=_KEYS_LIMIT, env=env)


def _write(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    write_private(fresh, text)
    fresh.rename(path)
