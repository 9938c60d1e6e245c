"""Nodes of one real sshd on loopback, the same for our commands, clush, pdsh and ssh."""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.support.lab import files
from tests.support.programs import search_path
from tests.support.real_sshd import RealSshd, missing, real_sshd

from benchmarks.measure import environment
from benchmarks.result import MissingError

AT_ONCE = 64
"""Simultaneous logins, for each of them."""
_SSH = """\
Host n*
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {folder}/id
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  HostKeyAlias [127.0.0.1]:{port}
  StrictHostKeyChecking yes
  BatchMode yes
  LogLevel ERROR
"""


@contextmanager
def ssh_server(startups: str = "1000", rc: str = "") -> Generator[RealSshd]:
    """One sshd whose user has this start-up file; each connection to it is
    a session, and a process, of its own.
    """
    with tempfile.TemporaryDirectory(prefix="rankdeck-ssh.") as name:
        if why := missing():
            raise MissingError(why)
        with real_sshd(Path(name), f"MaxStartups {startups}") as server:
            (server.home / ".bashrc").write_text(rc)
            yield server


def describe_nodes(server: RealSshd, count: int) -> None:
    """Describe the same nodes to all: an ssh_config, and a cluster file that uses it."""
    folder, port, user = server.folder, server.port, files.user_name()
    (folder / ".ssh").mkdir(mode=0o700)
    (folder / "ssh_config").write_text(_SSH.format(port=port, user=user, folder=folder))
    access = f"user: {user}, identity: {folder}/id, known_hosts: {folder}/known_hosts, config: none"
    lines = [
        "cluster: bench",
        f"ssh: {{{access}, logins: {AT_ONCE}, connect_limit: 60}}",
        "nodes:",
        *(f"- {{name: n{n}, address: 127.0.0.1, port: {port}}}" for n in range(1, count + 1)),
    ]
    (folder / "cluster.yaml").write_text("\n".join(lines))


def environment_of(folder: Path) -> dict[str, str]:
    """For commands that know nothing but what is described in this folder."""
    own = dict.fromkeys(
        ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "HOME", "CLUSTERSHELL_CFGDIR"), str(folder)
    )
    return environment(PATH=search_path(), **own)
