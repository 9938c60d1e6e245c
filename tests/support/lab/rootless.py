"""The rootless lab: a cluster of namespaces over this machine's own `/`, up in a second.

A head with a bridge, and nodes n1, n2, … with network, processes, mounts, /tmp, home and host name
of their own, each with a real OpenSSH server on port 22 of 10.78.0.1x. Nothing of the machine
itself is touched, two labs do not meet, and ending one process ends all of it. Works as root and
without.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import yaml

from tests.support import processes
from tests.support.commands import Commands
from tests.support.lab import files
from tests.support.programs import search_path, sshd

NET = "10.78.0"
REPOSITORY = Path(__file__).resolve().parents[3]
_SCRIPTS = Path(__file__).parent
_UP_LIMIT = 60.0
_PROGRAMS = ("sshd", "ssh", "ip", "unshare", "nsenter", "tini", "setsid", "setpriv")
_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""The lab ends with the test process, and what runs on the head
with the `nsenter` that waits for it.
"""


def missing() -> str:
    """Why the lab cannot run here; "" if it can."""
    lacking = [program for program in _PROGRAMS if not shutil.which(program, path=search_path())]
    if lacking:
        return f"the lab needs {', '.join(lacking)}"
    attempt = subprocess.run(
        ["unshare", "-U", "-r", "-n", "-u", "-m", "-p", "-f", "--mount-proc", "true"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return f"the lab needs user namespaces: {attempt.stderr.strip()}" if attempt.returncode else ""


class Lab:
    """One running lab.

    `lab.nodes` are the names of its nodes; every command has a limit in seconds.
    """

    making: ClassVar[tuple[str, ...]] = ("-U", "-r")
    """How the head's namespaces are made, and entered again."""
    entering: ClassVar[tuple[str, ...]] = ("-U", "--preserve-credentials")
    node_script: ClassVar[Path] = _SCRIPTS / "node.sh"
    homes: ClassVar[str] = ""
    """What the nodes' home folders are mounted from; "" for the machine's disk."""
    fast_net: ClassVar[str] = ""
    """A second network of the nodes (eth1), which the head is not in; "" for none."""
    python: ClassVar[str] = sys.executable
    """The interpreter on the nodes."""

    def __init__(self, folder: Path, count: int = 3, names: Sequence[str] = ()) -> None:
        self.folder = folder
        self.nodes = tuple(names) or tuple(f"n{i}" for i in range(1, count + 1))
        self.user = files.user_name()
        self.shared = folder / "shared"
        """A folder that head and nodes see under the same path, like a cluster file system."""
        self._head = self._pid = 0
        self._commands = Commands(self.command)
        self._environment = {
            **os.environ,
            "PATH": search_path(),
            "LAB": str(folder),
            "LAB_NET": NET,
            "LAB_FAST": self.fast_net,
            "LAB_NODES": " ".join(self.nodes),
            "LAB_UID": str(files.uid()),
            "LAB_GID": str(files.gid()),
            "LAB_KEEP": " ".join(self._kept()),
            "LAB_HOMES": self.homes,
            "LAB_NODE_SCRIPT": str(self.node_script),
            "LAB_SSHD": str(sshd()),
        }

    # ---- up and down ------------------------------------------------------------------

    def up(self) -> None:
        """Start it and wait until every node accepts SSH; raises RuntimeError with the logs."""
        addresses = dict(zip(self.nodes, self._addresses(), strict=True))
        files.lay(self.folder, addresses, self._helpers())
        own = [*_WITH_US, "unshare", *self.making, "-n", "-u", "-m", "-p", "-i", "-f"]
        with (self.folder / "head.log").open("wb") as log:
            head = subprocess.Popen(
                [*own, "--kill-child=KILL", "--mount-proc", str(_SCRIPTS / "head.sh")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )
        self._process, self._head = head, head.pid
        self._wait(lambda: (self.folder / "ready").exists())
        self._pid = processes.children(head.pid)[0]
        for node in self.nodes:
            self._wait(lambda node=node: self._accepts(node))

    def down(self) -> None:
        """End all of it."""
        self._commands.close()
        self._process.kill()
        self._process.wait(60)
        deadline = time.monotonic() + 10
        while self._pid and Path(f"/proc/{self._pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.01)

    def _wait(self, true_at_last: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _UP_LIMIT
        while not true_at_last():
            if time.monotonic() > deadline or self._process.poll() is not None:
                self._process.kill()
                raise RuntimeError(f"the lab does not come up:\n{self.logs()}")
            time.sleep(0.01)

    def _accepts(self, node: str) -> bool:
        probe = f"exec 3<>/dev/tcp/{self.address(node)}/22"
        return self.as_root(["bash", "-c", probe], check=False).returncode == 0

    def logs(self) -> str:
        """The logs of the head and of the nodes' sshd."""
        names = ("head.log", *(f"{node}/log" for node in self.nodes))
        found = [self.folder / name for name in names if (self.folder / name).exists()]
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')}" for file in found)

    # ---- use --------------------------------------------------------------------------

    def address(self, node: str) -> str:
        """The address of a node on the lab's network."""
        return f"{NET}.{10 + self._number(node)}"

    def _number(self, node: str) -> int:
        return self.nodes.index(node) + 1

    def command(self, argv: Sequence[str]) -> list[str]:
        """`argv` so that it runs on the head, as the lab's ordinary user; for Popen and pty."""
        drop = [
            "unshare",
            "-U",
            f"--map-user={files.uid()}",
            f"--map-group={files.gid()}",
        ]
        return self._on_head(argv, *drop)

    def enter(
        self,
        argv: Sequence[str],
        *,
        limit: float = 60,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the head, where the console is; output as text."""
        return subprocess.run(
            self.command(argv),
            text=True,
            timeout=limit,
            check=False,
            env={**self.environment(), **(env or {})},
            **{"capture_output": True, **options},
        )

    def ssh(self, node: str, command: str, limit: float = 30) -> subprocess.CompletedProcess[str]:
        """Run a shell command on a node by OpenSSH."""
        return self.enter(["ssh", "-F", str(self.ssh_config), node, command], limit=limit)

    def rankdeck(
        self, *args: str, limit: float = 60, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run our own command line on the head: `lab.rankdeck("-c", str(file), "status")`;
        `options` as `Commands.run` has them.
        """
        env = {**self.environment(), **options.pop("env", {})}
        return self._commands.run(args, env, limit, **options)

    def environment(self) -> dict[str, str]:
        """Environment of the head's commands: folders of this lab alone, this checkout's code."""
        home = self.folder / "console"
        return {
            "HOME": str(home),
            "USER": self.user,
            "LOGNAME": self.user,
            "LANG": "C.UTF-8",
            "PATH": self._environment["PATH"],
            "PYTHONPATH": f"{REPOSITORY / 'console'}:{REPOSITORY / 'agents'}",
            "RANKDECK_STATE": str(home / "state"),
            "XDG_STATE_HOME": str(home / ".local/state"),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "XDG_CONFIG_HOME": str(home / ".config"),
        }

    @property
    def ssh_config(self) -> Path:
        """An ssh_config for OpenSSH, on the head and on the nodes."""
        return self.folder / "ssh_config"

    def cluster_file(self, slots: int = 2, **more: object) -> Path:
        """Write a cluster file for this lab; `more` adds sections, e.g. `simulate=["gpu"]`."""
        nodes = [
            {
                "name": node,
                "address": self.address(node),
                "slots": slots,
                "interface": "eth0",
            }
            for node in self.nodes
        ]
        access = {
            "user": self.user,
            "identity": str(self.folder / "id"),
            "known_hosts": str(self.folder / "known_hosts"),
            "config": "none",
            "python": self.python,
        }
        content = {
            "cluster": "lab",
            "nodes": nodes,
            "ssh": access,
            "network": f"{NET}.0/24",
        }
        file = self.folder / "cluster.yaml"
        file.write_text(yaml.safe_dump({**content, **more}, sort_keys=False))
        return file

    # ---- faults -----------------------------------------------------------------------

    def cut(self, node: str) -> None:
        """Take the node's link down: packets are lost, connections are not refused."""
        self.as_root(["ip", "link", "set", f"v{self._number(node)}", "down"])

    def throttle(self, node: str, rate: str, *, towards_head: bool = False) -> None:
        """Limit one direction of the link to a rate as for tc, such as
        `256kbit`; "0": nothing passes.
        """
        # A bucket that is smaller than every packet drops each of them.
        bucket = ("rate", "8bit", "burst", "10b") if rate == "0" else ("rate", rate, "burst", "16k")
        queue = ("tbf", *bucket, "limit", "32k")
        self.as_root([*self._queue("replace", node, towards_head=towards_head), *queue])

    def _queue(self, verb: str, node: str, *, towards_head: bool) -> list[str]:
        """The command that changes what waits at one end of the link of a node."""
        space = ["nsenter", f"--net=/run/netns/{node}"] if towards_head else []
        device = "eth0" if towards_head else f"v{self._number(node)}"
        return [*space, "tc", "qdisc", verb, "dev", device, "root"]

    def mend(self, node: str) -> None:
        """Take the link up again, and let everything through."""
        self.as_root(["ip", "link", "set", f"v{self._number(node)}", "up"])
        for towards_head in (False, True):
            # Fails if nothing was throttled.
            self.as_root(self._queue("delete", node, towards_head=towards_head), check=False)

    def crash(self, node: str) -> None:
        """End every process of the node at once; its address stays and refuses connections."""
        pid = (self.folder / node / "unshare.pid").read_text().strip()
        first = self.first_process(node)
        self.as_root(["kill", "-9", pid])
        self._wait(lambda: not first or not processes.exists(first))

    def in_mounts(self, node: str, script: str) -> None:
        """Run a shell script as root among the mounts of a node: a full disk, a program less."""
        pid = (self.folder / node / "unshare.pid").read_text().strip()
        self.as_root(["nsenter", "-t", pid, "-m", "sh", "-ec", script])

    def boot(self, node: str) -> None:
        """Start a crashed node again, with an empty /tmp and its former home."""
        self.as_root([str(_SCRIPTS / "boot.sh"), node])
        self._wait(lambda: self._accepts(node))

    def processes(self, node: str, marker: str) -> int:
        """How many processes of the node have `marker` in their environment or command line."""
        first = self.first_process(node)
        return len(processes.marked(first, marker.encode())) if first else 0

    def commands(self, node: str, marker: str) -> list[str]:
        """The command lines of those processes, each with its pid and
        what the kernel has it wait in.
        """
        first = self.first_process(node)
        found = processes.marked(first, marker.encode()) if first else []
        return [f"{node} {processes.described(pid)}" for pid in found]

    def as_root(
        self, argv: Sequence[str], *, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the head as the lab's own root, which may change its networks."""
        return subprocess.run(
            self._on_head(argv),
            capture_output=True,
            text=True,
            timeout=300,
            check=check,
            env=self._environment,
        )

    def _on_head(self, argv: Sequence[str], *drop: str) -> list[str]:
        """`argv` in the head's namespaces, after the command `drop`; it
        ends when this process is killed.
        """
        enter = ["nsenter", "-t", str(self._pid), *self.entering, "-n", "-u", "-m", "-p", "-i"]
        return [*enter, *drop, *_WITH_US, "--", *argv]

    def first_process(self, node: str) -> int:
        """The pid on this machine of the node's process 1; 0: the node is down."""
        ending = f"/node.sh\0{node}\0".encode()
        for pid in processes.descendants(self._pid):
            argv = processes.read(pid, "cmdline")
            if argv.startswith(b"unshare\0") and argv.endswith(ending):
                return next(iter(processes.children(pid)), 0)
        return 0

    def _helpers(self) -> Path:
        """Where the nodes' sshd finds the programs that it starts for each connection."""
        return sshd().parents[1] / "lib/openssh"

    def _kept(self) -> list[str]:
        """What a node must see of the machine although it has folders of its own."""
        return _under_tmp(self.folder)

    def _addresses(self) -> list[str]:
        return [self.address(node) for node in self.nodes]


def _under_tmp(folder: Path) -> list[str]:
    """What nodes must see although they have a /tmp of their own, relative to it."""
    tmp = Path("/tmp").resolve()
    wanted = {
        folder,
        REPOSITORY,
        Path(sys.prefix).resolve(),
        Path(sys.base_prefix).resolve(),
        sshd().parents[2],
    }
    there = {path for path in wanted if path.is_relative_to(tmp)}
    return [str(path.relative_to(tmp)) for path in there if not there & set(path.parents)]
