"""The file system of a folder: its free room, and the server that it is on."""

import os
from pathlib import Path
from typing import Any

from rankdeck_agent.text import plain_line

_NETWORK = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "beegfs_nodev", "ceph", "cifs", "smb3", "glusterfs", "fuse.glusterfs",
     "fuse.ceph", "orangefs", "pvfs2", "afs", "9p", "wekafs", "panfs"}
)  # fmt: skip


def measure_room(path: Path) -> dict[str, Any]:
    """`free`, the bytes free where `path` is or would be, and `mount`, its
    network file system or ""; empty on error.
    """
    folder = path
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    try:
        space = os.statvfs(folder)
    except OSError:
        return {}
    return {"free": space.f_bavail * space.f_frsize, "mount": _network_mount(folder)}


def _network_mount(folder: Path) -> str:
    """`server:/export` of the network file system that holds the folder, or ""."""
    real = str(folder.resolve())
    best, source = "", ""
    try:
        lines = Path("/proc/self/mounts").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        words = line.split(" ")
        if len(words) < 3:
            continue
        at = words[1].replace("\\040", " ")
        inside = at == "/" or real == at or real.startswith(f"{at}/")
        if inside and len(at) >= len(best):
            best, source = at, words[0] if words[2] in _NETWORK else ""
    return plain_line(source, 200)
