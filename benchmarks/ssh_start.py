"""Start over SSH: a command on 1,000 nodes (real sshd sessions on
loopback), with ours, clush and pdsh.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

from tests.support.programs import search_path

from benchmarks.measure import run_once
from benchmarks.result import MissingError, Result
from benchmarks.ssh_nodes import AT_ONCE, describe_nodes, environment_of, ssh_server

NODES = 1000
FEW = 200
"""Nodes on a machine of fewer than 4 cores or 8 GB; RANKDECK_BENCH_NODES sets another number."""
AGENTS = 50
"""Nodes on which agents are started as well, all on this machine, which an agent a node would
fill; RANKDECK_BENCH_AGENTS says another number.
"""
LIMIT = 1200.0
CPU_BUDGET = 1.0
WALL_BUDGET = 1.0
_DEAR = "for ((i = 0; i < 100000; i++)); do :; done\n"
"""A dear start-up file, some 0.3 s of CPU as one of pyenv, conda or Lmod."""


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
    with ssh_server(rc=rc) as server:
        describe_nodes(server, count)
        commands = _commands(server.folder, count)
        env = environment_of(server.folder)
        spent = {who: run_once(argv, env, LIMIT) for who, argv in commands.items()}
    return list(_results(name_of_results, spent, count))


def _with_agents() -> Generator[Result]:
    count = max(int(os.environ.get("RANKDECK_BENCH_AGENTS", AGENTS)), 1)
    with ssh_server("10:30:100") as server:
        describe_nodes(server, count)
        argv = (
            sys.executable,
            "-m",
            "benchmarks.ssh_app",
            f"{server.folder}/cluster.yaml",
            "agents",
        )
        env = environment_of(server.folder)
        told = subprocess.run(argv, env=env, check=True, timeout=LIMIT, stdout=subprocess.PIPE)
        found = json.loads(told.stdout)
    note = f"{count} nodes on which agents start, MaxStartups 10:30:100"
    units = {"wall": "s", "cpu": "s", "resident": "MiB", "steady": "% core"}
    for what, unit in units.items():
        yield Result(name=f"ssh_start_agents_{what}", value=found[what], unit=unit, note=note)


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
            limit="the servers' cryptography, on the same cores",
            note=note,
        )
        yield Result(
            name=f"{name}_cpu", value=cpu, unit="s", peer=who, peer_value=their_cpu,
            budget=CPU_BUDGET, limit="cryptography, and asyncssh in Python", note=note,
        )  # fmt: skip


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
