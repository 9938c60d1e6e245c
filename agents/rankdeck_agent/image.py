"""`image`: finds and hashes container images on this node, sends
and receives copies; sends any file.
"""

import argparse
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Optional, cast

from rankdeck_agent.container_engines import ENGINES
from rankdeck_agent.files import make_private_folder, write_private_file
from rankdeck_agent.text import parse_json_table, plain_line, print_complaint, print_json_line

if TYPE_CHECKING:
    from hashlib import (
        _Hash as Hash,  # pyright: ignore[reportPrivateUsage] - the only name it has
    )


PIECE = 1 << 20
SETTLED = 2.0
"""Seconds: a file that changed less than this before it was read may
change again with the same time stamp.
"""
FAR_SETTLED = 900.0
"""The same for a file on a file server, whose clock may be wrong by that much."""
_MOST_KEPT = 256
_MOST_ENTRIES = 500_000
Stamp = list[int]
"""[size, mtime, ctime, inode, device] of a file."""


class TooSlowError(Exception):
    """Reading the file took longer than the limit."""


def file_digest(path: Path, limit: Optional[float] = None, *, settled: float = SETTLED) -> str:
    """SHA-256 of a file in hex; from a cache if the file is certainly
    unchanged. Raises OSError, TooSlowError.

    `limit`: seconds, None for no limit. A file that changed less than `settled` seconds ago is read
    each time. If it changes while it is read, OSError (EBUSY) is raised.
    """
    # Open it first: only then does a client of a file server ask for fresh attributes.
    with _regular(path) as file:
        stamp, begun = _stamp(os.fstat(file.fileno())), time.time()
        kept = _load().get(str(path))
        # A digest from the future does not count: a clock that was set back repeats stamps.
        if kept is not None and kept[:-2] == stamp and kept[-2] <= begun:
            return str(kept[-1])
        digest = read_digest(file, limit)
        if not stamp == _stamp(os.fstat(file.fileno())) == _stamp(path.stat()):
            raise OSError(errno.EBUSY, "it is being written or replaced just now")
    # Only if any later change will have another time stamp: none that is recent or in the future.
    if max(stamp[1], stamp[2]) / 1e9 + settled < begun:
        _keep(str(path), [*stamp, begun, digest])
    return digest


def read_digest(file: BinaryIO, limit: Optional[float] = None) -> str:
    """SHA-256 in hex of the rest of a file; raises TooSlowError after `limit` seconds, OSError."""
    deadline = None if limit is None else time.monotonic() + limit
    found = hashlib.sha256()
    for piece in iter(lambda: file.read(PIECE), b""):
        found.update(piece)
        if deadline is not None and time.monotonic() > deadline:
            raise TooSlowError
    return found.hexdigest()


def folder_digest(path: Path) -> tuple[str, int]:
    """(`tree:` and a SHA-256 over names, modes, sizes and link targets;
    the sum of the sizes). Raises OSError.

    Contents are not read: an image folder has tens of thousands of files.
    """
    found = hashlib.sha256()
    total = 0
    for name, info, target in _entries(str(path)):
        size = info.st_size if stat.S_ISREG(info.st_mode) else 0
        total += size
        found.update(f"{name}\0{info.st_mode:o}\0{size}\0{target}\n".encode())
    return f"tree:{found.hexdigest()}", total


def _entries(root: str) -> Iterator[tuple[str, os.stat_result, str]]:
    """(name in hex, stat, link target) of everything below, in an order that
    does not depend on the file system.
    """
    waiting, seen = [""], 0
    while waiting and seen < _MOST_ENTRIES:
        folder = waiting.pop()
        try:
            found = sorted(os.scandir(f"{root}/{folder}"), key=lambda e: e.name)
        except PermissionError:
            continue
        for entry in found:
            seen += 1
            name = f"{folder}/{entry.name}" if folder else entry.name
            target = os.readlink(entry.path) if entry.is_symlink() else ""
            yield os.fsencode(name).hex(), entry.stat(follow_symlinks=False), target
            if entry.is_dir(follow_symlinks=False):
                waiting.append(name)


def _stamp(info: os.stat_result) -> Stamp:
    # Anybody can set mtime; only the kernel sets ctime.
    return [info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_dev]


def _store() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "rankdeck" / "digests.json"


def _load() -> dict[str, list[Any]]:
    try:
        found = json.loads(_store().read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    rows = cast("dict[str, Any]", found)
    return {name: row for name, row in rows.items() if _is_row(row)}


def _is_row(row: object) -> bool:
    """Whether it has a stamp, the time of reading and a digest; rows of older agents do not."""
    if not isinstance(row, list) or len(cast("list[Any]", row)) != 7:
        return False
    *numbers, digest = cast("list[Any]", row)
    return isinstance(digest, str) and all(type(n) in (int, float) for n in numbers)


def _keep(name: str, row: list[Any]) -> None:
    """Cache a digest; it does not matter if the cache cannot be written."""
    rows = {**_load(), name: row}
    newest = dict(list(rows.items())[-_MOST_KEPT:])
    store = _store()
    part = store.with_name(f"{store.name}.{os.getpid()}")
    try:
        make_private_folder(store.parent)
        write_private_file(part, json.dumps(newest).encode())
        part.replace(store)
    except OSError:
        return


_STORE_LIMIT = 20.0
_NETWORK = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "beegfs_nodev", "ceph", "cifs", "smb3", "glusterfs", "fuse.glusterfs",
     "fuse.ceph", "orangefs", "pvfs2", "afs", "9p", "wekafs", "panfs"}
)  # fmt: skip
Row = dict[str, Any]


def describe_image(runtime: str, image: str, base: str = "", limit: Optional[float] = None) -> Row:
    """A row about an image on this node.

    `kind`: file, folder, store, remote, missing or failed. `digest`: "" for a file that could not
    be read within `limit` seconds. `free`: bytes free there. `mount`: the network file system that
    it is on, or "".
    """
    if runtime in ENGINES:
        return _in_store(runtime, image)
    if "://" in image:
        return {"kind": "remote", "path": image}
    path = image_path(runtime, image, base)
    row: Row = {"path": str(path), **free_room(path)}
    try:
        if path.is_dir():
            digest, size = folder_digest(path)
            return {**row, "kind": "folder", "digest": digest, "size": size}
        if not path.exists():
            return {**row, "kind": "missing"}
        size, digest = path.stat().st_size, ""
        with suppress(TooSlowError):
            digest = file_digest(path, limit, settled=FAR_SETTLED if row.get("mount") else SETTLED)
    except OSError as error:
        return {**row, "kind": "failed", "error": plain_line(f"{error.strerror or error}")}
    return {**row, "kind": "file", "size": size, "digest": digest}


def image_path(runtime: str, image: str, base: str) -> Path:
    """The path where the runtime looks for the image: relative to `base`,
    which is relative to the home folder.
    """
    path = Path.home() / Path(base or "~").expanduser() / Path(image).expanduser()
    if runtime == "enroot" and "/" not in image and not path.exists():
        data = os.environ.get("XDG_DATA_HOME") or Path("~/.local/share").expanduser()
        return Path(os.environ.get("ENROOT_DATA_PATH") or f"{data}/enroot") / image
    return path


def free_room(path: Path) -> Row:
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


def _in_store(runtime: str, image: str) -> Row:
    """The row of an image in the store of podman or docker, with its digest there."""
    if not shutil.which(runtime):
        return {"kind": "failed", "path": image, "error": f"no `{runtime}` here"}
    ask = [runtime, "image", "inspect", "--format", "{{.Id}} {{.Size}}", "--", image]
    try:
        done = subprocess.run(
            ask,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            errors="replace",
            timeout=_STORE_LIMIT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"kind": "failed", "path": image, "error": plain_line(str(error))}
    return _store_row(image, done.returncode, done.stdout, done.stderr)


def _store_row(image: str, code: int, out: str, err: str) -> Row:
    words = out.split()
    if code == 0 and len(words) == 2 and words[1].isdecimal():
        digest = words[0] if ":" in words[0] else f"sha256:{words[0]}"
        return {
            "kind": "store",
            "path": image,
            "digest": plain_line(digest, 80),
            "size": int(words[1]),
        }
    error = plain_line(err.strip().splitlines()[-1] if err.strip() else f"exit status {code}")
    unknown = any(
        word in error.lower() for word in ("no such image", "not known", "no such object")
    )
    return {"kind": "missing" if unknown else "failed", "path": image, "error": error}


def request_rows(request: Mapping[str, Any]) -> list[Row]:
    """The rows for `{"images": [[runtime, image, base], …], "limit": seconds | null}`."""
    limit = request.get("limit")
    asked = request.get("images")
    rows: list[Row] = []
    for item in cast("list[Any]", asked) if isinstance(asked, list) else []:
        runtime, image, base = (str(word) for word in item)
        rows.append(describe_image(runtime, image, base, limit))
    return rows


_SLACK = 64 << 20
"""Bytes that must stay free: a full file system breaks other users' jobs."""


class ReceiveError(Exception):
    """An image cannot be received; the text is a sentence."""


def partial_image_path(path: Path, sha: str) -> Path:
    """The file for an incomplete copy; it depends on the digest,
    so another image has another one.
    """
    return path.with_name(f".{path.name}.{sha[:16]}.part")


PERMISSIONS = 0o777
"""What of a file's mode is copied with it: never set-user-id, set-group-id or sticky."""


@dataclass(frozen=True)
class Incoming:
    """A file to receive: size in bytes, digest in hex, permissions;
    `replace` another file at that path.
    """

    size: int
    sha256: str
    mode: int = 0o644
    replace: bool = False


def receive_image(path: Path, incoming: Incoming) -> int:
    """Receive a file on stdin; returns the exit code.

    Prints `{"offset": n}`, from which the sender must start, then `{"ok": true}` when
    the file is complete, verified and on disk.
    """
    try:
        if _is_there(path, incoming.sha256, replace=incoming.replace):
            print_json_line({"offset": incoming.size})
            mode = incoming.mode & PERMISSIONS
            if path.stat().st_mode & PERMISSIONS != mode:
                with suppress(PermissionError):  # another user's file keeps its own
                    path.chmod(mode)
        else:
            _take(path, incoming)
    except ReceiveError as error:
        print_json_line({"ok": False, "error": str(error)})
        return 1
    except OSError as error:
        print_json_line({"ok": False, "error": plain_line(f"{path}: {error.strerror or error}")})
        return 1
    print_json_line({"ok": True})
    return 0


def _is_there(path: Path, sha: str, *, replace: bool) -> bool:
    """Whether this image is there already; raises ReceiveError if another
    one is (unless `replace`) or a folder.
    """
    if path.is_dir():
        raise ReceiveError(f"{path} is a folder there")
    if not path.exists():
        return False
    other = file_digest(path)
    if other == sha:
        return True
    if not replace:
        raise ReceiveError(
            f"{path} is another image (sha256 {other[:12]}, not {sha[:12]}); --replace puts this one in its place"
        )
    return False


def _take(path: Path, incoming: Incoming) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = partial_image_path(path, incoming.sha256)
    try:
        handle = _open_part(part)
    except FileExistsError:
        raise ReceiveError(f"another copy to {path} is under way") from None

    with os.fdopen(handle, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ReceiveError(f"another copy to {path} is under way") from None

        digest = _resume(file, incoming.size)
        _check_room(path, incoming.size - file.tell())
        print_json_line({"offset": file.tell()})
        _append(file, digest, incoming.size)

        if digest.hexdigest() != incoming.sha256:
            part.unlink()
            raise ReceiveError(f"what arrived for {path} is not what was sent: nothing was kept")
        os.fchmod(file.fileno(), incoming.mode & PERMISSIONS)
        os.fsync(file.fileno())
        part.replace(path)
    _settle(path.parent)


def _open_part(part: Path) -> int:
    """Open the incomplete copy, or a new one if there is none or another
    user or program laid something there.
    """
    new = os.O_CREAT | os.O_EXCL
    with suppress(FileNotFoundError):
        seen = part.lstat()
        if stat.S_ISREG(seen.st_mode) and seen.st_uid == os.geteuid():
            new = 0
        else:
            part.unlink()
    return os.open(part, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | new, 0o600)


def _resume(file: BinaryIO, size: int) -> "Hash":
    """The digest of the bytes received earlier; leaves the file's position at its end."""
    digest = hashlib.sha256()
    if os.fstat(file.fileno()).st_size > size:
        file.truncate(0)
    for piece in iter(lambda: file.read(PIECE), b""):
        digest.update(piece)
    return digest


def _check_room(path: Path, needed: int) -> None:
    free = free_room(path).get("free")
    if free is not None and free < needed + _SLACK:
        raise ReceiveError(
            f"{path.parent} has {free >> 20} MiB free, the image needs {(needed + _SLACK) >> 20}"
        )


def _append(file: BinaryIO, digest: "Hash", size: int) -> None:
    missing = size - file.tell()
    while missing > 0:
        piece = os.read(sys.stdin.fileno(), min(PIECE, missing))
        if not piece:
            raise ReceiveError(
                f"the copy broke off with {missing >> 20} MiB to come; the next one goes on from there"
            )
        file.write(piece)
        digest.update(piece)
        missing = size - file.tell()
    file.flush()


def _settle(folder: Path) -> None:
    """Sync the folder, so that the new name survives a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def send_file(path: str, offset: int) -> int:
    """Write the bytes of a file from `offset` on to stdout; returns the exit code.

    Raises OSError.
    """
    with _regular(Path(path)) as file:
        file.seek(offset)
        for piece in iter(lambda: file.read(PIECE), b""):
            sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
    return 0


_MOST_UNSIZED = 64 << 20
"""Most bytes of a file that has no size, as in /proc."""


def serve_file(path: str) -> int:
    """Write `{"size": n, "mode": n}`, n bytes of a file (its size when
    opened) and `{"sha256": hex}` to stdout.

    Returns the exit code.

    Raises OSError.
    """
    with _regular(image_path("none", path, "")) as file:
        opened = os.fstat(file.fileno())
        size = opened.st_size
        first = file.read(PIECE if size else _MOST_UNSIZED + 1)
        if not size and len(first) > _MOST_UNSIZED:
            raise OSError(errno.EFBIG, f"{path} says no size and is larger than 64 MiB")
        size = size or len(first)
        print_json_line({"size": size, "mode": opened.st_mode & PERMISSIONS})

        digest, left = hashlib.sha256(), size
        piece = first[:left]
        while piece:
            digest.update(piece)
            sys.stdout.buffer.write(piece)
            left -= len(piece)
            piece = file.read(min(PIECE, left))

    if left:
        raise OSError(errno.EIO, f"{path} became shorter while it was read")
    sys.stdout.buffer.flush()
    print_json_line({"sha256": digest.hexdigest()})
    return 0


def _regular(path: Path) -> BinaryIO:
    """The opened file; raises OSError for anything but a regular file, without reading it."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    file = os.fdopen(handle, "rb") if stat.S_ISREG(os.fstat(handle).st_mode) else None
    if file is None:
        os.close(handle)
        raise OSError(errno.EINVAL, f"{path} is no regular file; folders are not copied")
    return file


_LONGEST = 1 << 20


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="image", description="Images and files on this node: look, send, fetch, receive."
    )
    verbs = parser.add_subparsers(dest="verb")
    verbs.required = True
    verbs.add_parser("look", help="which images lie here (request as JSON on stdin)")
    one = verbs.add_parser("send", help="a file from an offset on, on stdout")
    one.add_argument("path")
    one.add_argument("offset", type=int)
    one = verbs.add_parser("fetch", help="a file on stdout, between its size and its digest")
    one.add_argument("path")
    one = verbs.add_parser("receive", help="a file on stdin; says from which offset")
    one.add_argument("path")
    one.add_argument("size", type=int)
    one.add_argument("sha256")
    one.add_argument("--base", default="")
    one.add_argument("--mode", type=lambda text: int(text, 8), default=0o644)
    one.add_argument("--replace", action="store_true")
    return parser


def main(argv: list[str]) -> int:
    """Run one command; returns the exit code."""
    asked = _parser().parse_args(argv)
    try:
        if asked.verb == "look":
            return _look()
        if asked.verb == "fetch":
            return serve_file(asked.path)
        if asked.verb == "send":
            return send_file(asked.path, max(0, asked.offset))
        incoming = Incoming(asked.size, asked.sha256, asked.mode, asked.replace)
        return receive_image(image_path("none", asked.path, asked.base), incoming)
    except (OSError, ValueError) as error:
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        why = error.strerror if isinstance(error, OSError) else ""
        return print_complaint(f"rankdeck: {where}{why or error}", 1)


_BUSY_PERIOD = 5.0


@contextmanager
def _busy_sign() -> Generator[None, None, None]:
    """Print `{"kind": "busy"}` from time to time: reading a large image takes minutes."""
    over = threading.Event()

    def busy() -> None:
        while not over.wait(_BUSY_PERIOD):
            print_json_line({"kind": "busy"})

    thread = threading.Thread(target=busy, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _look() -> int:
    request = parse_json_table(sys.stdin.buffer.read(_LONGEST).decode("utf-8", "replace"))
    if request is None:
        raise ValueError("look needs a request as JSON on stdin")
    with _busy_sign():
        rows = request_rows(request)
    return print_json_line({"rows": rows})
