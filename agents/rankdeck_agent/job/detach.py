"""`job run`: read a plan from stdin and start a supervisor that is detached from SSH; with `--each` one after the other."""

import contextlib
import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from rankdeck_agent.files import readable
from rankdeck_agent.job import processes
from rankdeck_agent.job.folder import FolderError, FolderThereError, RunFolder
from rankdeck_agent.job.journal import post_mortem, table
from rankdeck_agent.job.starting import make, unlink_links
from rankdeck_agent.job.supervisor import Supervisor
from rankdeck_agent.job.supervisor_state import note_supervisor, resuming, supervisor_pid
from rankdeck_agent.wire import RUN_VARIABLE, NodePlan, WireError, node_plan

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_DUMPABLE = 4
_READY_LIMIT = 30.0
_LONGEST_PLAN = 64 << 20


def run() -> int:
    """Start the job whose plan is on stdin; print one line of JSON that says whether it runs."""
    return _run(sys.stdin.buffer.read(_LONGEST_PLAN))


def run_each() -> int:
    """Start the job of each line of stdin, until that ends; answers as `run` does, a line each.

    One job more costs a fork then, instead of a login and a start of Python.
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
            _say({"ok": False, "error": "what was to start the job ended before it had"})
    return 0


def _run(text: bytes) -> int:
    try:
        plan = _plan(text)
        folder = make(plan)
    except FolderThereError as error:
        return _say({"ok": False, "error": str(error), "there": True})
    except (WireError, FolderError, OSError) as error:
        return _say({"ok": False, "error": str(error)})
    said = _start_apart(plan, folder)
    if not said.isdigit():
        _write_off(folder, said)
        return _say({"ok": False, "error": said or "the supervisor did not start"})
    return _say({"ok": True, "pid": int(said)})


def resume(folder: RunFolder) -> bool:
    """Start another supervisor for a job that goes on without its own; False where none could be started.

    Where somebody else does so or ends the job at this moment, nothing is done, and True is returned.
    """
    with resuming(folder) as mine:
        if not mine or supervisor_pid(folder):
            return True
        try:
            plan = _plan((folder / "plan.json").read_bytes())
        except (WireError, OSError):
            return False
        _end_writers(folder)
        return _start_apart(plan, folder).isdigit()


def _end_writers(folder: RunFolder) -> None:
    """End a launcher that outlived its supervisor: it would write the same files.

    Pods of the job may run on this machine too; they have a folder of their own.
    """
    for row in processes.belonging(folder.job, folder.node, 0).values():
        writes_to = processes.environment(row.pid, (RUN_VARIABLE,)).get(RUN_VARIABLE)
        if writes_to == str(folder.path):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(row.pid, signal.SIGKILL)


def _plan(data: bytes) -> NodePlan:
    raw = table(data.decode("utf-8", "replace"))
    if raw is None:
        raise WireError("bad plan: not a JSON object")
    plan = node_plan(raw)
    if len(set(plan.ranks)) != len(plan.ranks) or any(rank < 0 for rank in plan.ranks):
        raise WireError("bad plan: ranks must be different numbers from 0")
    if any(process.rank not in (None, *plan.ranks) for process in plan.processes):
        raise WireError("bad plan: a process has a rank that is not of this node")
    return plan


def _say(answer: dict[str, Any]) -> int:
    print(json.dumps(answer), flush=True)
    return 0 if answer["ok"] else 1


def _write_off(folder: RunFolder, why: str) -> None:
    trouble = [{"kind": "trouble", "text": why}] if why else []
    post_mortem(folder / "events", trouble)
    unlink_links(folder)


def _start_apart(plan: NodePlan, folder: RunFolder) -> str:
    """Fork twice; the pid of the supervisor, or why there is none."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            _live(plan, folder, writing)
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    ready = readable([reading], _READY_LIMIT)
    said = (
        os.read(reading, 4096).decode("utf-8", "replace")
        if ready
        else "no answer from the supervisor"
    )
    os.close(reading)
    return said


def _live(plan: NodePlan, folder: RunFolder, ready: int) -> None:
    """The supervisor's whole life; never returns."""
    status = 1
    try:
        _let_go(folder, ready)
        note_supervisor(folder)
        supervisor = Supervisor(plan, folder)
        supervisor.run(lambda: _announce(ready, str(os.getpid())))
        status = 0
    except OSError as error:
        print(
            f"the supervisor of {plan.node} failed: {error}",
            file=sys.stderr,
            flush=True,
        )
        _announce(ready, f"the supervisor could not start: {error}")
    finally:
        os._exit(status)


def _announce(ready: int, text: str) -> None:
    try:
        os.write(ready, text.encode())
        os.close(ready)
    except OSError:
        return  # said before, or nobody waits any more


def _let_go(folder: RunFolder, keep: int) -> None:
    """Detach from SSH: its descriptors, signals, working directory and process tree."""
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(folder / "supervisor.err", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for target, source in ((0, null), (1, null), (2, log)):
        os.dup2(source, target)
    for fd in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if fd > 2 and fd != keep:
            _close_quietly(fd)
    for number in (
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGPIPE,
        signal.SIGTERM,
    ):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.chdir("/")
    system = ctypes.CDLL(None, use_errno=True)
    system.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Our memory has the variables of the job. The ranks keep the limit that their login has.
    system.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _close_quietly(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        return  # the one that listed the folder
