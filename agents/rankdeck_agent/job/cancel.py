"""`job cancel`: SIGTERM, wait, SIGKILL, look again, and report what is left."""

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable

from rankdeck_agent.container_engines import ENGINES
from rankdeck_agent.job import cgroups, orders, processes
from rankdeck_agent.job.folder import RunFolder, all_events, forbid_start, is_closed, wait_until
from rankdeck_agent.job.layout import unlink_links
from rankdeck_agent.job.process_chains import Left, end_below, end_marked
from rankdeck_agent.job.processes import Process
from rankdeck_agent.job.resuming import stop_resuming
from rankdeck_agent.job.supervisor_state import (
    close_for,
    is_starting,
    is_supervised,
    killed_supervisor,
    supervisor_pid,
)
from rankdeck_agent.schedulers.job_scheduler import find_scheduler
from rankdeck_agent.text import plain_line
from rankdeck_agent.values import Record, field
from rankdeck_agent.wire.job_events import ASKERS, Trouble


def run_limited(argv: tuple[str, ...], limit: float) -> tuple[str, str]:
    """Run a command for at most `limit` seconds: (why it failed or "", what
    it wrote to stdout in either case).
    """
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=limit, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return plain_line(str(error), 200), ""
    wrote = done.stdout.decode("utf-8", "replace").strip()
    stderr = plain_line(done.stderr.decode("utf-8", "replace").strip(), 200)
    return (stderr or f"exit {done.returncode}") if done.returncode else "", wrote


_LIMIT = 20.0
"""Seconds for all containers of a runtime: Podman alone waits 5 for a
container whose conmon was killed.
"""
_PAUSE = 0.2


def remove_containers(folder: RunFolder) -> list[dict[str, Any]]:
    """Remove every container that the job made on this node; returns what
    could not be removed, as rows of `left`.

    A rank that starts a container leaves the file `container.<runtime>` in the run folder, and the
    container has the folder's path as a label. A file with the container's id would not be enough:
    when Podman removes a container it deletes that file first, and may be killed before it has
    removed the rest.
    """
    used = [name for name in ENGINES if (folder / f"container.{name}").exists()]
    kept = [(name, _clear(name, folder)) for name in used]
    return [{"pid": 0, "command": f"{name} containers: {why}"} for name, why in kept if why]


def _clear(runtime: str, folder: RunFolder) -> str:
    """Remove the containers of one runtime; returns why some are left, or "".

    Locked, because two `podman rm` at once fail. Tried again, because Podman's first answer about
    a container whose conmon was killed is an error.
    """
    deadline = time.monotonic() + _LIMIT
    look = ("ps", "--all", "--quiet", "--filter", f"label=rankdeck.run={folder.path}")
    with (folder / f"container.{runtime}").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        while True:
            why, ids = _run((runtime, *look), deadline)
            if not why and not ids:
                return ""
            if ids:
                why, _ = _run((runtime, *ENGINES[runtime], *ids), deadline)
            if time.monotonic() >= deadline:
                return why or " ".join(ids)
            time.sleep(_PAUSE)


def _run(argv: tuple[str, ...], deadline: float) -> tuple[str, list[str]]:
    """Run a command until `deadline` at most: (why it failed or "", the
    words of its output if it did not).
    """
    why, wrote = run_limited(argv, max(1.0, deadline - time.monotonic()))
    return why, [] if why else wrote.split()


_POLL = 0.05
_PROOF = 2.0
_GLANCE, _CHAINS = 0.5, 5.0
"""Seconds to check that no process is below the supervisor, and to end chains
of processes there (job/processes.py).
"""
_BEGIN = 10.0
_RECORDED = 0.5
_CARE = 5.0
_ENDED_TOO = "the supervisor of this node ended while the job was being cancelled"
_STUCK = f"the supervisor had not written the end of the job {_PROOF:g} s after its last process had ended: it was killed"
_CONTAINER_PROGRAMS = frozenset({"conmon", "podman", "crun", "runc", "fuse-overlayfs"})
"""Programs that remove a container when its program has ended; Podman
takes long if they are killed too.
"""


class _Search(Record):
    """The processes of one cancel: all that were ever seen, with
    start times in case a pid is reused.
    """

    folder: RunFolder
    supervisor: int
    seen: dict[int, Process] = field(default_factory=dict[int, Process])

    def look(self) -> dict[int, Process]:
        """The processes of the job that run now, by pid."""
        found = processes.find_job_processes(self.folder.job, self.folder.node, self.supervisor)
        for pid, row in self.seen.items():
            # A process that has lost its marks and its parent since then still belongs to the job.
            if pid not in found and processes.is_alive(pid, row.start):
                found[pid] = row
        self.seen.update(found)
        return found

    def wait(self, limit: float, each: Callable[[dict[int, Process]], None]) -> dict[int, Process]:
        """Wait at most `limit` seconds for all to end; returns those that run.

        Calls `each` with them at every look.
        """
        deadline = time.monotonic() + limit
        while True:
            found = self.look()
            if not found or time.monotonic() >= deadline:
                return found
            each(found)
            time.sleep(_POLL)

    def kill(self, rows: dict[int, Process]) -> None:
        """Send SIGKILL to these and to their process groups, except groups
        of programs that remove containers.
        """
        processes.signal_processes(rows, rows, signal.SIGKILL)
        others = {row.pgid for row in self.seen.values() if row.name in _CONTAINER_PROGRAMS}
        supervisor = processes.find_process(self.supervisor)
        keep = {os.getpgrp(), supervisor.pgid if supervisor else 0, *others}
        processes.kill_groups(rows.values(), keep)

    def runs_on(self) -> bool:
        """Whether anything of the job runs, even if it ends before it can be looked at."""
        return cgroups.is_cgroup_populated(self.folder) or bool(self._below(_GLANCE, 0))

    def end_chains(self) -> Left:
        """Kill processes that no look has found; returns those that would not end."""
        return self._below(_CHAINS, signal.SIGKILL)

    def _below(self, limit: float, number: int) -> Left:
        spare, supervisor = (
            processes.own_line(processes.list_processes()),
            supervisor_pid(self.folder),
        )
        if supervisor:
            return end_below(supervisor, spare, limit, number)
        # Orphans became children of one of our own ancestors, or of a parent that was seen.
        adopters = spare | {row.ppid for row in self.seen.values()} - self.seen.keys() - {0}
        return end_marked(self.folder.job, self.folder.node, adopters, limit, number)

    def answer(self, left: Left, kept: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
        """The answer for the console: `left` (rows of processes and other
        things) and `ended` (how many processes).
        """
        pids = {row["pid"] for row in left}
        return {"left": [*left, *kept], "ended": len(self.seen.keys() - pids)}


def end_node_processes(
    folder: RunFolder, grace: float, by: str = ASKERS[0], tasks: str = ""
) -> dict[str, Any]:
    """End every process of the job on this node; returns `left`, what did not
    end, and `ended`, how many processes did.

    `unknown` are processes that may be of the job, if its supervisor was killed: see `_nobodys`.
    `grace`: seconds from SIGTERM to SIGKILL. `by`, one of ASKERS, is recorded in the events.
    `tasks` (`3,5-7`) are the tasks of a Slurm array job to end; "" for all. A job that was never
    started here, or whose run folder was removed, cannot be started here from now on: `there` False
    says so, and its processes are found by their marks.
    """
    if forbid_start(folder, _BEGIN):
        search = _Search(folder, 0)
        return {**search.answer(_end(search, set(), set(), grace)), "there": False}

    # While the supervisor is being started it cannot be reached, and its ranks cannot be found.
    wait_until(lambda: not is_starting(folder), _BEGIN)
    scheduler = find_scheduler(folder)
    ended = scheduler.cancel(grace, by, tasks)
    if ended is not None:
        return ended

    stop_resuming(folder)
    search, began = _Search(folder, supervisor_pid(folder)), killed_supervisor(folder)
    if search.supervisor:
        orders.tell_of_cancel(folder, grace, by)
    left = _end(search, *_recorded(folder), grace + scheduler.SLACK)
    kept = [*remove_containers(folder), *scheduler.end_left(grace)]
    _let_close(search, bool(left))
    unknown = [] if began is None else _nobodys(began)
    return {**search.answer(left, kept), "unknown": unknown}


def _recorded(folder: RunFolder) -> tuple[set[int], set[int]]:
    """Pids of the launchers and of the rank programs that have not
    ended, according to the events.
    """
    running: dict[Any, int] = {}
    for event in all_events(folder.events):
        kind = event["kind"]
        if kind in ("started", "process"):
            running[event.get("rank", event.get("name"))] = int(event.get("pid", 0))
        elif kind in ("exited", "ended"):
            running.pop(event.get("rank", event.get("name")), None)
    ranks = {pid for key, pid in running.items() if isinstance(key, int)}
    daemons = {pid for key, pid in running.items() if str(key).startswith("daemon ")}
    return set(running.values()) - ranks - daemons, ranks


def _end(search: _Search, launchers: set[int], ranks: set[int], grace: float) -> Left:
    """SIGTERM, the grace period, SIGKILL; returns what did not end."""
    found = search.look()
    processes.signal_processes(found, _to_ask(found, launchers, ranks), signal.SIGTERM)

    found = search.wait(grace, lambda _: None)
    if not found and not search.runs_on():
        return []

    _force(search, launchers, ranks)
    chains_left = search.end_chains()
    stay = search.wait(_PROOF, search.kill)
    named = {row["pid"] for row in chains_left}
    return chains_left + [processes.describe_left_process(stay[pid]) for pid in stay.keys() - named]


def _to_ask(found: dict[int, Process], launchers: set[int], ranks: set[int]) -> set[int]:
    """The pids that get SIGTERM: launchers, which pass it on; else the ranks and
    their process groups; else all processes.
    """
    alive = launchers & set(found)
    if alive:
        return alive
    programs = ranks & set(found)
    groups = {found[pid].pgid for pid in programs}
    return {pid for pid, row in found.items() if pid in programs or row.pgid in groups} or set(
        found
    )


def _force(search: _Search, launchers: set[int], ranks: set[int]) -> None:
    """SIGKILL, launchers last: a launcher killed first would orphan its ranks."""
    rows = _without_container_programs(search.look())
    daemons = {pid for pid in rows if processes.descendants_of(rows, (pid,)) & ranks}
    processes.signal_processes(rows, ranks & set(rows), signal.SIGKILL)

    # A moment in which shims can record how their ranks ended, before they are killed too.
    shims = {rows[pid].ppid for pid in ranks & set(rows)} & set(rows)
    wait_until(
        lambda: not any(processes.is_alive(pid, rows[pid].start) for pid in shims), _RECORDED
    )

    for group in (set(rows) - launchers - daemons, daemons - launchers):
        processes.signal_processes(rows, group, signal.SIGKILL)
    processes.signal_processes(rows, launchers & set(rows), signal.SIGKILL)
    search.kill(rows)
    search.wait(_CARE, lambda rows: search.kill(_without_container_programs(rows)))
    cgroups.kill_cgroup(search.folder)


def _without_container_programs(rows: dict[int, Process]) -> dict[int, Process]:
    return {pid: row for pid, row in rows.items() if row.name not in _CONTAINER_PROGRAMS}


def _let_close(search: _Search, left: bool) -> None:
    """Wait until the supervisor has closed the events; if it does not,
    kill it and close them on its behalf.

    Returns at once if `left` or if this process is the supervisor's
    child: then the supervisor goes on.
    """
    events = search.folder.events
    deadline = time.monotonic() + _PROOF
    while search.supervisor and supervisor_pid(search.folder) and time.monotonic() < deadline:
        if left or os.getppid() == search.supervisor:
            return
        time.sleep(_POLL)
    if not is_closed(events):
        stuck = supervisor_pid(search.folder)
        if stuck:
            os.kill(stuck, signal.SIGKILL)
        # Only one that was gone before the cancel may be the reason why the job failed.
        why = _STUCK if stuck else _ENDED_TOO if search.supervisor else ""
        close_for(search.folder, Trouble(why) if why else None)
    if not left and not is_supervised(search.folder):
        unlink_links(search.folder)
        cgroups.remove_cgroup(search.folder)


def _nobodys(began: int) -> Left:
    """Processes of this user that began after the supervisor that was killed,
    and of which nothing says whose they are.

    A program may leave its control groups and its parents, empty its environment and reset its
    limits, which root may. While the supervisor runs it sees each of them; afterwards only this
    says that one may be left. `began`: clock ticks since boot.
    """
    rows = processes.list_processes()
    line = processes.own_line(rows)
    return [
        processes.describe_left_process(row)
        for pid, row in rows.items()
        if row.start >= began and row.ppid in line and pid not in line and _has_no_name(pid)
    ]


def _has_no_name(pid: int) -> bool:
    """Whether this process is of this user and has emptied its
    environment; False for threads of the kernel.
    """
    folder = Path("/proc", str(pid))
    try:
        mine = folder.stat().st_uid == os.geteuid()
        return mine and not (folder / "environ").read_bytes() and bool(processes.command_line(pid))
    except OSError:
        return False
