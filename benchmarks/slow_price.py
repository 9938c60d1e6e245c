"""What a slow rank costs, as predicted from what its node sees, and as gained when the cause goes:
gloo ranks that compute, read and exchange, one of which a CPU quota or a slow disk holds back, or
has more to do.

The cause is put on and taken away in turns, so that other load of the machine counts for both.
"""

import importlib.util
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from tests.support import cpu_quota, disk_limit

from benchmarks.measure import cpu_of
from benchmarks.result import MissingError, Result
from rankdeck.model.rank import Activity
from rankdeck.rules.price import lost_share
from rankdeck_agent.job.activity import (
    CpuQuota,
    CpuQuotas,
    ThreadTime,
    held_share,
    thread_shares,
    thread_time_of,
)

TRIALS, RANKS, SLOW = 20, 2, 1
"""Two ranks: where there are more than cores, they wait for cores while none is slow, and for none
while one is: a gain that no look at ranks can foretell.
"""
TURNS, LOOKS, LOOK, SETTLE = 3, 3, 1.2, 0.6
"""Turns of a trial, looks in each with the cause, their seconds, and those left out before them."""
MOST_POINTS = 5.0
WORK, PAUSE = 0.006, 0.024
"""Seconds of CPU and of rest in each step: all ranks together need less than a core."""
_FREE = 4.0
_KINDS = ("quota", "work", "disk")
_BLOCK = 1 << 14
"""Bytes that each rank reads from the disk in each step."""
PROGRAM = f"""
import mmap, os, sys, time, torch
import torch.distributed as d
place, work, pause = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
torch.set_num_threads(1)
d.init_process_group("gloo")
rank, some, step = d.get_rank(), torch.ones(1000), 0
steps = os.open(place + "/steps", os.O_WRONLY | os.O_CREAT)
batch, data = mmap.mmap(-1, {_BLOCK}), os.open(place + "/data", os.O_RDONLY | os.O_DIRECT)
with open(f"{{place}}/pid.{{rank}}", "w") as file:
    file.write(str(os.getpid()))
def slowness():
    try:
        with open(place + "/slow") as file:
            return float(file.read())
    except OSError:
        return 1
while True:
    until = time.thread_time() + work * (slowness() if rank == {SLOW} else 1)
    while time.thread_time() < until:
        pass
    os.preadv(data, [batch], 0)
    d.all_reduce(some)
    step += 1
    if rank == 0:
        os.pwrite(steps, b"%12d" % step, 0)
    time.sleep(pause)
"""


@dataclass(frozen=True)
class Job:
    """The ranks, and the control groups of the slow one."""

    place: Path
    pids: Sequence[int]
    cpu: Path
    disk: Path


@dataclass(frozen=True)
class Seen:
    """What the node counts of a rank."""

    at: float
    thread: ThreadTime | None
    quota: CpuQuota | None


def run() -> list[Result]:
    if importlib.util.find_spec("torch") is None:
        raise MissingError("torch: tests/support/torch.sh PYTHON")
    if why := cpu_quota.lacking() or disk_limit.lacking():
        raise MissingError(why)
    chance = random.Random(43)
    errors: list[float] = []
    with ExitStack() as stack:
        stack.enter_context(disk_limit.disk_waits_counted())
        job = stack.enter_context(_started())
        for group in (job.cpu, job.disk):
            stack.callback(cpu_quota.release, group)
        for number in range(TRIALS):
            kind = _KINDS[number % len(_KINDS)]
            predicted, gained = _measured(job, _cause(job, kind, chance))
            errors.append(100 * abs(predicted - gained))
            told = f"{kind}: predicted {predicted:.1%}, gained {gained:.1%}"
            print(f"# {number} {told}", file=sys.stderr, flush=True)
    within = sum(error <= MOST_POINTS for error in errors)
    note = f"{within} of {TRIALS} within {MOST_POINTS:g} points, mean {mean(errors):.1f}"
    return [
        Result(name="slow_price.error", value=max(errors), unit="points", budget=MOST_POINTS,
               on_ratio=False, note=note)
    ]  # fmt: skip


def _cause(job: Job, kind: str, chance: random.Random) -> Callable[[bool], None]:
    """What puts the cause on the slow rank, and takes it away."""
    if kind == "work":
        more = chance.uniform(1.5, 4.0)

        def burden(on: bool) -> None:
            if on:
                (job.place / "slow.new").write_text(str(more))
                (job.place / "slow.new").rename(job.place / "slow")
            else:
                (job.place / "slow").unlink(missing_ok=True)

        return burden
    if kind == "disk":
        rate = round(_BLOCK / chance.uniform(1.3, 4.0) / (WORK + PAUSE))
        slow, file = job.pids[SLOW], job.place / "data"

        def brake(on: bool) -> None:
            if on:
                disk_limit.slow_reader(job.disk, slow, file, rate)
            else:
                disk_limit.free_reader(job.disk, slow)

        return brake
    # A share of what it uses now: on a busy machine that may be little.
    begun, used = time.monotonic(), cpu_of(job.pids[SLOW])
    time.sleep(LOOK)
    uses = (cpu_of(job.pids[SLOW]) - used) / (time.monotonic() - begun)
    share = max(chance.uniform(0.3, 0.8) * uses, 0.011)
    return lambda on: _limit(job.cpu, share if on else _FREE)


def _measured(job: Job, put: Callable[[bool], None]) -> tuple[float, float]:
    """Shares of the time: predicted to be lost, and gained without the cause."""
    place, pids = job.place, job.pids
    quotas = CpuQuotas()
    looks: dict[int, list[Activity]] = {rank: [] for rank in range(RANKS)}
    paces: dict[bool, list[float]] = {True: [], False: []}
    for on in (True, False) * TURNS:
        put(on)
        time.sleep(SETTLE)
        begun, first = time.monotonic(), _steps(place)
        seen = [_look(pid, quotas) for pid in pids]
        for _ in range(LOOKS):
            time.sleep(LOOK)
            now = [_look(pid, quotas) for pid in pids]
            if on:
                for rank, (before, after) in enumerate(zip(seen, now, strict=True)):
                    looks[rank].append(_activity(before, after))
            seen = now
        paces[on].append((_steps(place) - first) / (time.monotonic() - begun))
    predicted = lost_share([SLOW], looks) or 0.0
    return predicted, 1 - mean(paces[True]) / mean(paces[False])


def _activity(before: Seen, now: Seen) -> Activity:
    seconds = now.at - before.at
    held = held_share(before.quota, now.quota, seconds)
    wants, delayed, blocked = thread_shares(before.thread, now.thread, seconds)
    return Activity("S", "", 0.1, 0.0, now.at, None, None, wants, held, delayed, blocked)


def _look(pid: int, quotas: CpuQuotas) -> Seen:
    return Seen(time.monotonic(), thread_time_of(pid, disks=True), quotas.of(pid))


def _steps(place: Path) -> int:
    return int((place / "steps").read_bytes())


def _limit(group: Path, share: float) -> None:
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{round(share * 100_000)} 100000")
    else:
        (group / "cpu.cfs_quota_us").write_text(str(round(share * 100_000)))


@contextmanager
def _started() -> Generator[Job]:
    """The job, once it makes steps."""
    launch = ("-m", "torch.distributed.run", f"--nproc-per-node={RANKS}", "--standalone")
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "program.py").write_text(PROGRAM)
        (place / "data").write_bytes(os.urandom(_BLOCK))
        words = (str(place / "program.py"), name, str(WORK), str(PAUSE))
        with _running(sys.executable, *launch, *words):
            limit = time.monotonic() + 120
            while not (place / "steps").exists() or not (place / "steps").read_bytes().strip():
                if time.monotonic() > limit:
                    raise MissingError("ranks of gloo that make steps here")
                time.sleep(0.1)
            pids = [int((place / f"pid.{rank}").read_text()) for rank in range(RANKS)]
            name = f"price-{os.getpid()}"
            group = cpu_quota.limit_cpu([pids[SLOW]], _FREE, name)
            yield Job(place, pids, group, disk_limit.make_group(name))


@contextmanager
def _running(*argv: str) -> Generator[None]:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(argv, env=env, stdout=quiet, stderr=quiet, start_new_session=True)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
