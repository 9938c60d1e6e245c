"""An image that comes in: beside its place until it is whole, then renamed."""

import fcntl
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from rankdeck_agent.image.digest import PIECE, file_digest
from rankdeck_agent.image.look import place, room
from rankdeck_agent.job.text import plain

if TYPE_CHECKING:
    from hashlib import (
        _Hash as Hash,  # pyright: ignore[reportPrivateUsage] - the only name it has
    )

_SLACK = 64 << 20
"""Bytes that stay free: a file system filled to the brim breaks other people's jobs."""


class ReceiveError(Exception):
    """An image that cannot be taken; the text is a sentence."""


def part_of(path: Path, sha: str) -> Path:
    """Where the bytes gather: another image of that name has another one."""
    return path.with_name(f".{path.name}.{sha[:16]}.part")


def receive(image: str, base: str, size: int, sha: str, *, replace: bool) -> int:
    """Take `size` bytes on stdin from the offset that is printed first; the exit status.

    Prints `{"offset": n}`, then `{"ok": true}` once the file is whole, checked and on the disk.
    """
    path = place("none", image, base)
    try:
        if _is_there(path, sha, replace=replace):
            _say({"offset": size})
        else:
            _take(path, size, sha)
    except ReceiveError as error:
        _say({"ok": False, "error": str(error)})
        return 1
    except OSError as error:
        _say({"ok": False, "error": plain(f"{path}: {error.strerror or error}")})
        return 1
    _say({"ok": True})
    return 0


def _say(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)


def _is_there(path: Path, sha: str, *, replace: bool) -> bool:
    """Whether this very image is there; raises ReceiveError where another one is."""
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


def _take(path: Path, size: int, sha: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = part_of(path, sha)
    with os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ReceiveError(f"another copy to {path} is under way") from None
        digest = _resume(file, size)
        _check_room(path, size - file.tell())
        _say({"offset": file.tell()})
        _append(file, digest, size)
        if digest.hexdigest() != sha:
            part.unlink()
            raise ReceiveError(f"what arrived for {path} is not what was sent: nothing was kept")
        os.fchmod(file.fileno(), 0o644)
        os.fsync(file.fileno())
        part.replace(path)
    _settle(path.parent)


def _resume(file: BinaryIO, size: int) -> "Hash":
    """The digest of what came earlier; the file stands at its end."""
    digest = hashlib.sha256()
    if os.fstat(file.fileno()).st_size > size:
        file.truncate(0)
    while piece := file.read(PIECE):
        digest.update(piece)
    return digest


def _check_room(path: Path, needed: int) -> None:
    free = room(path).get("free")
    if free is not None and free < needed + _SLACK:
        raise ReceiveError(
            f"{path.parent} has {free >> 20} MiB free, the image needs {(needed + _SLACK) >> 20}"
        )


def _append(file: BinaryIO, digest: "Hash", size: int) -> None:
    while (missing := size - file.tell()) > 0:
        piece = os.read(sys.stdin.fileno(), min(PIECE, missing))
        if not piece:
            raise ReceiveError(
                f"the copy broke off with {missing >> 20} MiB to come; the next one goes on from there"
            )
        file.write(piece)
        digest.update(piece)
    file.flush()


def _settle(folder: Path) -> None:
    """Make the new name last through a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def send(path: str, offset: int) -> int:
    """The bytes of a file from there on, on stdout; the exit status."""
    with Path(path).open("rb") as file:
        file.seek(offset)
        while piece := file.read(PIECE):
            sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
    return 0
