"""Which host keys are trusted: known_hosts, read once, appended to when the operator says so."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from rankdeck.errors import HostKeyError

Place = tuple[str, str, int | None]
"""Host, address, and port where it is not 22: what a key is looked up by."""


@dataclass(frozen=True, slots=True)
class Offered:
    """The key that a server showed and that nobody vouched for."""

    place: Place
    key: asyncssh.SSHKey


class HostKeys:
    """The known_hosts files of one host entry; the first is the user's own."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(files)
        self._stamps: tuple[tuple[int, int], ...] | None = None
        self._known = asyncssh.SSHKnownHosts()

    def known(self) -> asyncssh.SSHKnownHosts:
        """The parsed files; read again only when one of them has changed."""
        stamps = tuple(_stamp(file) for file in self.files)
        if stamps != self._stamps:
            self._known = asyncssh.SSHKnownHosts()
            for file in self.files:
                for line in _lines(file):
                    _load(self._known, line)
            self._stamps = stamps
        return self._known

    def judge(self, node: str, offered: Offered) -> HostKeyError:
        """Why the key is refused, with the line that would accept it where it is merely unknown."""
        fingerprint = offered.key.get_fingerprint()
        if place := self._contradiction(offered.place):
            why = (
                f"its host key has changed to {fingerprint}: if the machine was set up anew, remove {place};"
                " if not, somebody may be in between"
            )
            return HostKeyError(node, why, fingerprint=fingerprint)
        why = f"its host key is not known: {fingerprint}; compare it on the node and accept it"
        return HostKeyError(node, why, fingerprint=fingerprint, line=_line(offered))

    def accept(self, line: str) -> None:
        """Append to the user's known_hosts; raises OSError."""
        file = self.files[0]
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        before = file.read_bytes() if file.exists() else b""
        glue = "" if not before or before.endswith(b"\n") else "\n"
        with file.open("a", encoding="utf-8") as handle:
            handle.write(f"{glue}{line}\n")

    def _contradiction(self, place: Place) -> str:
        """`file:line` of the key that this host is known by, "" where there is none."""
        for file in self.files:
            for number, line in enumerate(_lines(file), 1):
                alone = asyncssh.SSHKnownHosts()
                _load(alone, line)
                if alone.match(*place)[0]:
                    return f"{file}:{number}"
        return ""


def _line(offered: Offered) -> str:
    host, _, port = offered.place
    name = f"[{host}]:{port}" if port else host
    words = offered.key.export_public_key().decode().split()
    return f"{name} {words[0]} {words[1]}"


def _load(known: asyncssh.SSHKnownHosts, line: str) -> None:
    try:
        known.load(line)
    except ValueError:
        return  # a broken line vouches for nobody; OpenSSH skips it as well


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _stamp(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
