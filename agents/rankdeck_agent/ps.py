"""`ps`: what runs on this node, from /proc: whose it is, what it takes, and to which rank of a job it belongs."""

import json
import os
import pwd
import signal
import sys
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Optional, cast

from rankdeck_agent.collectors import nvidia
from rankdeck_agent.job import processes
from rankdeck_agent.job.folder import table
from rankdeck_agent.job.processes import Process
from rankdeck_agent.names import JOB_VARIABLE

_PROC = Path("/proc")
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_GAP = 1.0
"""Seconds between two looks: what a process takes now, not since its start."""
_MOST = 2_000
"""Processes that are told: the busiest, and all of jobs and on GPUs."""
_REQUEST = 1 << 20
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK", "SLURM_PROCID")
"""Where launchers say the rank number, the surest first."""
SIGNALS = {"TERM", "KILL", "INT", "HUP", "STOP", "CONT", "USR1", "USR2", "QUIT"}

Row = dict[str, Any]


def main(given: list[str]) -> int:
    """`ps` prints one JSON object; `ps signal` sends the one on stdin. The exit status."""
    if given == ["signal"]:
        return _signal()
    print(json.dumps({"at": time.time(), **look()}))
    return 0


def look() -> Row:
    """The processes with what they take now; `gpus` says why nobody knows who is on a GPU, "" where it is known."""
    before, began = processes.everything(), time.monotonic()
    read = {pid: _io(pid) for pid in before}
    time.sleep(_GAP)
    rows = processes.everything()
    gap = time.monotonic() - began
    on_gpus, why = _on_gpus()
    own = processes.own_line(rows) - {1}
    found = [
        _row(row, before.get(pid), read.get(pid), gap, on_gpus.get(pid, {}))
        for pid, row in rows.items()
        if pid not in own and _is_program(row)
    ]
    found.sort(key=lambda row: (not row["job"], not row["gpus"], -row["cpu"], -row["rss"]))
    return {"rows": found[:_MOST], "left_out": max(len(found) - _MOST, 0), "gpus": why}


def _is_program(row: Process) -> bool:
    """No thread of the kernel: these have kthreadd, pid 2, as parent."""
    return row.pid != 2 and row.ppid != 2


def _row(
    row: Process,
    before: Optional[Process],
    io: Optional[tuple[int, int]],
    gap: float,
    gpus: Mapping[str, int],
) -> Row:
    same = before is not None and before.start == row.start
    ticks = row.computed - before.computed if before is not None and same else 0
    marks = processes.environment(row.pid, (JOB_VARIABLE, *RANK_VARIABLES))
    job = marks.get(JOB_VARIABLE, "")
    now = _io(row.pid)
    known = same and io is not None and now is not None
    return {
        "pid": row.pid,
        "ppid": row.ppid,
        "start": row.start,
        "user": _user(row.pid),
        "state": row.state,
        "command": processes.command(row.pid),
        "cpu": round(max(ticks, 0) / _TICK / gap, 3),
        "rss": _rss(row.pid),
        "read": (now[0] - io[0]) / gap if known and now and io else None,
        "write": (now[1] - io[1]) / gap if known and now and io else None,
        "gpus": dict(gpus),
        "job": job,
        "rank": _rank(marks) if job else None,
    }


def _rank(marks: Mapping[str, str]) -> Optional[int]:
    for name in RANK_VARIABLES:
        if marks.get(name, "").isdigit():
            return int(marks[name])
    return None


def _rss(pid: int) -> int:
    try:
        return int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def _io(pid: int) -> Optional[tuple[int, int]]:
    """Bytes read and written through system calls; None where that may not be read."""
    try:
        lines = (_PROC / str(pid) / "io").read_text().split()
        return int(lines[1]), int(lines[3])
    except (OSError, IndexError, ValueError):
        return None


def _user(pid: int) -> str:
    try:
        return _name(os.stat(_PROC / str(pid)).st_uid)  # noqa: PTH116
    except OSError:
        return ""


@lru_cache(256)
def _name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _on_gpus() -> tuple[dict[int, dict[str, int]], str]:
    """pid -> GPU -> bytes of its memory, and why that is not known."""
    if not nvidia.present("/"):
        return {}, ""
    try:
        rows = nvidia.running()
    except (OSError, ValueError) as error:
        return {}, str(error)[:200]
    found: dict[int, dict[str, int]] = {}
    for row in rows:
        found.setdefault(int(row["pid"]), {})[str(row["gpu"])] = int(row["bytes"] or 0)
    return found, ""


# ---- signal


def _signal() -> int:
    """Send the signal on stdin, `{"signal": NAME, "pids": [[PID, START], …]}`, to those that still are who they were."""
    raw = table(sys.stdin.buffer.read(_REQUEST).decode("utf-8", "replace")) or {}
    name, pids = raw.get("signal"), raw.get("pids")
    if name not in SIGNALS or not isinstance(pids, list):
        print('rankdeck: ps signal needs {"signal": …, "pids": …} on stdin', file=sys.stderr)
        return 2
    number = signal.Signals[f"SIG{name}"]
    told = [_send(pair, number) for pair in cast("list[Any]", pids)]
    print(json.dumps({"not": [row for row in told if row["why"]]}))
    return 0


def _send(pair: Any, number: int) -> Row:  # noqa: ANN401 - from JSON
    """`pair` is a pid and the start of the process that is meant."""
    if not isinstance(pair, list) or [type(n) for n in cast("list[Any]", pair)] != [int, int]:
        return {"pid": 0, "why": "not a pid and a start"}
    pid, start = cast("list[int]", pair)
    if pid <= 1 or not processes.is_alive(pid, start):
        return {"pid": pid, "why": "it has ended"}
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return {"pid": pid, "why": "it has ended"}
    except PermissionError:
        return {"pid": pid, "why": "it is another user's: not permitted"}
    return {"pid": pid, "why": ""}
