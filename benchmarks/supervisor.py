"""The supervisor of a job beside programs that do a part of its work: starts of ranks beside a
loop of `sh`, output of 20 MB/s beside `script`, `tee` and a bare copy of a terminal, memory beside
mpirun.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from benchmarks.measure import environment, run_once
from benchmarks.result import MissingError, Result

RANKS = 170
"""Plain ranks on one node: 512 on three nodes."""
WRITTEN = 40
"""MB that a rank writes, at 20 MB/s."""
LAUNCHED = 64
"""Ranks whose supervisor and shims are weighed."""
ROUNDS = 3
STARTS = 5.0
"""Milliseconds of CPU for the start and the end of a rank."""
MPIRUN = Path(sys.executable).parent / "mpirun"
WRITER = """
import os, sys, time
block = b"".join(b"step %d loss 2.5 tok/s 11800 and so on and on\\n" % n for n in range(400))
sent, begin = 0, time.monotonic()
while sent < int(sys.argv[1]) * 1_000_000:
    sent += os.write(1, block)
    time.sleep(max(0.0, begin + sent / 20e6 - time.monotonic()))
"""
COPIER = """
import json, os, pty, resource, subprocess, sys, time, tty
master, slave = pty.openpty()
tty.setraw(slave)
writer = subprocess.Popen(sys.argv[2:], stdout=slave)
os.close(slave)
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
begin = time.process_time()
try:
    while True:
        os.write(log, os.read(master, 65536))
except OSError:
    copied = time.process_time() - begin
writer.wait()
spent = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({"copier": copied, "writer": spent.ru_utime + spent.ru_stime}))
"""
"""Does nothing but copy a terminal to a file: what Linux takes for that, whoever does it."""
QUIET = "sleep 2"
"""A job that writes nothing for as long as the other takes to write."""


def run() -> list[Result]:
    """CPU of everything that is started, and memory (shared pages divided among their users)."""
    if missing := [name for name in ("script", "tee") if not shutil.which(name)]:
        raise MissingError(f"no `{missing[0]}` to compare with")
    with tempfile.TemporaryDirectory(prefix="rankdeck-bench.") as folder:
        writer = Path(folder) / "writer.py"
        writer.write_text(WRITER)
        return [*_starts(folder), *_output(folder, str(writer)), *_memory(folder)]


def _starts(folder: str) -> list[Result]:
    loop = (
        f"i=0; while [ $i -lt {RANKS} ]; do (true; /bin/true) >/dev/null & i=$((i+1)); done; wait"
    )
    ours = _median(lambda: _job(folder, RANKS, ("true",))["cpu"])
    peer = _median(lambda: run_once(("sh", "-c", loop), environment())[1])
    return [
        Result(
            name="start of a rank", value=ours / RANKS * 1e3, unit="ms CPU", peer="a loop of sh",
            peer_value=peer / RANKS * 1e3, budget=STARTS, on_ratio=False, note=f"{RANKS} ranks",
            limit="a shell a rank, its terminal and its records",
        )
    ]  # fmt: skip


def _output(folder: str, writer: str) -> list[Result]:
    command = (sys.executable, writer, str(WRITTEN))
    line = " ".join(command)
    per_gb = 1000 / WRITTEN
    # What the writer costs itself, and a job that writes nothing, is taken off.
    quiet = _median(lambda: _job(folder, 1, ("sh", "-c", QUIET))["supervisor"])
    ours = _median(lambda: _job(folder, 1, command)["supervisor"]) - quiet
    copies = [_copy(folder, command) for _ in range(ROUNDS)]
    in_terminal = median(each["writer"] for each in copies)
    script = _median(lambda: _shell(f"script -qc '{line}' {folder}/script")) - in_terminal
    tee = _median(lambda: _tee(folder, command))
    copy = median(each["copier"] for each in copies)
    why = "Linux gives 4 KB in a read of a terminal, which C programs need to write line by line"
    peers = {"script": (script, 0.6), "tee": (tee, None), "bare copy of a terminal": (copy, 1.3)}
    return [
        Result(
            name=f"20 MB/s of a rank, {peer}", value=ours * per_gb, unit="CPU s/GB", peer=peer,
            peer_value=value * per_gb, budget=budget, limit=why,
        )
        for peer, (value, budget) in peers.items()
    ]  # fmt: skip


def _tee(folder: str, command: Sequence[str]) -> float:
    """CPU seconds of `tee` behind a pipe from this program."""
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as writer,
        subprocess.Popen(
            ("tee", f"{folder}/tee"), stdin=writer.stdout, stdout=subprocess.DEVNULL
        ) as tee,
    ):
        _pid, tee.returncode, spent = os.wait4(tee.pid, 0)
    return spent.ru_utime + spent.ru_stime


def _copy(folder: str, command: Sequence[str]) -> dict[str, float]:
    """CPU seconds of a bare copy of a terminal, and of the program that writes there."""
    found = subprocess.run(
        (sys.executable, "-c", COPIER, f"{folder}/copy", *command),
        env=environment(), stdout=subprocess.PIPE, check=True, timeout=300,
    )  # fmt: skip
    return json.loads(found.stdout)


def _memory(folder: str) -> list[Result]:
    ours = _job(folder, LAUNCHED, ("sleep", "600"))["memory"]
    peer = None
    if MPIRUN.exists():
        peer = _answer(folder, {"mpirun": str(MPIRUN), "ranks": LAUNCHED})["memory"]
    return [
        Result(
            name="memory of a rank", value=ours / LAUNCHED, unit="KiB",
            peer="bare mpirun" if peer else "", peer_value=peer and peer / LAUNCHED,
            note=f"supervisor and shims of {LAUNCHED} ranks", limit="a shell a rank",
        )
    ]  # fmt: skip


def _median(measured: Callable[[], float]) -> float:
    return median(measured() for _ in range(ROUNDS))


def _shell(line: str) -> float:
    argv = ("sh", "-c", f"{line} >/dev/null" if ">" not in line else line)
    return run_once(argv, environment(SHELL="/bin/sh"), 300)[1]


def _job(folder: str, ranks: int, command: Sequence[str]) -> dict[str, float]:
    """What a job of one node takes, started as a console does."""
    return _answer(folder, {"command": list(command), "ranks": ranks})


def _answer(folder: str, asked: dict[str, object]) -> dict[str, float]:
    found = subprocess.run(
        (sys.executable, "-m", "benchmarks.supervisor_app"), input=json.dumps(asked).encode(),
        env=environment(RANKDECK_STATE=folder, HOME=folder), stdout=subprocess.PIPE,
        check=True, timeout=300,
    )  # fmt: skip
    return json.loads(found.stdout)
