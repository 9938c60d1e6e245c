"""Facts about this node that a launch depends on; nothing here judges them."""

import os
import platform
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional, cast

from rankdeck_agent.image.digest import FAR_SETTLED, TooSlowError, file_digest
from rankdeck_agent.image.look import request_rows
from rankdeck_agent.job.folder import state_folder
from rankdeck_agent.job.text import plain
from rankdeck_agent.preflight.network import (
    interfaces,
    port_trouble,
    resolve,
    side_by_side,
)

_PROGRAM_LIMIT = 4.0
_DIGEST_LIMIT = 1.0
_RESOLVE_LIMIT = 2.0
_MOST_FOUND = 8
_GPU = "index,uuid,name,memory.total,memory.used,ecc.errors.uncorrected.volatile.total"
_USERS = "gpu_uuid,pid,used_memory,process_name"
Facts = dict[str, Any]


def gather(request: Mapping[str, Any]) -> Facts:
    """All facts; what could not be read is missing or carries an `error`.

    The request holds base, path, programs, versions, images, hosts, port and gpus.
    """
    base = Path.home() / Path(str(request.get("base") or "~")).expanduser()
    path = str(request.get("path") or "") or None
    asked = _Asked(request, base, path)
    jobs = (asked.programs, asked.versions, asked.images, asked.names, asked.gpus, machine)
    found: Facts = {}
    for facts in side_by_side(lambda job: job(), jobs, 15.0):
        found.update(facts or {})
    port = int(request.get("port") or 0)
    return {
        **found,
        "base": {"path": plain(str(base)), "there": base.is_dir()},
        "port": port_trouble(port) if port else "",
        "at": time.time(),
    }


class _Asked:
    """The parts of the facts that the request names."""

    def __init__(self, request: Mapping[str, Any], base: Path, path: Optional[str]) -> None:
        self._request, self._base, self._path = request, base, path

    def _words(self, key: str) -> list[str]:
        found = self._request.get(key)
        words = cast("list[object]", found) if isinstance(found, list) else []
        return [str(word) for word in words[:4096]]

    def programs(self) -> Facts:
        names = self._words("programs")
        return {"programs": {name: self._program(name) for name in names}}

    def _program(self, name: str) -> Facts:
        path = self._find(name)
        if not path:
            return {"path": ""}
        row = {"path": plain(path), "size": Path(path).stat().st_size, "digest": ""}
        try:
            # Programs are small, and lie in home folders that a server has.
            row["digest"] = file_digest(Path(path).resolve(), _DIGEST_LIMIT, settled=FAR_SETTLED)
        except (OSError, TooSlowError):
            return row
        return row

    def _find(self, name: str) -> str:
        """Where a command or a file is; "" where it is not, or cannot be run or read."""
        if "/" not in name and not name.endswith(".py"):
            return shutil.which(name, path=self._path) or ""
        place = self._base / Path(name).expanduser()
        mode = os.R_OK if name.endswith(".py") else os.X_OK
        return str(place) if place.is_file() and os.access(place, mode) else ""

    def versions(self) -> Facts:
        names = [path for name in self._words("versions") for path in _expanded(name)]
        return {"versions": {name: self._version(name) for name in names}}

    def _version(self, name: str) -> str:
        path = self._find(name)
        return _first_line([path, "--version"]) if path else ""

    def images(self) -> Facts:
        return {"images": request_rows(self._request)}

    def names(self) -> Facts:
        hosts = self._words("hosts")
        own = socket.gethostname()
        found = side_by_side(_resolved, [*hosts, own], _RESOLVE_LIMIT)
        late = {"error": f"no answer within {_RESOLVE_LIMIT:g} s"}
        rows = [row or late for row in found]
        return {"names": dict(zip(hosts, rows)), "own": {"name": plain(own), **rows[-1]}}

    def gpus(self) -> Facts:
        return {"gpus": _gpus()} if self._request.get("gpus") else {}


def _expanded(name: str) -> list[str]:
    """The name, or the few paths that a pattern stands for here."""
    if "*" not in name:
        return [name]
    return sorted(str(path) for path in Path("/").glob(name.lstrip("/")))[:_MOST_FOUND]


def _resolved(name: str) -> Facts:
    try:
        return {"addresses": resolve(name)}
    except (OSError, UnicodeError) as error:
        return {"error": plain(getattr(error, "strerror", "") or str(error))}


def machine() -> Facts:
    """What depends on nothing but the machine."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return {
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memlock": None if soft == resource.RLIM_INFINITY else soft,
        "interfaces": interfaces(),
        "spaces": {
            "run": _space(state_folder()),
            "tmp": _space(Path("/tmp")),
            "shm": _space(Path("/dev/shm")),
        },
        "userns": _first_line(["unshare", "-U", "true"], "yes"),
        "fuse": os.access("/dev/fuse", os.R_OK | os.W_OK),
    }


def _space(path: Path) -> Facts:
    """Bytes and inodes free to this user at a path that need not exist yet."""
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        found = os.statvfs(path)
    except OSError as error:
        return {"path": plain(str(path)), "error": plain(error.strerror or str(error))}
    return {
        "path": plain(str(path)),
        "total": found.f_blocks * found.f_frsize,
        "free": found.f_bavail * found.f_frsize,
        # Some file systems count no inodes: 0 of 0 is not "none left".
        "inodes": found.f_favail if found.f_files else None,
        "writable": os.access(path, os.W_OK),
    }


def _first_line(argv: list[str], silent: str = "") -> str:
    """What a program says first; `silent` where it succeeds without a word, "" where it fails."""
    try:
        done = subprocess.run(
            argv, capture_output=True, timeout=_PROGRAM_LIMIT, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
    return plain(lines[0]) if lines else silent if done.returncode == 0 else ""


def _gpus() -> Facts:
    """The GPUs that the driver shows and the processes on them, or an `error`."""
    try:
        rows = _table(_GPU, "--query-gpu")
        users = _table(_USERS, "--query-compute-apps")
    except FileNotFoundError:
        return {"error": "no nvidia-smi here"}
    except (OSError, subprocess.SubprocessError) as error:
        return {"error": plain(_said(error))}
    return {"rows": rows, "users": users}


def _said(error: Exception) -> str:
    output = getattr(error, "stdout", None) or b""
    return output.decode("utf-8", "replace").strip() or str(error)


def _table(fields: str, question: str) -> list[Facts]:
    argv = ["nvidia-smi", f"{question}={fields}", "--format=csv,noheader,nounits"]
    done = subprocess.run(
        argv, capture_output=True, timeout=_PROGRAM_LIMIT, check=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    names = fields.split(",")
    found: list[Facts] = []
    for line in done.stdout.decode("utf-8", "replace").splitlines()[:512]:
        cells = [plain(cell, 100) for cell in line.split(",", len(names) - 1)]
        if len(cells) == len(names):
            found.append(dict(zip(names, cells)))
    return found
