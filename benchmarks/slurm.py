"""Fifty jobs on a real Slurm in the root lab: what our keeper costs
controller and login node, beside turm's way.

turm, as other viewers of queues, calls squeue every two seconds. What the
controller was asked is told by sdiag, by user.
"""

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import yaml
from tests.support.lab.root import RootLab, missing, slurm
from tests.support.lab.root.people import Operator, eventually

from benchmarks.result import MissingError, Result
from rankdeck.config.document import write_documents

JOBS = 50
MEASURED = 60.0
PEER_MEASURED = 20.0
CALLS_BUDGET = 6.0
"""Calls to the controller a minute, for any number of jobs."""
MEMORY_BUDGET = 15.0
"""MB of memory on the login node, for all jobs."""
TRACED = 20.0
FILE_BUDGET = 1.0
"""Calls on the folder that all nodes share, for each rank that writes nothing."""
_SPEC = {
    "job": "many",
    "launch": "plain",
    "nodes": 1,
    "ranks_per_node": 1,
    "command": ["sleep", "900"],
    "slurm": {"mem": "40M"},
}
_TURM = "while :; do squeue --array --noheader --Format=jobid:10,name:20,state:10 >/dev/null; sleep 2; done"
_AGENT = "$(ls -t ~/.cache/rankdeck/agent-*.pyz | head -n 1)"


def run() -> list[Result]:
    """Submit, wait until Slurm was told of all, then count for a minute without any console."""
    if why := missing():
        raise MissingError(why)
    with tempfile.TemporaryDirectory(prefix="lab.") as folder:
        lab = RootLab(Path(folder).resolve(), names=("n1", "n2", "n3", "n4"))
        try:
            lab.up()
            return _measured(lab)
        finally:
            lab.down()


def _measured(lab: RootLab) -> list[Result]:
    root = Operator(lab, "root")
    slurm.start(root)
    user = politely(slurm.through(Operator(lab, "lab")))
    turm = calls(root, lambda: user.on(slurm.LOGIN, f"timeout {PEER_MEASURED:.0f} sh -c '{_TURM}'"))
    submit_many(user, JOBS)
    time.sleep(2 * CALLS_BUDGET)  # the queries that every submission causes
    ours = calls(root, lambda: time.sleep(MEASURED))
    pids, memory = keeper(root)
    if not pids:
        raise MissingError("the jobs ended before they were counted")
    looks = file_calls(lab) / JOBS / TRACED
    theirs = turm * 60 / PEER_MEASURED
    return [
        Result(
            name=f"slurm calls a minute, {JOBS} jobs", value=ours, unit="calls", peer="squeue every 2 s (turm)",
            peer_value=theirs, budget=CALLS_BUDGET, on_ratio=False,
        ),
        Result(
            name="slurm keeper, memory", value=memory, unit="MB", budget=MEMORY_BUDGET, on_ratio=False,
            note=f"{pids} process",
        ),
        Result(
            name="slurm file system calls, a rank and second", value=looks, unit="calls", budget=FILE_BUDGET, on_ratio=False,
            note=f"{JOBS} jobs of one rank that write nothing",
        ),
    ]  # fmt: skip


def politely(user: Operator) -> Operator:
    """The same operator, with the usual number of calls a minute."""
    file = Path(user.file)
    cluster = yaml.safe_load(file.read_text())
    del cluster["slurm"]["rpcs_per_minute"]
    file.write_text(write_documents([cluster]))
    return user


def calls(root: Operator, work: Callable[[], object]) -> int:
    """How often the user `lab` called the controller during this."""
    root.on(slurm.CONTROLLER, "sdiag --reset")
    work()
    said = root.on(slurm.CONTROLLER, "sdiag").partition("statistics by user")[2]
    return sum(int(found) for found in re.findall(r"\n\s*lab\s+\(\s*\d+\)\s+count:(\d+)", said))


def submit_many(user: Operator, count: int) -> list[str]:
    """Submit that many jobs through the agent on the login node, as a
    console would; returns their ids.
    """
    first = user.run("--detach", "--no-preflight", **_SPEC)["job"]
    script = (
        f"cd ~/.local/state/rankdeck/jobs/{first}/login && for i in $(seq 2 {count}); do "
        f"sed 's/{first}/{first}.'$i'/g' plan.json | python3 {_AGENT} slurm submit; done"
    )
    said = user.on(slurm.LOGIN, script, 300)
    assert said.count('"ok": true') == count - 1, said[-500:]
    names = [first, *(f"{first}.{i}" for i in range(2, count + 1))]
    told = f'cd ~/.local/state/rankdeck/jobs && grep -l \'"kind":"slurm"\' {first}*/login/events | wc -l'
    assert eventually(lambda: int(user.on(slurm.LOGIN, told)) == count, 180)
    return names


def file_calls(lab: RootLab) -> int:
    """How many system calls the keeper makes on the shared folder in `TRACED` seconds."""
    if shutil.which("strace") is None:
        raise MissingError("needs strace to count calls on the shared folder")
    trace = lab.folder / "trace"
    argv = (
        "strace",
        "-f",
        "-qq",
        "-y",
        "-e",
        "trace=%file,%desc",
        "-o",
        str(trace),
        "-p",
        str(keeper_pid(lab)),
    )
    subprocess.run(("timeout", "--signal=INT", f"{TRACED:.0f}", *argv), check=False)
    return sum("state/rankdeck" in line for line in trace.read_text().splitlines())


def keeper_pid(lab: RootLab) -> int:
    """The keeper's pid on this machine, which is not its pid in the lab."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            inside = str(lab.folder) in (place / "mountinfo").read_text()
            if inside and (place / "cmdline").read_bytes().endswith(b"slurm\0keep\0"):
                return int(place.name)
    raise MissingError("no keeper runs")


def keeper(root: Operator) -> tuple[int, float]:
    """How many of our processes are on the login node, and their resident memory in MB."""
    said = root.on(
        slurm.LOGIN,
        "for p in $(pgrep -u lab -f 'agent-.*pyz'); do grep VmRSS /proc/$p/status; done",
    )
    sizes = [int(size) for size in re.findall(r"VmRSS:\s+(\d+) kB", said)]
    return len(sizes), sum(sizes) / 1024
