"""Starts the processes of a job: environment, command, and why one cannot be started."""

import contextlib
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Optional

from rankdeck_agent import AGENT_TOKEN, RANK_VARIABLE
from rankdeck_agent.job import cgroups, processes
from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.values import Value
from rankdeck_agent.wire import JOB_VARIABLE, NODE_VARIABLE, RUN_VARIABLE, NodePlan, ProcessPlan
from rankdeck_agent.wire.run_folder import SHIM

NOT_FOUND, NOT_EXECUTABLE, NOT_STARTED = 127, 126, 125
"""Exit codes of a program that could not be started, as shells and `env` give them."""
_CODES = {errno.ENOENT: NOT_FOUND, errno.EACCES: NOT_EXECUTABLE, errno.ENOEXEC: NOT_EXECUTABLE}
JOB_UMASK = 0o022
"""umask of the job's processes, as after a login; our own files are private."""


class StartError(Exception):
    """A process cannot be started; the text is a sentence, `code` the
    exit code that a shell would give.
    """

    def __init__(self, text: str, code: int = NOT_STARTED) -> None:
        super().__init__(text)
        self.code = code


class StartCommand(Value):
    """Everything needed to start a process."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    by_shim: bool = False
    """Whether the rank shim runs it, which enters the cgroup by itself."""


def process_environment(
    plan: NodePlan, folder: RunFolder, extra: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a process: our own (that of the login), overridden by
    the plan's and `extra`, plus our marks.
    """
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    for name, value in {**plan.env, **extra}.items():
        env[name] = folder.plan_text(value)
    env.update({JOB_VARIABLE: plan.job, NODE_VARIABLE: plan.node, RUN_VARIABLE: str(folder.path)})
    env.pop(RANK_VARIABLE, None)
    return env


def planned_command(plan: NodePlan, folder: RunFolder, process: ProcessPlan) -> StartCommand:
    """The command that starts one process of the plan (ranks through
    the rank shim); raises StartError.
    """
    env = process_environment(plan, folder, process.env)
    argv = tuple(folder.plan_text(argument) for argument in with_agent(process.argv))
    cwd = str(Path(folder.plan_text(process.cwd) or "~").expanduser())
    if not argv:
        raise StartError(f"{process.name} has no command")
    if not Path(cwd).is_dir():
        raise StartError(f"{process.name} cannot start: there is no folder {cwd} on {plan.node}")
    _find(argv[0], env, cwd, f"{process.name} cannot start: no program {argv[0]} on {plan.node}")
    if process.rank is None:
        return StartCommand(process.name, argv, env, cwd)
    env[RANK_VARIABLE] = str(process.rank)
    return StartCommand(process.name, (str(folder / SHIM), *argv), env, cwd, by_shim=True)


def with_agent(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Replace AGENT_TOKEN by the Python and the agent file that run now."""
    if argv[:1] != (AGENT_TOKEN,):
        return argv
    return (sys.executable, str(Path(sys.argv[0]).absolute()), *argv[1:])


def _find(program: str, env: Mapping[str, str], cwd: str, complaint: str) -> None:
    if "/" in program:
        path = Path(cwd) / program
        found = path.is_file() and os.access(path, os.X_OK)
        code = NOT_EXECUTABLE if path.is_file() else NOT_FOUND
        hint = ": the file is not executable" if path.is_file() else ""
    else:
        found = shutil.which(program, path=env.get("PATH", os.defpath)) is not None
        code, hint = NOT_FOUND, f" in PATH {env.get('PATH', os.defpath)}"
    if not found:
        raise StartError(complaint + hint, code)


def start_process(
    command: StartCommand, outputs: tuple[int, int], group: Optional[Path]
) -> "subprocess.Popen[bytes]":
    """Start a process in a session of its own, marked and in the cgroup `group`; raises StartError.

    `outputs` are the descriptors for stdout and stderr.
    """
    # With a function to call in the child, Python copies the whole supervisor for each start.
    enters = group is not None and not command.by_shim
    mark = processes.mark_of(command.env[JOB_VARIABLE], command.env[NODE_VARIABLE])
    try:
        with _as_process_of_job(mark):
            return subprocess.Popen(
                command.argv,
                env=dict(command.env),
                cwd=command.cwd,
                stdin=subprocess.DEVNULL,
                stdout=outputs[0],
                stderr=outputs[1],
                start_new_session=True,
                preexec_fn=(lambda: cgroups.enter_cgroup(group)) if enters else None,
            )
    except OSError as error:
        why = f"{command.name} cannot start: {error.strerror}"
        raise StartError(why, _CODES.get(error.errno or 0, NOT_STARTED)) from error
    except ValueError as error:
        raise StartError(f"{command.name} cannot start: {error}") from error


@contextlib.contextmanager
def _as_process_of_job(mark: int) -> Generator[None, None, None]:
    """Have the umask and the mark of the job's processes, for a child to inherit.

    A cancel that looks meanwhile spares the supervisor by its pid.
    """
    umask = os.umask(JOB_UMASK)
    before = processes.take_mark(mark)
    try:
        yield
    finally:
        processes.take_mark(before)
        os.umask(umask)
