"""One real OpenSSH server on loopback with settings of its own, for
an ordinary user in a user namespace.

It needs no root. Its user `lab` has the home `home` below the server's folder; `setup` are shell
lines that run as the root of that namespace before it starts, for a file system that is full or
read-only.
"""

import re
import subprocess
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rankdeck.model.cluster import Access, Cluster, Node, Transport
from tests.support.lab import files, missing
from tests.support.polling import wait_until
from tests.support.ports import free_port
from tests.support.programs import search_path, sshd

__all__ = ["RealSshd", "missing", "real_sshd"]
_NODE = """\
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /var/tmp
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mkdir -p /run/sshd /run/home
mount --bind "$SSHD_FOLDER/home" /run/home
for file in passwd group; do mount --bind "$SSHD_FOLDER/$file" "/etc/$file"; done
cd /
. "$SSHD_FOLDER/setup"
exec unshare -U --map-user="$SSHD_UID" --map-group="$SSHD_GID" "$SSHD" -D -e -f "$SSHD_FOLDER/sshd_config"
"""
_SETTINGS = """\
HostKey {folder}/hostkey
ListenAddress 127.0.0.1
PidFile none
UsePAM no
UseDNS no
StrictModes no
AuthorizedKeysFile {folder}/id.pub
Subsystem sftp internal-sftp
LogLevel VERBOSE
"""


@dataclass(frozen=True)
class RealSshd:
    """A running server."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def log(self) -> str:
        """What the server has written."""
        return (self.folder / "log").read_text(errors="replace")

    @property
    def logins(self) -> int:
        """How many logins it has accepted."""
        return len(re.findall(r"(?m)^Accepted \S+ for ", self.log))

    def pids(self) -> Iterator[int]:
        """The processes that run in its namespace."""
        own = Path(f"/proc/{self.process.pid}/ns/pid_for_children").stat().st_ino
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if (entry / "ns/pid").stat().st_ino == own:
                    yield int(entry.name)
            except OSError:
                continue

    def cut(self) -> None:
        """End every connection; the server goes on to listen."""
        for pid in self.pids():
            try:
                title = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if title.startswith(b"sshd: ") and b"[listener]" not in title:
                subprocess.run(["kill", "-9", str(pid)], check=False, capture_output=True)

    def access(self, **more: object) -> Access:
        """How to log in there; `more` are other fields of Access."""
        usual: dict[str, object] = {
            "user": files.user_name(),
            "identity": str(self.folder / "id"),
            "known_hosts": str(self.folder / "known_hosts"),
            "config": "none",
            "connect_limit": 60.0,
        }
        return Access(**{**usual, **more})  # type: ignore[arg-type]

    def cluster(self, *names: str, **more: object) -> Cluster:
        """A cluster of nodes that all are this server; `more` are fields of Access."""
        nodes = tuple(
            Node(name=name, address="127.0.0.1", port=self.port, slots=2)
            for name in names or ("n1",)
        )
        return Cluster(name="test", nodes=nodes, access=self.access(**more))

    def ssh_config(self, host: str = "node1", lines: Sequence[str] = ()) -> Path:
        """Write an ssh_config in which `host` is this server."""
        usual = (
            "HostName 127.0.0.1",
            f"Port {self.port}",
            f"User {files.user_name()}",
            f"IdentityFile {self.folder}/id",
            f"UserKnownHostsFile {self.folder}/known_hosts",
        )
        file = self.folder / "ssh_config"
        file.write_text(f"Host {host}\n" + "".join(f"  {line}\n" for line in (*lines, *usual)))
        return file


@contextmanager
def real_sshd(folder: Path, settings: str = "", setup: str = "") -> Generator[RealSshd]:
    """A server with these lines of sshd_config before the usual
    ones, until the end of the block.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files.lay(folder, {"home": ""}, sshd().parents[1] / "lib/openssh")
    helpers = [
        line for line in (folder / "sshd_config").read_text().splitlines() if "Path /" in line
    ]
    (folder / "setup").write_text(setup + "\n")
    for _ in range(10):
        port = free_port()
        lines = (settings, _SETTINGS.format(folder=folder), *helpers, f"Port {port}")
        (folder / "sshd_config").write_text("\n".join(lines) + "\n")
        key = " ".join((folder / "hostkey.pub").read_text().split()[:2])
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {key}\n")
        server = RealSshd(folder, port, _start(folder))
        try:
            wait_until(lambda server=server: _is_up(server), 120)
            if server.process.poll() is None:
                yield server
                return
            if "Address already in use" not in server.log:
                raise RuntimeError(f"sshd does not start:\n{server.log}")
        finally:
            server.process.kill()
            server.process.wait(60)
    raise RuntimeError("no free port for sshd")


def _start(folder: Path) -> "subprocess.Popen[bytes]":
    own = ["unshare", "-U", "-r", "-m", "-p", "-f", "--kill-child=KILL", "--mount-proc"]
    environment = {
        "PATH": search_path(),
        "SSHD_FOLDER": str(folder),
        "SSHD": str(sshd()),
        "SSHD_UID": str(files.uid()),
        "SSHD_GID": str(files.gid()),
    }
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *own, "sh", "-c", _NODE],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )


def _is_up(server: RealSshd) -> bool:
    return server.process.poll() is not None or "Server listening" in server.log


SSH_TRANSPORTS = (Transport.ASYNCSSH, Transport.OPENSSH)
"""The ways to nodes that log in by SSH."""
