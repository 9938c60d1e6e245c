"""The user's own ssh, with the options of our connections: for a shell on a node."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from rankdeck.model.cluster import Cluster

ALIVE = ("ServerAliveInterval=15", "ServerAliveCountMax=4")
"""A node that dies does not hold the terminal for ever."""


class UserSsh:
    """Command lines of ssh to the nodes of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._access = cluster.access
        self._nodes = {node.name: node for node in cluster.hosts}
        self._agreed: BinaryIO | None = None

    def command(self, node: str, words: Sequence[str] = ()) -> tuple[str, ...]:
        """`ssh` to this node: a login shell, or these words on a terminal of their own."""
        there, access = self._nodes[node], self._access
        options = [f"ConnectTimeout={max(round(access.connect_limit), 1)}", *ALIVE]
        if access.known_hosts:
            options.append(f"UserKnownHostsFile={_quoted(access.known_hosts)}")
        if access.identity:
            options.append("IdentitiesOnly=yes")
        argv = ["ssh", "-t", *self._config()]
        argv += [word for option in options for word in ("-o", option)]
        argv += ["-p", str(there.port)] if there.port != 22 else []
        argv += ["-l", access.user] if access.user else []
        argv += ["-i", str(Path(access.identity).expanduser())] if access.identity else []
        argv += ["--", there.host]
        return (*argv, shlex.join(words)) if words else tuple(argv)

    def _config(self) -> list[str]:
        """Which ssh_config it reads: what was agreed to, not what is there now."""
        access = self._access
        if access.config_text is not None:
            self._agreed = self._agreed or text_file(access.config_text)
            return ["-F", f"/proc/{os.getpid()}/fd/{self._agreed.fileno()}"]
        if access.config == "none":
            return ["-F", "none"]
        return ["-F", str(Path(access.config).expanduser())] if access.config else []


def _quoted(path: str) -> str:
    """As ssh_config wants a path that may hold blanks."""
    return f'"{Path(path).expanduser()}"'


def text_file(text: str) -> BinaryIO:
    """A file in memory: nobody can change it while it is used."""
    file = os.fdopen(os.memfd_create("ssh_config", os.MFD_CLOEXEC), "w+b")
    file.write(text.encode())
    file.flush()
    return file
