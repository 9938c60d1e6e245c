"""Sends a file on stdout; receives one on stdin, or the rest of one that broke off."""

import errno
import fcntl
import hashlib
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rankdeck_agent.file_system import measure_room
from rankdeck_agent.images.digests import file_digest
from rankdeck_agent.regular_file import PIECE, open_regular_file
from rankdeck_agent.text import plain_line, print_json_line
from rankdeck_agent.values import Value

if TYPE_CHECKING:
    from hashlib import _Hash as Hash  # pyright: ignore[reportPrivateUsage] - the only name it has


_SLACK = 64 << 20
"""Bytes that must stay free: a full file system breaks other users' jobs."""
PERMISSIONS = 0o777
"""What of a file's mode is copied with it: never set-user-id, set-group-id or sticky."""
_MOST_UNSIZED = 64 << 20
"""Most bytes of a file that has no size, as in /proc."""


class ReceiveError(Exception):
    """An image cannot be received; the text is a sentence."""


class Incoming(Value):
    """A file to receive: size in bytes, digest in hex, permissions;
    `replace` another file at that path.
    """

    size: int
    sha256: str
    mode: int = 0o644
    replace: bool = False


def partial_image_path(path: Path, sha: str) -> Path:
    """The file for an incomplete copy; it depends on the digest,
    so another image has another one.
    """
    return path.with_name(f".{path.name}.{sha[:16]}.part")


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
    free = measure_room(path).get("free")
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


def send_file(path: Path, offset: int) -> int:
    """Write the bytes of a file from `offset` on to stdout; returns the exit code.

    Raises OSError.
    """
    with open_regular_file(path) as file:
        file.seek(offset)
        for piece in iter(lambda: file.read(PIECE), b""):
            sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
    return 0


def serve_file(path: Path) -> int:
    """Write `{"size": n, "mode": n}`, n bytes of a file (its size when
    opened) and `{"sha256": hex}` to stdout.

    Returns the exit code.

    Raises OSError.
    """
    with open_regular_file(path) as file:
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
