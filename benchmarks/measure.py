"""CPU seconds, memory and wall time of processes, measured so that a
shared machine does not distort ratios.
"""

import json
import os
import resource
import subprocess
import threading
import time
import urllib.request
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from tests.support.ports import wait_for_port

ROOT = Path(__file__).resolve().parents[1]
PYTHONPATH = f"{ROOT}/benchmarks/default_install:{ROOT}/console:{ROOT}/agents"
"""With what a default install has: asyncssh would load the libraries of extras, used or not."""
LIMIT = 60.0
REFERENCE = 48e-6
"""CPU seconds in which the reference machine decodes the fixed document of
`machine_factor`: the fastest of 600 rounds.
"""
_DOCUMENT = json.dumps(
    {f"gpu.metric{n:02}": {str(d): 1e6 + n * d + 0.5 for d in range(8)} for n in range(24)}
)
_DECODES, _DECODE_ROUNDS = 100, 15


def environment(**more: str) -> dict[str, str]:
    """Environment for a measured program: its modules are kept compiled, as in an installation."""
    own = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**own, "PYTHONPATH": PYTHONPATH, **more}


def machine_factor() -> float:
    """How many times longer this core takes for a fixed JSON
    document than the reference machine's.
    """
    rounds: list[float] = []
    for _ in range(_DECODE_ROUNDS):
        begin = time.thread_time()
        for _ in range(_DECODES):
            json.loads(_DOCUMENT)
        rounds.append((time.thread_time() - begin) / _DECODES)
    return median(rounds) / REFERENCE


def slower() -> float:
    """The machine factor, at least 1: budgets of processor time are multiplied by it."""
    return max(machine_factor(), 1.0)


def must_live(name: str, process: subprocess.Popen[bytes]) -> None:
    """Raise RuntimeError if the process has ended: its figures would mean nothing."""
    if process.poll() is not None:
        raise RuntimeError(f"{name} ended with {process.returncode} while it was measured")


def cpu_of(pid: int) -> float:
    """CPU seconds of a process and all its threads until now."""
    return time.clock_gettime((~pid << 3) | 2)


def resident_of(pid: int) -> float:
    """MiB of memory that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def proportional_of(pid: int) -> float:
    """MiB of memory of a process (PSS): shared memory is divided
    among the processes that share it.
    """
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.split("\nPss:")[1].split()[0]) / 1024


def run_once(
    argv: Sequence[str], env: Mapping[str, str], limit: float = LIMIT
) -> tuple[float, float]:
    """Wall and CPU seconds of a command and its children; raises if it fails or takes longer."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    subprocess.run(
        argv,
        env=dict(env),
        check=True,
        timeout=limit,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    wall = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def alternate(
    commands: Mapping[str, Sequence[str]], rounds: int, env: Mapping[str, str]
) -> dict[str, tuple[float, float]]:
    """Median wall and CPU seconds of each command, run in turn."""
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, argv in commands.items():
            runs[name].append(run_once(argv, env))
    return {
        name: (median(wall for wall, _ in each), median(cpu for _, cpu in each))
        for name, each in runs.items()
    }


@contextmanager
def running(
    argv: Sequence[str], stdin: bytes = b"", **more: str
) -> Generator[subprocess.Popen[bytes]]:
    """A process with its standard input held open, ended afterwards."""
    process = subprocess.Popen(
        argv,
        env=environment(**more),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdin is not None
        process.stdin.write(stdin)
        process.stdin.flush()
        yield process
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)


@contextmanager
def scraped(port: int, period: float = 1.0) -> Generator[None]:
    """Asks http://127.0.0.1:PORT/metrics once a period, as Prometheus would."""
    ended = threading.Event()

    def ask() -> None:
        while not ended.wait(period):
            url = f"http://127.0.0.1:{port}/metrics"
            with urllib.request.urlopen(url, timeout=5) as answer:
                answer.read()

    wait_for_port(port)
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(10)
