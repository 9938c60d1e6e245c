"""The five commonest commands on three nodes beside what one types without Rankdeck: CPU and wall,
and what each waits for; the output of a rank of 20 MB/s into a file. The nodes are one real sshd on
loopback; its own CPU is not counted.
"""

import json
import shlex
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.measure import run_once
from benchmarks.result import MissingError, Result
from benchmarks.ssh_nodes import describe_nodes, environment_of, ssh_server
from benchmarks.supervisor import WRITER

NODES = 3
ROUNDS = 5
CLUSH = Path(sys.executable).parent / "clush"
JOBS = {
    "short": "job: short\nlaunch: plain\nnodes: 3\ncommand: [sh, -c, 'echo hello; sleep 1']\n",
    "endless": "job: endless\nlaunch: plain\nnodes: 3\ncommand: [sleep, '600.25']\n",
}
FLOOD = 100
"""MB that a rank writes, at 20 MB/s."""
FLOOD_ROUNDS = 3


class Compared(NamedTuple):
    """One command: ours, what does the same by hand, the goal in seconds, what is waited for."""

    name: str
    ours: Sequence[str]
    peer_name: str
    peer: Sequence[str]
    goal: float
    waits: str


def run() -> list[Result]:
    if not CLUSH.exists():
        raise MissingError("no clush to compare with: pip install ClusterShell")
    with ssh_server() as server:
        describe_nodes(server, NODES)
        env = environment_of(server.folder)
        for name, text in JOBS.items():
            (server.folder / f"{name}.yaml").write_text(text)
        # The agent is copied by the first, and stays.
        run_once(_ours(server.folder, "run", f"{server.folder}/short.yaml"), env)
        rows = [row for one in _table(server.folder) for row in _compare(one, server.folder, env)]
        return [*rows, _flood(server.folder, env)]


def _table(folder: Path) -> tuple[Compared, ...]:
    several = (str(CLUSH), "-b", "-O", f"ssh_options=-F {folder}/ssh_config", "-w", f"n[1-{NODES}]")
    one = _ssh(folder, ())
    agent = "set -- ~/.cache/rankdeck/*.pyz; python3 $1 job"
    log, login = "cat ~/.local/state/rankdeck/*/short*/*/*0/out*", "a login to each node"
    return (
        Compared("status", ("status",), "clush -b uptime", (*several, "uptime"), 2.2,
                 "two samples a second apart"),
        Compared("jobs", ("jobs",), "ssh, agent job list", (*one, f"{agent} list"), 0.3, login),
        Compared("run", ("run", f"{folder}/short.yaml"), "clush sleep 1", (*several, "sleep 1"), 2.2,
                 "preflight, the job's second"),
        Compared("logs", ("logs", "short"), "ssh cat", (*one, log), 0.3, login),
        Compared("cancel", ("cancel", "endless"), "clush pkill", (*several, "pkill -f '[s]leep 600.25' || :"), 0.3,
                 "every process is seen to be gone"),
    )  # fmt: skip


def _compare(one: Compared, folder: Path, env: Mapping[str, str]) -> Generator[Result]:
    """Its wall time, which has the goal, and its CPU."""

    def begin() -> None:
        if one.name == "cancel":
            run_once(_ours(folder, "run", "--detach", f"{folder}/endless.yaml"), env)

    ours = _median(begin, _ours(folder, *one.ours), env)
    peer = _median(begin, one.peer, env)
    yield Result(
        name=f"command.{one.name}_wall", value=ours[0], unit="s", peer=one.peer_name,
        peer_value=peer[0], budget=one.goal, on_ratio=False, limit=one.waits,
    )  # fmt: skip
    yield Result(
        name=f"command.{one.name}_cpu", value=ours[1], unit="s", peer=one.peer_name,
        peer_value=peer[1], limit="loading Python, asyncssh and the session",
    )  # fmt: skip


def _flood(folder: Path, env: Mapping[str, str]) -> Result:
    """CPU of a command whose output goes to a file, beyond that of one that prints nothing."""
    writer = folder / "writer.py"
    writer.write_text(WRITER)
    flood = (sys.executable, str(writer), str(FLOOD))
    silent = ("sleep", str(FLOOD // 20))
    ours, peer = (
        _spent(folder, way(folder, flood), env) - _spent(folder, way(folder, silent), env)
        for way in (_job, _ssh)
    )
    per_gb = 1000 / FLOOD
    return Result(
        name="command.run_flood", value=ours * per_gb, unit="CPU s/GB", peer="ssh",
        peer_value=peer * per_gb, budget=15.0, on_ratio=False, note="a rank of 20 MB/s into a file",
        limit="asyncssh decrypts in Python; an end, a number or a stall may be in any line",
    )  # fmt: skip


def _job(folder: Path, argv: Sequence[str]) -> tuple[str, ...]:
    file = folder / f"{Path(argv[0]).name}.yaml"
    file.write_text(f"job: flood\nlaunch: plain\nnodes: 1\ncommand: {json.dumps(list(argv))}\n")
    return _ours(folder, "run", str(file))


def _ssh(folder: Path, argv: Sequence[str]) -> tuple[str, ...]:
    return ("ssh", "-F", f"{folder}/ssh_config", "n1", *argv)


def _spent(folder: Path, argv: Sequence[str], env: Mapping[str, str]) -> float:
    into_file = ("sh", "-c", f"{shlex.join(argv)} >{folder}/flood")
    return median(run_once(into_file, env)[1] for _ in range(FLOOD_ROUNDS))


def _ours(folder: Path, *words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "rankdeck", "-c", f"{folder}/cluster.yaml", *words)


def _median(
    begin: Callable[[], None], argv: Sequence[str], env: Mapping[str, str]
) -> tuple[float, float]:
    """Median wall and CPU seconds of a command, each time after `begin`."""
    spent: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        begin()
        spent.append(run_once(argv, env))
    return median(wall for wall, _ in spent), median(cpu for _, cpu in spent)
