"""What lies at the place of an image, whatever runs it: one row of plain values."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional, cast

from rankdeck_agent.image.digest import (
    FAR_SETTLED,
    SETTLED,
    TooSlowError,
    file_digest,
    folder_digest,
)
from rankdeck_agent.job.text import plain

STORES = ("podman", "docker")
"""Runtimes that keep images in a store of their own, by name."""
_STORE_LIMIT = 20.0
_NETWORK = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "beegfs_nodev", "ceph", "cifs", "smb3", "glusterfs", "fuse.glusterfs",
     "fuse.ceph", "orangefs", "pvfs2", "afs", "9p", "wekafs", "panfs"}
)  # fmt: skip
Row = dict[str, Any]


def look(runtime: str, image: str, base: str = "", limit: Optional[float] = None) -> Row:
    """How an image lies here.

    kind is file, folder, store, remote, missing or failed; digest "" with kind file: not read
    within `limit` seconds; free is in bytes; mount names a network file system, else "".
    """
    if runtime in STORES:
        return _in_store(runtime, image)
    if "://" in image:
        return {"kind": "remote", "path": image}
    path = place(runtime, image, base)
    row: Row = {"path": str(path), **room(path)}
    try:
        if path.is_dir():
            digest, size = folder_digest(path)
            return {**row, "kind": "folder", "digest": digest, "size": size}
        if not path.exists():
            return {**row, "kind": "missing"}
        return {
            **row,
            "kind": "file",
            "size": path.stat().st_size,
            "digest": _digest(path, limit, row.get("mount", "")),
        }
    except OSError as error:
        return {**row, "kind": "failed", "error": plain(f"{error.strerror or error}")}


def _digest(path: Path, limit: Optional[float], mount: str) -> str:
    try:
        return file_digest(path, limit, settled=FAR_SETTLED if mount else SETTLED)
    except TooSlowError:
        return ""


def place(runtime: str, image: str, base: str) -> Path:
    """Where the runtime looks: below `base`, which is below the home folder."""
    path = Path.home() / Path(base or "~").expanduser() / Path(image).expanduser()
    if runtime == "enroot" and "/" not in image and not path.exists():
        data = os.environ.get("XDG_DATA_HOME") or Path("~/.local/share").expanduser()
        return Path(os.environ.get("ENROOT_DATA_PATH") or f"{data}/enroot") / image
    return path


def room(path: Path) -> Row:
    """Bytes free where `path` is or would be, and which network file system that is."""
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
    return plain(source, 200)


def _in_store(runtime: str, image: str) -> Row:
    """The image as podman or docker know it, by its own digest."""
    if not shutil.which(runtime):
        return {"kind": "failed", "path": image, "error": f"no `{runtime}` here"}
    ask = [runtime, "image", "inspect", "--format", "{{.Id}} {{.Size}}", "--", image]
    try:
        done = subprocess.run(
            ask, capture_output=True, text=True, errors="replace", timeout=_STORE_LIMIT, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"kind": "failed", "path": image, "error": plain(str(error))}
    return _store_row(image, done.returncode, done.stdout, done.stderr)


def _store_row(image: str, code: int, out: str, err: str) -> Row:
    words = out.split()
    if code == 0 and len(words) == 2 and words[1].isdigit():
        digest = words[0] if ":" in words[0] else f"sha256:{words[0]}"
        return {"kind": "store", "path": image, "digest": plain(digest, 80), "size": int(words[1])}
    said = plain(err.strip().splitlines()[-1] if err.strip() else f"exit status {code}")
    unknown = any(word in said.lower() for word in ("no such image", "not known", "no such object"))
    return {"kind": "missing" if unknown else "failed", "path": image, "error": said}


def request_rows(request: Mapping[str, Any]) -> list[Row]:
    """The rows for `{"images": [[runtime, image, base], …], "limit": seconds | null}`."""
    limit = request.get("limit")
    asked = request.get("images")
    rows: list[Row] = []
    for item in cast("list[Any]", asked) if isinstance(asked, list) else []:
        runtime, image, base = (str(word) for word in item)
        rows.append(look(runtime, image, base, limit))
    return rows
