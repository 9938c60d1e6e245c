"""Host keys: the known_hosts files for a node, what an unknown or
changed key means, and adding one.
"""

from collections.abc import Sequence
from pathlib import Path

import asyncssh

from rankdeck.config.files import append_lines, read_regular
from rankdeck.errors import HostKeyError
from rankdeck.remote.ssh_files import Stamp, file_stamp
from rankdeck.values import Value

Place = tuple[str, str, int | None]
"""(host, address, port or None for 22), by which known_hosts is searched for a key."""


NOWHERE = Path("/dev/null")


class OfferedKey(Value):
    """The host key of a server that is not in known_hosts."""

    place: Place
    key: asyncssh.SSHKey


class HostKeys:
    """The known_hosts files for a node; the first is the user's own."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(files)
        self._stamps: tuple[Stamp, ...] | None = None
        self._kept: list[str] = []
        """Accepted lines for which there is no file: UserKnownHostsFile is none or /dev/null."""
        self._known = asyncssh.SSHKnownHosts()

    def known(self) -> asyncssh.SSHKnownHosts:
        """The parsed files; read again only when one of them has changed."""
        stamps = tuple(map(file_stamp, self.files))
        if stamps != self._stamps:
            self._known = asyncssh.SSHKnownHosts()
            for file in self.files:
                for line in _lines(file):
                    _load(self._known, line)
            for line in self._kept:
                _load(self._known, line)
            self._stamps = stamps
        return self._known

    def judge(self, node: str, offered: OfferedKey) -> HostKeyError:
        """The error for a key that is not known; `line` would accept it,
        "" if it contradicts a known key.
        """
        fingerprint = offered.key.get_fingerprint()
        if place := self._contradiction(offered.place):
            why = (
                f"its host key has changed to {fingerprint}: if the machine was set up anew, remove {place};"
                " if not, this may be a man-in-the-middle attack"
            )
            return HostKeyError(node, why, fingerprint=fingerprint)
        return unknown_key_error(node, fingerprint, _line(offered))

    def refusal(self, node: str, offered: OfferedKey) -> HostKeyError:
        """The same where StrictHostKeyChecking is on: an unknown key is no question."""
        error = self.judge(node, offered)
        if not error.line:
            return error
        why = (
            f"its host key is not known: {error.fingerprint}; ssh_config says StrictHostKeyChecking"
            f" yes: add the key to {self.files[0]}"
        )
        return HostKeyError(node, why, fingerprint=error.fingerprint)

    def accept(self, line: str) -> None:
        """Append this line to the user's known_hosts, or keep it until the end
        if that is /dev/null; raises OSError.
        """
        file = self.files[0]
        if file == NOWHERE:
            self._kept.append(line)
            self._stamps = None
            return
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        append_lines(file, [line])

    def _contradiction(self, place: Place) -> str:
        """`file:line` of another key that is known for this host; "" if there is none."""
        for file in self.files:
            for number, line in enumerate(_lines(file), 1):
                alone = asyncssh.SSHKnownHosts()
                _load(alone, line)
                if alone.match(*place)[0]:
                    return f"{file}:{number}"
        return ""


def unknown_key_error(node: str, fingerprint: str, line: str) -> HostKeyError:
    """The question about a host key that is not known; `line` is that of known_hosts."""
    why = f"its host key is not known: {fingerprint}; compare it on the node and accept it"
    return HostKeyError(node, why, fingerprint=fingerprint, line=line)


def _line(offered: OfferedKey) -> str:
    host, _, port = offered.place
    name = f"[{host}]:{port}" if port else host
    words = offered.key.export_public_key().decode().split()
    return f"{name} {words[0]} {words[1]}"


def _load(known: asyncssh.SSHKnownHosts, line: str) -> None:
    try:
        known.load(line)
    except ValueError:
        return  # a broken line is ignored, as OpenSSH does


_MOST_KNOWN = 64 << 20
"""Most bytes of a known_hosts file: a site's own may have every machine."""


def _lines(file: Path) -> list[str]:
    try:
        return read_regular(file, _MOST_KNOWN).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
