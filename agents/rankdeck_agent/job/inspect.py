"""`job inspect`: what every rank of this node is doing now, from /proc, py-spy and NCCL's RAS."""

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, cast

from rankdeck_agent.job import processes
from rankdeck_agent.job.folder import RunFolder, all_events
from rankdeck_agent.job.logs import TailReader
from rankdeck_agent.job.native_stack import read_native_stacks
from rankdeck_agent.job.nccl_ras import ask_nccl_ras
from rankdeck_agent.job.rank_queue_pairs import read_rank_pairs
from rankdeck_agent.job.supervisor_state import supervisor_pid
from rankdeck_agent.job.witness import ANSWER_LIMIT, WitnessQuestion, list_witnesses
from rankdeck_agent.text import parse_json_array, plain_line

_PROC = Path("/proc")
_GAP = 0.4
"""Seconds between the two readings of the CPU time."""
_SPY_LIMIT = 6.0
_SPY_SAMPLES = 2
"""Dumps of each rank: a rank that polls may be at one of several lines."""
_SPY_TOGETHER = 8
_MOST_BYTES = 1 << 20
_MOST_RANKS = 1024
_MOST_THREADS = 256
_FRAMES = 30
_TICK = os.sysconf("SC_CLK_TCK")

Row = dict[str, Any]


def inspect_node_ranks(folder: RunFolder, host: str = "") -> Row:
    """{"ranks": one row per running rank, "spy": why there are no Python stacks
    or "", "ras": what NCCL says or why not}.

    With `host`, only ranks that began on that host: several nodes may share the run folder.
    """
    mine = find_rank_processes(folder, host)
    sockets = {rank: place for rank, place in list_witnesses(folder).items() if rank in mine}
    found = inspect_processes(mine, sockets)
    for row in found["ranks"]:
        row["last"] = newest_line(folder, row["rank"])
    return found


def inspect_processes(mine: "Mapping[int, list[int]]", sockets: "Mapping[int, Path]") -> Row:
    """The same without the last line of each rank, of these ranks with their processes, whose
    witnesses wait in these places.
    """
    before = {pid: _cpu_seconds(pid) for pids in mine.values() for pid in pids}
    began = time.monotonic()

    mains = {rank: main_process(pids) for rank, pids in mine.items()}
    spy = _find_spy([*mains.values()])
    stacks = _dump_all(spy, mains) if spy else {}
    with WitnessQuestion(sockets) as question:
        witnesses = question.collect(ANSWER_LIMIT)
    unknown = [rank for rank in mains if rank not in stacks and rank not in witnesses]
    native = read_native_stacks({rank: mains[rank] for rank in unknown})
    pairs = read_rank_pairs(mine)

    time.sleep(max(0.0, _GAP - (time.monotonic() - began)))
    spent = time.monotonic() - began

    rows = [
        _row(rank, pids, mains[rank], stacks.get(rank, [])) for rank, pids in sorted(mine.items())
    ]
    for row in rows:
        used = sum(_cpu_seconds(p) - before[p] for p in mine[row["rank"]])
        row["cpu"] = round(max(0.0, used) / spent, 3)
        row["witness"] = witnesses.get(row["rank"], {})
        row["native"] = native.get(row["rank"], {})
        row["pairs"] = pairs.get(row["rank"], [])
    return {"ranks": rows, "spy": _why_no_stacks(spy, rows), "ras": ask_nccl_ras(mains.values())}


# ---- which processes -----------------------------------------------------------------------


def find_rank_processes(folder: RunFolder, host: str) -> dict[int, list[int]]:
    """The processes of each running rank: the program and all below it."""
    alive = processes.find_job_processes(folder.job, folder.node, supervisor_pid(folder))
    started = {
        int(event["rank"]): int(event["pid"])
        for event in all_events(folder.events)
        if event["kind"] == "started" and "pid" in event and host in ("", event.get("host"))
    }
    some = dict(list(started.items())[:_MOST_RANKS])
    found = processes.process_trees(alive, some.values())
    return {rank: found[pid] for rank, pid in some.items() if pid in found}


def main_process(pids: "list[int]") -> int:
    """The pid of the process that has used most CPU time."""
    rows = [row for row in map(processes.find_process, pids) if row is not None]
    return processes.busiest_process(rows).pid if rows else pids[0]


def _cpu_seconds(pid: int) -> float:
    row = processes.find_process(pid)
    return row.computed / _TICK if row else 0.0


def _row(rank: int, pids: list[int], main: int, stack: list[Row]) -> Row:
    place = _PROC / str(main)
    return {
        "rank": rank,
        "pid": main,
        "pids": len(pids),
        "command": processes.command_line(main),
        "state": processes.read_own_state(main),
        "wchan": processes.kernel_function(processes.read_proc_word(place / "wchan")),
        "syscall": processes.read_proc_word(place / "syscall").split(" ")[0],
        "kernel": _kernel_stack(place),
        "threads": _threads(main),
        "stacks": stack,
    }


def _kernel_stack(place: Path) -> list[str]:
    """Kernel functions that the process waits in, innermost first; empty if not permitted."""
    try:
        lines = (place / "stack").read_text(errors="replace").splitlines()
    except OSError:
        return []
    words = (processes.kernel_function(line.split("] ")[-1]) for line in lines[:8])
    return [plain_line(word, 60) for word in words]


def _threads(pid: int) -> dict[str, int]:
    """State and wait channel -> number of threads in it: `S futex_wait_queue` -> 7."""
    counts: dict[str, int] = {}
    try:
        tasks = sorted((_PROC / str(pid) / "task").iterdir())[:_MOST_THREADS]
    except OSError:
        return {}
    for task in tasks:
        where = processes.kernel_function(processes.read_proc_word(task / "wchan"))
        key = f"{processes.read_state(task)} {where}".strip()
        counts[key] = counts.get(key, 0) + 1
    return counts


def newest_line(folder: RunFolder, rank: int) -> str:
    """The newest line of either stream of a rank, by its logs in this run folder."""
    tails = [TailReader(folder.place(rank) / stream) for stream in ("out", "err")]
    for tail in tails:
        tail.look(0)
    return max(tails, key=lambda tail: tail.at).last


# ---- py-spy --------------------------------------------------------------------------------


def _find_spy(pids: Sequence[int]) -> str:
    """The path of py-spy, from our PATH or that of the first rank; "" if there is none."""
    theirs = [processes.read_environment(pid, ("PATH",)).get("PATH", "") for pid in pids[:1]]
    paths = [os.environ.get("PATH", os.defpath), *theirs]
    return shutil.which("py-spy", path=os.pathsep.join(paths)) or ""


def _dump_all(spy: str, mains: Mapping[int, int]) -> dict[int, list[Row]]:
    """The Python stacks of each rank, a few ranks at a time."""
    deadline = time.monotonic() + 4 * _SPY_LIMIT
    found: dict[int, list[Row]] = {}
    ranks = [rank for rank, pid in sorted(mains.items()) if _is_python(pid)]
    for at in range(0, len(ranks), _SPY_TOGETHER):
        if time.monotonic() > deadline:
            break
        some = ranks[at : at + _SPY_TOGETHER]
        for _ in range(_SPY_SAMPLES):
            for rank, stack in _dump({r: mains[r] for r in some}, spy).items():
                found.setdefault(rank, []).append(stack)
    return found


def _is_python(pid: int) -> bool:
    try:
        return "python" in (_PROC / str(pid) / "exe").resolve().name
    except OSError:
        return False


def _dump(pids: Mapping[int, int], spy: str) -> dict[int, Row]:
    running = {
        rank: subprocess.Popen(
            [spy, "dump", "--json", "--nonblocking", "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for rank, pid in pids.items()
    }

    found: dict[int, Row] = {}
    for rank, process in running.items():
        try:
            out, _ = process.communicate(timeout=_SPY_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            continue
        threads = parse_json_array(out[:_MOST_BYTES].decode("utf-8", "replace"))
        stack = _stack(threads or [])
        if stack:
            found[rank] = stack
    return found


def _stack(threads: list[Any]) -> Optional[Row]:
    """The main thread's frames, innermost first: that is where a rank waits for others."""
    tables = [cast("Row", t) for t in threads if isinstance(t, dict)]
    named = [t for t in tables if t.get("thread_name") == "MainThread"]
    for table in named or tables[:1]:
        frames = table.get("frames")
        if isinstance(frames, list):
            rows = cast("list[Any]", frames)[:_FRAMES]
            return {"frames": [_frame(cast("Row", f)) for f in rows if isinstance(f, dict)]}
    return None


def _frame(frame: Row) -> list[Any]:
    line = frame.get("line")
    return [
        plain_line(str(frame.get("name", "")), 120),
        plain_line(str(frame.get("short_filename") or frame.get("filename") or ""), 200),
        line if isinstance(line, int) else 0,
    ]


def _why_no_stacks(spy: str, rows: list[Row]) -> str:
    if not rows:
        return ""
    if not spy:
        return "py-spy is not on the PATH of this node"
    if not any(row["stacks"] for row in rows):
        return "py-spy may not look into these processes (ptrace), or they are not Python"
    return ""
