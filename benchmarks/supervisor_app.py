"""A process that starts one job, or mpirun, adopts what is left behind, and says what all took.

`python -m benchmarks.supervisor_app` with one object on stdin: {"ranks", "command"} or {"ranks",
"mpirun"}. A command `sleep` is weighed when all ranks run, and then ended.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

from benchmarks.measure import cpu_of, proportional_of

SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER"""
LIMIT = 120.0


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    ctypes.CDLL(None).prctl(SUBREAPER, 1)
    weigh = _weigh_mpirun if "mpirun" in asked else _run_job
    print(json.dumps(weigh(asked)))


def _run_job(asked: dict[str, object]) -> dict[str, float]:
    ranks = range(int(str(asked["ranks"])))
    command = cast("list[str]", asked["command"])
    job = f"bench-{time.time_ns()}"
    processes = [{"name": f"rank {r}", "rank": r, "argv": command} for r in ranks]
    plan = {"job": job, "node": "n1", "ranks": list(ranks), "processes": processes, "tty": True}
    before = _spent()
    told = subprocess.run(
        (sys.executable, "-m", "rankdeck_agent", "job", "run"),
        input=json.dumps(plan).encode(), stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    supervisor = int(json.loads(told.stdout)["pid"])
    found = {"memory": 0.0}
    if command[:1] == ["sleep"]:
        found["memory"] = _weight(supervisor, "sleep", len(ranks))
        subprocess.run(
            (sys.executable, "-m", "rankdeck_agent", "job", "cancel", job, "n1", "--grace", "1"),
            stdout=subprocess.DEVNULL, check=True,
        )  # fmt: skip
    # It is a zombie for as long as nobody waits for it: what it took itself can still be read.
    os.waitid(os.P_PID, supervisor, os.WEXITED | os.WNOWAIT)
    found["supervisor"] = cpu_of(supervisor)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    return {**found, "cpu": _spent() - before}


def _weigh_mpirun(asked: dict[str, object]) -> dict[str, float]:
    count = int(str(asked["ranks"]))
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    argv = (
        str(asked["mpirun"]),
        "--oversubscribe",
        "--bind-to",
        "none",
        "-np",
        str(count),
        "sleep",
        "600",
    )
    with subprocess.Popen(argv, env={**os.environ, **root}, stdout=subprocess.DEVNULL) as mpirun:
        weight = _weight(mpirun.pid, "sleep", count)
        mpirun.send_signal(signal.SIGTERM)
    return {"memory": weight}


def _weight(top: int, command: str, count: int) -> float:
    """KiB of a process and all below it, without `count` programs of this
    name, once they run.
    """
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        family = list(_below(top))
        with contextlib.suppress(OSError):
            names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in family}
            if sum(name == command for name in names.values()) == count:
                time.sleep(0.5)
                return 1024 * sum(proportional_of(p) for p, n in names.items() if n != command)
        time.sleep(0.1)
    raise RuntimeError(f"{count} programs never ran")


def _below(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(c) for task in tasks for c in (task / "children").read_text().split()]
    except OSError:
        return []
    return [pid, *(one for child in children for one in _below(child))]


def _spent() -> float:
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(who)[:2]) for who in both)


if __name__ == "__main__":
    main()
