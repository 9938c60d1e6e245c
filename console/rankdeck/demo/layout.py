"""Which files the embedded cluster has, and what its nodes' environment is."""

import os
import pwd
import sys
from dataclasses import dataclass
from pathlib import Path

NODES = ("sakuya", "sakura", "koishi")
SLOTS = 4
MARKER = "RANKDECK_DEMO"
"""In the environment of everything that runs on a virtual node: how `down` finds it."""


@dataclass(frozen=True, slots=True)
class DemoFolders:
    """The files of one embedded cluster."""

    root: Path

    @property
    def cluster_file(self) -> Path:
        return self.root / "cluster.yaml"

    @property
    def known_hosts(self) -> Path:
        return self.root / "known_hosts"

    @property
    def identity(self) -> Path:
        return self.root / "id"

    @property
    def authorized(self) -> Path:
        return self.root / "id.pub"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    def node(self, name: str) -> Path:
        """The folder of one node: its home, its state, its log."""
        return self.root / "nodes" / name

    def host_key(self, name: str) -> Path:
        return self.node(name) / "host-key"

    def record(self, name: str) -> Path:
        return self.node(name) / "running.json"

    def log(self, name: str) -> Path:
        return self.node(name) / "log"


def search_path() -> str:
    """PATH on the nodes: this interpreter's folder first, for mpirun and torchrun."""
    own = str(Path(sys.executable).parent)
    return f"{own}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def user() -> str:
    """The name of whoever runs this, as the password file has it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def environment(layout: DemoFolders, name: str) -> dict[str, str]:
    """All that a command on the node inherits: nothing of this machine's own session."""
    folder = layout.node(name)
    return {
        "HOME": str(folder / "home"),
        "USER": user(),
        "LOGNAME": user(),
        "SHELL": "/bin/sh",
        "PATH": search_path(),
        "LANG": "C.UTF-8",
        "RANKDECK_STATE": str(folder / "state"),
        "XDG_STATE_HOME": str(folder / "home/.local/state"),
        "XDG_CACHE_HOME": str(folder / "home/.cache"),
        "XDG_CONFIG_HOME": str(folder / "home/.config"),
        "XDG_RUNTIME_DIR": str(folder / "run"),
        MARKER: str(layout.root),
    }
