"""Starts the supervisor of a job on this node, in a session of its own, and another one
where it was killed.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from rankdeck_agent.descriptors import wait_readable
from rankdeck_agent.job import processes
from rankdeck_agent.job.black_box import BlackBox
from rankdeck_agent.job.daily_clean import clean_daily
from rankdeck_agent.job.folder import FolderError, FolderThereError, RunFolder, post_mortem
from rankdeck_agent.job.layout import make_run_folder, unlink_links
from rankdeck_agent.job.network import NetworkError, fill_network
from rankdeck_agent.job.process_chains import adopt_orphans
from rankdeck_agent.job.resuming import hold_resume_lock
from rankdeck_agent.job.supervisor import Supervisor
from rankdeck_agent.job.supervisor_state import is_supervised, note_supervisor
from rankdeck_agent.logout import leave_session
from rankdeck_agent.text import parse_json_table, print_json_line
from rankdeck_agent.wire import RUN_VARIABLE, NodePlan, WireError, node_plan
from rankdeck_agent.wire.job_events import JobEvent, Trouble
from rankdeck_agent.wire.run_folder import SUPERVISOR_LOG

_PR_SET_DUMPABLE = 4
_READY_LIMIT = 30.0
_LONGEST_PLAN = 64 << 20


def start_job() -> int:
    """Start the job whose plan is on stdin; print one line of JSON: {"ok": true,
    "pid": …} or {"ok": false, "error": …}.
    """
    return _run(sys.stdin.buffer.read(_LONGEST_PLAN))


def run_each() -> int:
    """Start one job for each line of stdin until it ends; answers
    each with a line as `start_job` does.

    Each further job costs a fork instead of a login and a start of Python.
    """
    for line in iter(lambda: sys.stdin.buffer.readline(_LONGEST_PLAN), b""):
        child = os.fork()
        if child == 0:
            status = 2
            try:
                status = _run(line)
            finally:
                os._exit(status)
        if os.waitpid(child, 0)[1] not in (0, 1 << 8):
            print_json_line({"ok": False, "error": "what was to start the job ended before it had"})
    return 0


def _run(text: bytes) -> int:
    """Start the job of this plan, and answer with a line."""
    try:
        plan, warning = fill_network(_plan(text))
        folder = make_run_folder(plan)
    except FolderThereError as error:
        return print_json_line({"ok": False, "error": str(error), "there": True})
    except (WireError, FolderError, NetworkError, OSError) as error:
        return print_json_line({"ok": False, "error": str(error)})

    answer = _start_apart(plan, folder, warning)
    if not answer.isdigit():
        trouble = [JobEvent(round(time.time(), 6), Trouble(answer))] if answer else []
        post_mortem(folder.events, trouble)
        unlink_links(folder)
        return print_json_line({"ok": False, "error": answer or "the supervisor did not start"})

    print_json_line({"ok": True, "pid": int(answer)})
    clean_daily()
    return 0


def resume_supervisor(folder: RunFolder) -> bool:
    """Start another supervisor for a job that still runs without
    one; False if none could be started.

    Does nothing and returns True if another process is doing so, or is ending the job.
    """
    with hold_resume_lock(folder) as mine:
        if not mine or is_supervised(folder):
            return True
        try:
            plan = _plan(folder.plan.read_bytes())
        except (WireError, OSError):
            return False
        _end_writers(folder)
        return _start_apart(plan, folder).isdigit()


def _end_writers(folder: RunFolder) -> None:
    """Kill a launcher that outlived its supervisor: it would write the same files.

    Pods of the job that run on this machine have another run folder and are spared.
    """
    for row in processes.find_job_processes(folder.job, folder.node, 0).values():
        writes_to = processes.read_environment(row.pid, (RUN_VARIABLE,)).get(RUN_VARIABLE)
        if writes_to == str(folder.path):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(row.pid, signal.SIGKILL)


def _plan(data: bytes) -> NodePlan:
    plan = node_plan(parse_json_table(data.decode("utf-8", "replace")))
    if len(set(plan.ranks)) != len(plan.ranks) or any(rank < 0 for rank in plan.ranks):
        raise WireError("bad plan: ranks must be different numbers from 0")
    if any(process.rank not in (None, *plan.ranks) for process in plan.processes):
        raise WireError("bad plan: a process has a rank that is not of this node")
    return plan


def _start_apart(plan: NodePlan, folder: RunFolder, warning: str = "") -> str:
    """Start the supervisor in a session of its own (double fork); returns its
    pid as text, or why it did not start. `warning` goes to the events of the job.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            _live(plan, folder, writing, warning)
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    ready = wait_readable([reading], _READY_LIMIT)
    answer = (
        os.read(reading, 4096).decode("utf-8", "replace")
        if ready
        else "no answer from the supervisor"
    )
    os.close(reading)
    return answer


def _live(plan: NodePlan, folder: RunFolder, ready: int, warning: str) -> None:
    """The supervisor's whole life; never returns."""
    status = 1
    try:
        _let_go(folder, ready)
        note_supervisor(folder)
        warnings = (leave_session(plan.job), warning)
        box = BlackBox(folder, plan.ranks, here=not plan.elsewhere)
        box.start()
        adopt_orphans()
        supervisor = Supervisor(plan, folder, "; ".join(filter(None, warnings)), box)
        supervisor.run(lambda: _announce(ready, str(os.getpid())))
        status = 0
    except OSError as error:
        print(f"the supervisor of {plan.node} failed: {error}", file=sys.stderr, flush=True)
        _announce(ready, f"the supervisor could not start: {error}")
    finally:
        os._exit(status)


def _let_go(folder: RunFolder, keep: int) -> None:
    """Detach from SSH: its descriptors, signals and working directory."""
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(folder / SUPERVISOR_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for target, source in ((0, null), (1, null), (2, log)):
        os.dup2(source, target)
    for fd in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if fd > 2 and fd != keep:
            with contextlib.suppress(OSError):  # the one that listed the folder is closed already
                os.close(fd)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.chdir("/")
    # No core dump: our memory has the job's variables. The ranks keep the limit of their login.
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _announce(ready: int, text: str) -> None:
    with contextlib.suppress(OSError):  # already announced, or nobody waits any more
        os.write(ready, text.encode())
        os.close(ready)
