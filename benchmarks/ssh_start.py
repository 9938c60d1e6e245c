"""Start over SSH: a command on 1,000 nodes (real sshd sessions on
loopback), with ours, clush and pdsh.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.lab import files
from tests.support.programs import search_path
from tests.support.real_sshd import RealSshd, missing, real_sshd

from benchmarks.measure import environment, run_once
from benchmarks.result import MissingError, Result

NODES = 1000
FEW = 200
"""Nodes on a machine of fewer than 4 cores or 8 GB; RANKDECK_BENCH_NODES sets another number."""
AGENTS = 50
"""Nodes on which agents are started as well, all on this machine, which an agent a node would
fill; RANKDECK_BENCH_AGENTS says another number.
"""
AT_ONCE = 64
"""Simultaneous logins, for each of the three."""
LIMIT = 1200.0
CPU_BUDGET = 1.0
WALL_BUDGET = 1.0
_DEAR = "for ((i = 0; i < 100000; i++)); do :; done\n"
"""A dear start-up file, some 0.3 s of CPU as one of pyenv, conda or Lmod."""
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


def run() -> list[Result]:
    """Wall and CPU seconds of `true` on every node, from nothing;
    the servers' own CPU is not counted.

    The same with a start-up file of the shell that is dear. Then of an agent on each of fewer
    nodes, until all were heard, behind a server that drops logins as sshd does unless it is told
    otherwise.
    """
    return [*_with_shells("ssh_start", ""), *_with_shells("ssh_start_dear", _DEAR), *_with_agents()]


def _with_shells(name_of_results: str, rc: str) -> list[Result]:
    """What `true` on every node takes, with a shell that reads these lines first."""
    count = _count()
    with _server(rc=rc) as server:
        _describe(server, count)
        commands = _commands(server.folder, count)
        env = _environment(server.folder)
        spent = {who: run_once(argv, env, LIMIT) for who, argv in commands.items()}
    return list(_results(name_of_results, spent, count))


def _with_agents() -> Generator[Result]:
    count = max(int(os.environ.get("RANKDECK_BENCH_AGENTS", AGENTS)), 1)
    with _server("10:30:100") as server:
        _describe(server, count)
        argv = (
            sys.executable,
            "-m",
            "benchmarks.ssh_app",
            f"{server.folder}/cluster.yaml",
            "agents",
        )
        env = _environment(server.folder)
        told = subprocess.run(argv, env=env, check=True, timeout=LIMIT, stdout=subprocess.PIPE)
        found = json.loads(told.stdout)
    note = f"{count} nodes on which agents start, MaxStartups 10:30:100"
    units = {"wall": "s", "cpu": "s", "resident": "MiB", "steady": "% core"}
    for what, unit in units.items():
        yield Result(name=f"ssh_start_agents_{what}", value=found[what], unit=unit, note=note)


def _environment(folder: Path) -> dict[str, str]:
    own = dict.fromkeys(
        ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "HOME", "CLUSTERSHELL_CFGDIR"), str(folder)
    )
    return environment(PATH=search_path(), **own)


def _count() -> int:
    if wished := os.environ.get("RANKDECK_BENCH_NODES"):
        return max(int(wished), 1)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return NODES if (os.cpu_count() or 1) >= 4 and memory >= 8 << 30 else FEW


def _results(name: str, spent: Mapping[str, tuple[float, float]], count: int) -> Generator[Result]:
    wall, cpu = spent["rankdeck"]
    note = f"{count} nodes, {AT_ONCE} logins at a time"
    for who, (their_wall, their_cpu) in spent.items():
        if who == "rankdeck":
            continue
        yield Result(
            name=f"{name}_wall",
            value=wall,
            unit="s",
            peer=who,
            peer_value=their_wall,
            budget=WALL_BUDGET,
            note=note,
        )
        yield Result(
            name=f"{name}_cpu", value=cpu, unit="s", peer=who, peer_value=their_cpu,
            budget=CPU_BUDGET, note=note,
        )  # fmt: skip


@contextmanager
def _server(startups: str = "1000", rc: str = "") -> Generator[RealSshd]:
    """One sshd whose user has this start-up file; each connection to it is
    a session, and a process, of its own.
    """
    with tempfile.TemporaryDirectory(prefix="rankdeck-ssh.") as name:
        if why := missing():
            raise MissingError(why)
        with real_sshd(Path(name), f"MaxStartups {startups}") as server:
            (server.home / ".bashrc").write_text(rc)
            yield server


def _describe(server: RealSshd, count: int) -> None:
    """The same nodes for all three: an ssh_config, and a cluster file that uses it."""
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


def _commands(folder: Path, count: int) -> dict[str, Sequence[str]]:
    nodes, config = f"n[1-{count}]", str(folder / "ssh_config")
    found: dict[str, Sequence[str]] = {
        "rankdeck": (sys.executable, "-m", "benchmarks.ssh_app", str(folder / "cluster.yaml"))
    }
    clush = Path(sys.executable).parent / "clush"
    if clush.exists():
        found["clush"] = (str(clush), "-f", str(AT_ONCE), "-O", f"ssh_options=-F {config}", "-w", nodes, "true")  # fmt: skip
    if shutil.which("pdsh", path=search_path()):
        found["pdsh"] = ("env", f"PDSH_SSH_ARGS_APPEND=-F {config}", "pdsh", "-R", "ssh", "-f", str(AT_ONCE), "-w", nodes, "true")  # fmt: skip
    if len(found) == 1:
        raise MissingError("needs clush (pip install ClusterShell) or pdsh")
    return found
