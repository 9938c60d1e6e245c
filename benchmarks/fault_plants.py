"""Plants faults in a running job: signals to a process, cut links, full disks."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.support import cpu_quota
from tests.support.processes import descendants

from benchmarks.fault_model import Plant, Prepare, Site

RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK", "RANKDECK_RANK")
PROGRAM = "prog"
"""Name of the program of every job; it tells a rank from its shim."""
_LIMIT = 20.0
Find = Callable[[Site, str], list[int]]
"""Finds the processes to harm; returns their pids on this machine."""
FULL = "/tmp/full"
"""A disk of a megabyte, on one node."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a job, as this machine numbers it."""

    pid: int
    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]

    @property
    def node(self) -> str:
        return self.env.get("RANKDECK_NODE", "")

    @property
    def told_rank(self) -> int | None:
        """The rank number that the launcher set in its environment; also for the rank's shim."""
        told = next((v for k in RANK_VARIABLES if (v := self.env.get(k))), "")
        return int(told) if told.isdigit() else None

    @property
    def rank(self) -> int | None:
        """The rank number, if this process is the program itself."""
        ours = any(Path(word).name.startswith(PROGRAM) for word in self.argv[:2])
        return self.told_rank if ours else None


def processes(job: str) -> Iterator[Process]:
    """Every process that carries the mark of the job."""
    mark = f"RANKDECK_JOB={job}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environ = (entry / "environ").read_bytes().split(b"\0")
            if mark not in environ:
                continue
            argv = (entry / "cmdline").read_bytes().decode(errors="replace")
            name = (entry / "comm").read_text().strip()
        except OSError:  # gone, or not ours to read
            continue
        pairs = (part.decode(errors="replace").partition("=") for part in environ)
        env = {key: value for key, _, value in pairs}
        yield Process(int(entry.name), name, tuple(argv.split("\0")[:-1]), env)


def send(number: int, pids: Sequence[int], what: str) -> float:
    """Send the signal; returns the time (epoch seconds).

    Raises RuntimeError if no process was found.
    """
    if not pids:
        raise RuntimeError(f"found no {what}")
    at = time.time()
    for pid in pids:
        os.kill(pid, number)
    return at


def signal_to(number: int, find: Find, what: str) -> Plant:
    """A plant that sends a signal to the processes that `find` returns at that moment."""
    return lambda site, job: send(number, find(site, job), what)


def signal_rank(number: int, rank: int) -> Plant:
    """Send a signal to the program of a rank."""
    return signal_to(number, rank_of(rank), f"rank {rank}")


def signal_program(number: int, names: tuple[str, ...], node: str) -> Plant:
    """Send a signal to a launcher or daemon on a node."""
    return signal_to(number, program_on(names, node), f"{names} on {node}")


def kill_supervisor(node: str) -> Plant:
    """End the supervisor of a node with SIGKILL."""
    return signal_to(signal.SIGKILL, supervisor_on(node), "supervisor")


# ---- who is found -------------------------------------------------------------------------


def rank_of(rank: int) -> Find:
    """The program of a rank."""
    return lambda _site, job: [one.pid for one in processes(job) if one.rank == rank]


def shim_of(rank: int) -> Find:
    """The shim that stands before a rank's program."""

    def find(_site: Site, job: str) -> list[int]:
        shims = (one for one in processes(job) if one.name in ("rank-shim", "rank"))
        return [one.pid for one in shims if one.told_rank == rank]

    return find


def program_on(names: tuple[str, ...], node: str) -> Find:
    """A launcher or daemon on a node."""
    return lambda _site, job: [
        one.pid for one in processes(job) if one.node == node and _is(one, names)
    ]


def _is(process: Process, names: tuple[str, ...]) -> bool:
    words = {process.name, *(Path(word).name for word in process.argv[:2])}
    return bool(words & set(names)) and process.told_rank is None


def supervisor_on(node: str) -> Find:
    """The supervisor of a node."""

    def find(site: Site, job: str) -> list[int]:
        inside = (site.folder(job, node) / "supervisor.pid").read_text().split()[0]
        return _numbered(site, node, inside)

    return find


def agents_on(node: str) -> Find:
    """The agents that send telemetry from a node."""

    def find(site: Site, _job: str) -> list[int]:
        found = descendants(site.first_process(node))
        # `python -ES agent.pyz telemetry`
        return [pid for pid in found if words_of(pid)[-1:] == ["telemetry"]]

    return find


def connections_on(node: str) -> Find:
    """The processes with which a node's sshd serves its connections; the listener is left out."""

    def find(site: Site, _job: str) -> list[int]:
        first = site.first_process(node)
        daemons = [p for p in descendants(first)[1:] if _name(p).startswith("sshd")]
        return [p for p in daemons if _parent(p) != first]

    return find


def words_of(pid: int) -> list[str]:
    """The command line of a process; empty if the process is gone."""
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return data.decode(errors="replace").split("\0")[:-1]


def _numbered(site: Site, node: str, inside: str) -> list[int]:
    """The pid on this machine of the process with this pid on the node."""
    space = Path(f"/proc/{site.first_process(node)}/ns/pid").readlink()
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "ns/pid").readlink() != space:
                continue
            status = (entry / "status").read_text()
        except OSError:
            continue
        lines = (line.split() for line in status.splitlines())
        if any(words[:1] == ["NSpid:"] and words[-1] == inside for words in lines):
            found.append(int(entry.name))
    return found


def cut(node: str) -> Plant:
    """Take the link of a node down."""

    def plant(site: Site, job: str) -> float:
        del job
        at = time.time()
        site.cut(node)
        return at

    return plant


def crash(node: str) -> Plant:
    """End every process of a node at once."""

    def plant(site: Site, job: str) -> float:
        del job
        at = time.time()
        site.crash(node)
        return at

    return plant


def silence_sshd(node: str, seconds: float) -> Plant:
    """End the connections of a node's sshd and let it accept none for a while; its ranks go on."""

    def plant(site: Site, job: str) -> float:
        served = connections_on(node)(site, job)
        daemons = [
            p for p in descendants(site.first_process(node))[1:] if _name(p).startswith("sshd")
        ]
        listener = [p for p in daemons if p not in served][:1]
        at = send(signal.SIGSTOP, listener, "sshd")
        send(signal.SIGKILL, served, "connection")
        time.sleep(seconds)
        send(signal.SIGCONT, listener, "sshd")
        return at

    return plant


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


# ---- before the launch --------------------------------------------------------------------


def small_disk(node: str) -> Prepare:
    """Mount a disk of a megabyte on one node, by root."""

    def prepare(site: Site) -> Callable[[], None]:
        script = f"mkdir -p {FULL} && mount -t tmpfs -o size=1m tmpfs {FULL}"
        inside(site, node, script)
        return lambda: inside(site, node, f"umount {FULL}")

    return prepare


def inside(site: Site, node: str, script: str) -> None:
    """Run a shell script by root in the mounts of a node; raises CalledProcessError."""
    target = str(site.first_process(node))
    argv = ("nsenter", "-t", target, "-m", "-p", "sh", "-c", script)
    subprocess.run(argv, check=True, timeout=_LIMIT, capture_output=True)


def program_at_home(text: str, nodes: tuple[str, ...]) -> Prepare:
    """Copy the program only to the home folders of these nodes."""

    def prepare(site: Site) -> Callable[[], None]:
        places = [home(site, node) / PROGRAM for node in nodes]
        for place in places:
            place.write_text(text)
            place.chmod(0o755)
        return lambda: _remove(places)

    return prepare


def _remove(files: Iterable[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def home(site: Site, node: str) -> Path:
    """The home folder of a virtual node, as this machine sees it."""
    return next(p for p in site.folder("-", node).parents if p.name == node) / "home"


def busy_port(port: int) -> Prepare:
    """Listen on a port of this machine, which the virtual nodes share."""

    def prepare(site: Site) -> Callable[[], None]:
        del site
        listener = socket.socket(socket.AF_INET6)
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::", port))
        listener.listen()
        return listener.close

    return prepare


# ---- what is lacking ----------------------------------------------------------------------


def need(*programs: str) -> Callable[[], str]:
    """Names the programs that are missing here."""

    def lacking() -> str:
        missing = [one for one in programs if not shutil.which(one)]
        return f"needs {', '.join(missing)}" if missing else ""

    return lacking


def need_modules(*modules: str) -> Callable[[], str]:
    """Names the modules that the ranks, which run in our own environment, would not find."""

    def lacking() -> str:
        missing = [one for one in modules if find_spec(one) is None]
        return f"needs {', '.join(missing)} of PyPI" if missing else ""

    return lacking


def need_root() -> str:
    return "" if os.getuid() == 0 else "needs root: mounts a disk on a node"


need_torch = need_modules("torch")


def need_torch_and_root() -> str:
    return need_torch() or need_root()


# ---- the OOM killer -----------------------------------------------------------------------

MEMORY = 96 << 20


def _memory_group() -> Path | None:
    """A control group v2 in which we may limit memory; None if there is none."""
    mine = Path("/proc/self/cgroup").read_text().splitlines()
    path = next((line[3:] for line in mine if line.startswith("0::")), "")
    own = Path("/sys/fs/cgroup") / path.strip("/")
    try:
        given = (own / "cgroup.subtree_control").read_text().split()
    except OSError:
        return None
    return own if "memory" in given and os.access(own, os.W_OK) else None


def need_memory_group() -> str:
    return "" if _memory_group() else "needs a control group v2 that may limit memory"


def starve(rank: int) -> Plant:
    """Put a rank into a group with little memory: the program then takes more, and is killed."""

    def plant(site: Site, job: str) -> None:
        parent = _memory_group()
        victim = next(one for one in processes(job) if one.rank == rank)
        assert parent is not None
        group = parent / f"rankdeck-bench-{victim.pid}"
        group.mkdir()
        (group / "memory.max").write_text(str(MEMORY))
        (group / "cgroup.procs").write_text(str(victim.pid))
        (site.folder(job, victim.node) / "hungry").touch()

    return plant


# ---- CPU quotas ---------------------------------------------------------------------------

_QUOTAS: list[Path] = []
"""Control groups that were made here and not removed yet."""


def limit_cpu(rank: int, share: float) -> Plant:
    """Give the program of a rank `share` of a core, by a control group."""

    def plant(site: Site, job: str) -> float:
        pids = rank_of(rank)(site, job)
        _QUOTAS.append(cpu_quota.limit_cpu(pids, share, f"rankdeck-bench-{job}"))
        return time.time()

    return plant


_HOGS: list[subprocess.Popen[bytes]] = []
"""Processes that take the core of a rank, and were not ended yet."""
_HOG_LIMIT = 200
"""Seconds of CPU time after which each ends by itself."""


def crowd_core(rank: int, hogs: int) -> Plant:
    """Have other processes share the core of a rank's program, which is its own before; the other
    ranks keep to the other cores.
    """

    def plant(site: Site, job: str) -> float:
        del site
        *free, own = sorted(os.sched_getaffinity(0))
        for one in processes(job):
            if one.rank is not None:
                for thread in Path(f"/proc/{one.pid}/task").iterdir():
                    os.sched_setaffinity(int(thread.name), {own} if one.rank == rank else free)
        # The limit is for hogs of a benchmark that was killed.
        burn = f"ulimit -t {_HOG_LIMIT}; while :; do :; done"
        loop = ["taskset", "-c", str(own), "sh", "-c", burn]
        # Of a session of its own, each counts as much for the scheduler as the whole job.
        _HOGS.extend(subprocess.Popen(loop, start_new_session=True) for _ in range(hogs))
        return time.time()

    return plant


def without_hogs(site: Site) -> Callable[[], None]:
    """End the processes of `crowd_core` after the run."""
    del site

    def undo() -> None:
        while _HOGS:
            one = _HOGS.pop()
            one.kill()
            one.wait()

    return undo


def need_torch_and_cores() -> str:
    return need_torch() or ("" if len(os.sched_getaffinity(0)) > 1 else "needs two cores")


def without_quotas(site: Site) -> Callable[[], None]:
    """Remove the groups of `limit_cpu` after the run."""
    del site

    def undo() -> None:
        while _QUOTAS:
            cpu_quota.release(_QUOTAS.pop())

    return undo
