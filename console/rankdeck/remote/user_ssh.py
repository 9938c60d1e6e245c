"""The command lines of the user's own ssh to the nodes of a cluster."""

import os
import shlex
from collections.abc import Sequence
from typing import BinaryIO

from rankdeck.config.files import expand_path
from rankdeck.model.cluster import Cluster

ALIVE = ("ServerAliveInterval=15", "ServerAliveCountMax=4")
"""So that a dead node does not block the terminal forever."""


class UserSsh:
    """Builds the command lines of the user's own ssh to the nodes of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._access = cluster.access
        self._nodes = {node.name: node for node in cluster.hosts}
        self._agreed: BinaryIO | None = None

    def command(self, node: str, words: Sequence[str] = ()) -> tuple[str, ...]:
        """`ssh` to this node: opens a login shell, or runs these words on a
        terminal; without ssh on this machine.
        """
        if self._nodes[node].here:
            return tuple(words) or (os.environ.get("SHELL") or "/bin/sh", "-l")
        argv = self.reach(node, ("-t",), ALIVE)
        return (*argv, shlex.join(words)) if words else argv

    def reach(self, node: str, first: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
        """`ssh` to this node with the words `first` and the options `more`, up to
        the host; these win over ssh_config.
        """
        there, access = self._nodes[node], self._access
        options = [f"ConnectTimeout={max(round(access.connect_limit), 1)}", *more]
        if access.known_hosts:
            options.append(f"UserKnownHostsFile={_quoted(access.known_hosts)}")
        if access.identity:
            options.append("IdentitiesOnly=yes")
        argv = ["ssh", *first, *self._config()]
        argv += [word for option in options for word in ("-o", option)]
        argv += ["-p", str(there.port)] if there.port != 22 else []
        argv += ["-l", access.user] if access.user else []
        argv += ["-i", str(expand_path(access.identity))] if access.identity else []
        return (*argv, "--", there.host)

    def _config(self) -> list[str]:
        """The option for ssh_config: the text that the user agreed
        to, not the file as it is now.
        """
        access = self._access
        if access.config_text is not None:
            self._agreed = self._agreed or text_file(access.config_text)
            return ["-F", f"/proc/{os.getpid()}/fd/{self._agreed.fileno()}"]
        if access.config == "none":
            return ["-F", "none"]
        return ["-F", str(expand_path(access.config))] if access.config else []


def _quoted(path: str) -> str:
    """A path, quoted for ssh_config because it may contain spaces."""
    return f'"{expand_path(path)}"'


def text_file(text: str) -> BinaryIO:
    """A file in memory with this text: nobody can change it while it is used."""
    file = os.fdopen(os.memfd_create("ssh_config", os.MFD_CLOEXEC), "w+b")
    file.write(text.encode())
    file.flush()
    return file
