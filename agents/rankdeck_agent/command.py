"""`sh` runs a command of the operator, with a time limit, and can end all its
processes; `ps` lists processes by job and rank.
"""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional, cast

from rankdeck_agent import JOB_VARIABLE, NODE_VARIABLE, RANK_VARIABLES, SIGNALS
from rankdeck_agent.job import processes
from rankdeck_agent.job.process_chains import adopt_orphans, end_below
from rankdeck_agent.job.processes import Process
from rankdeck_agent.text import parse_json_table, print_complaint, print_json_line
from rankdeck_agent.user_names import user_name
from rankdeck_agent.values import Record, field

_BLOCK = 65_536
_LONGEST = 16_384
"""Most bytes of one line; the rest becomes another line."""
_QUESTION = 1 << 20
_GRACE, _PROOF = 5.0, 2.0
"""Seconds from SIGTERM to SIGKILL, and from SIGKILL to the last check."""
_POLL = 0.05
_DRAIN = 0.5
"""Seconds after its end in which processes that it left in the
background may still write output.
"""
_STREAMS = ("out", "err")


class _OutputStream(Record):
    """One output of the command: its name in the answers, and the incomplete last line."""

    name: str
    rest: bytes = b""


class _Output(Record):
    """Prints the command's output as lines of JSON, up to `most` bytes."""

    most: int
    printed: int = 0
    """Bytes printed so far."""
    cut: int = 0
    """Bytes left out."""
    open: dict[int, _OutputStream] = field(default_factory=dict[int, _OutputStream])
    """Descriptor -> output that has not ended."""

    def take(self, descriptor: int) -> bool:
        """Read what is available and print its complete lines; False at the end of the output."""
        stream = self.open[descriptor]
        data = os.read(descriptor, _BLOCK)
        *lines, stream.rest = (stream.rest + data).split(b"\n")
        while len(stream.rest) >= _LONGEST:
            lines.append(stream.rest[:_LONGEST])
            stream.rest = stream.rest[_LONGEST:]
        if not data:
            self.flush(descriptor)
            return False
        self._print(stream.name, lines)
        return True

    def flush(self, descriptor: int) -> None:
        """Print the incomplete last line."""
        stream = self.open.pop(descriptor)
        if stream.rest:
            self._print(stream.name, [stream.rest])

    def _print(self, name: str, lines: list[bytes]) -> None:
        kept: list[str] = []
        for line in lines:
            if self.cut or self.printed + len(line) > self.most:
                self.cut += len(line) + 1
                continue
            self.printed += len(line) + 1
            kept.append(line.decode("utf-8", "replace"))
        if kept:
            print_json_line({name: kept})


def run_shell_command() -> int:
    """Run the command in the first line of stdin, `{"command": TEXT,
    "limit": SECONDS, "most": BYTES}`.

    Prints one JSON object per line: `{"out": [LINE, …]}`, `{"err": [LINE, …]}`, and last `{"end":
    {…}}`. Anything else on stdin, or its end, cancels the command: a console that is gone leaves
    nothing running. Returns 0, or 2 if the request is not valid.
    """
    asked = _question()
    if asked is None:
        return print_complaint(
            'rankdeck: sh needs {"command": …, "limit": …, "most": …} on stdin', 2
        )
    command, limit, most = asked

    began = time.monotonic()
    mark = f"sh-{os.getpid()}-{int(time.time() * 1e9)}"
    adopt_orphans()
    process = subprocess.Popen(
        ("/bin/sh", "-c", command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, JOB_VARIABLE: mark, NODE_VARIABLE: ""},
        start_new_session=True,
    )

    output = _Output(most)
    why = _follow(process, output, began + limit)
    left = _end(process, mark) if why else []
    code = process.poll()
    for descriptor in list(output.open):
        output.flush(descriptor)

    print_json_line(
        {
            "end": {
                "code": 128 - code if code is not None and code < 0 else code,
                "why": why,
                "left": left,
                "behind": 0 if why else len(_running(mark)),
                "cut": output.cut,
                "seconds": round(time.monotonic() - began, 3),
            }
        }
    )
    return 0


def _question() -> Optional[tuple[str, float, int]]:
    data = b""
    while not data.endswith(b"\n") and len(data) < _QUESTION:
        more = os.read(0, _BLOCK)
        if not more:
            break
        data += more
    raw = parse_json_table(data.decode("utf-8", "replace")) or {}
    command, limit, most = raw.get("command"), raw.get("limit"), raw.get("most")
    if isinstance(command, str) and isinstance(limit, (int, float)) and isinstance(most, int):
        return command, float(limit), most
    return None


def _follow(process: "subprocess.Popen[bytes]", output: _Output, deadline: float) -> str:
    """Print the output until the command has ended; returns "", or why it
    must be ended ("limit", "cancelled").
    """
    chosen = selectors.DefaultSelector()
    chosen.register(0, selectors.EVENT_READ)
    for pipe, name in zip((process.stdout, process.stderr), _STREAMS):
        assert pipe is not None
        output.open[pipe.fileno()] = _OutputStream(name)
        chosen.register(pipe.fileno(), selectors.EVENT_READ)

    over: Optional[float] = None
    while output.open or over is None:
        now = time.monotonic()
        if over is None and process.poll() is not None:
            over = now
        if over is None and now >= deadline:
            return "limit"
        if over is not None and now - over > _DRAIN:
            break
        if _read(chosen, output):
            return "cancelled"
    return ""


def _read(chosen: selectors.BaseSelector, output: _Output) -> bool:
    """Print the output that is available; returns whether stdin asks to cancel."""
    for key, _ in chosen.select(_POLL):
        if key.fd == 0:
            return True
        if not output.take(key.fd):
            chosen.unregister(key.fd)
    return False


def _running(mark: str) -> dict[int, processes.Process]:
    return processes.find_job_processes(mark, "", os.getpid())


def _end(process: "subprocess.Popen[bytes]", mark: str) -> list[dict[str, Any]]:
    """Send SIGTERM, after the grace period SIGKILL; returns what did not end, as rows of `left`."""
    found = _running(mark)
    for number, patience in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, _PROOF)):
        signalled: set[int] = set()
        deadline = time.monotonic() + patience
        while found and time.monotonic() < deadline:
            # Also signal processes that were started meanwhile.
            processes.signal_processes(found, found.keys() - signalled, number)
            signalled |= found.keys()
            time.sleep(_POLL)
            process.poll()
            found = _running(mark)
    left = end_below(os.getpid(), (), _PROOF)
    named = {row["pid"] for row in left}
    return left + [processes.describe_left_process(found[pid]) for pid in found.keys() - named]


_PROC = Path("/proc")
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_GAP = 1.0
"""Seconds between two readings, to see what a process uses now and not since its start."""
_MOST = 2_000
"""Most processes in an answer: those of jobs and on GPUs first, then the busiest."""

Row = dict[str, Any]


def run_process_list(given: list[str]) -> int:
    """`ps` prints the processes as one JSON object; `ps signal` sends a signal.

    Returns the exit code.
    """
    if given == ["signal"]:
        return _signal()
    print_json_line({"at": time.time(), **read_process_usage()})
    return 0


def read_process_usage() -> Row:
    """The processes and what they use now: `rows`, how many were `left_out`, and
    `gpus`: why GPU use is not known, or "".
    """
    before, began = processes.list_processes(), time.monotonic()
    read = {pid: _io(pid) for pid in before}
    time.sleep(_GAP)
    rows = processes.list_processes()
    gap = time.monotonic() - began

    on_gpus, why = _on_gpus()
    own = processes.own_line(rows) - {1}
    found = [
        _row(row, before.get(pid), read.get(pid), gap, on_gpus.get(pid, {}))
        for pid, row in rows.items()
        # Threads of the kernel have kthreadd, pid 2, as parent.
        if pid not in own and 2 not in (pid, row.ppid)
    ]
    found.sort(key=lambda row: (not row["job"], not row["gpus"], -row["cpu"], -row["rss"]))
    return {"rows": found[:_MOST], "left_out": max(len(found) - _MOST, 0), "gpus": why}


def _row(
    row: Process,
    before: Optional[Process],
    io: Optional[tuple[int, int]],
    gap: float,
    gpus: Mapping[str, int],
) -> Row:
    same = before is not None and before.start == row.start
    ticks = row.computed - before.computed if before is not None and same else 0
    marks = processes.read_environment(row.pid, (JOB_VARIABLE, *RANK_VARIABLES))
    job = marks.get(JOB_VARIABLE, "")
    numbers = (int(marks[name]) for name in RANK_VARIABLES if marks.get(name, "").isdigit())
    now = _io(row.pid)
    rates = (
        [(new - old) / gap for old, new in zip(io, now)] if same and io and now else [None, None]
    )

    return {
        "pid": row.pid,
        "ppid": row.ppid,
        "start": row.start,
        "user": _user(row.pid),
        "state": row.state,
        "command": processes.command_line(row.pid),
        "cpu": round(max(ticks, 0) / _TICK / gap, 3),
        "rss": _rss(row.pid),
        "read": rates[0],
        "write": rates[1],
        "gpus": dict(gpus),
        "job": job,
        "rank": next(numbers, None) if job else None,
    }


def _rss(pid: int) -> int:
    try:
        return int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def _io(pid: int) -> Optional[tuple[int, int]]:
    """(bytes read, bytes written) through system calls; None if they cannot be read."""
    try:
        lines = (_PROC / str(pid) / "io").read_text().split()
        return int(lines[1]), int(lines[3])
    except (OSError, IndexError, ValueError):
        return None


def _user(pid: int) -> str:
    try:
        return user_name((_PROC / str(pid)).stat().st_uid)
    except OSError:
        return ""


def _on_gpus() -> tuple[dict[int, dict[str, int]], str]:
    """(pid -> GPU -> bytes of GPU memory, why that is not known or "")."""
    # Imported here: `sh` does not need the collectors.
    from rankdeck_agent.collectors import nvidia

    if not nvidia.has_nvidia_driver("/"):
        return {}, ""
    try:
        rows = nvidia.list_gpu_programs()
    except (OSError, ValueError) as error:
        return {}, str(error)[:200]
    found: dict[int, dict[str, int]] = {}
    for row in rows:
        found.setdefault(int(row["pid"]), {})[str(row["gpu"])] = int(row["bytes"] or 0)
    return found, ""


# ---- signal


def _signal() -> int:
    """Send the signal on stdin, `{"signal": NAME, "pids": [[PID, START], …]}`, to
    those that are still the same process.
    """
    raw = parse_json_table(sys.stdin.buffer.read(_QUESTION).decode("utf-8", "replace")) or {}
    name, pids = raw.get("signal"), raw.get("pids")
    if name not in SIGNALS or not isinstance(pids, list):
        return print_complaint('rankdeck: ps signal needs {"signal": …, "pids": …} on stdin', 2)
    number = signal.Signals[f"SIG{name}"]
    results = [_send(pair, number) for pair in cast("list[Any]", pids)]
    print_json_line({"not": [row for row in results if row["why"]]})
    return 0


def _send(pair: Any, number: int) -> Row:  # noqa: ANN401 - from JSON
    """Send the signal to one process; `pair` is [pid, its start in clock ticks].

    `why` is "" on success.
    """
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
