"""How a process of a job is started: its environment, its folder, and why it cannot be."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from rankdeck_agent.job import cgroup
from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.wire import (
    JOB_VARIABLE,
    NODE_VARIABLE,
    RUN_VARIABLE,
    NodePlan,
    ProcessPlan,
)

RANK_VARIABLE = "RANKDECK_RANK"
NOT_STARTED = 127
"""The exit code of a program that could not be started, as a shell gives it."""


JOB_UMASK = 0o022
"""What a job makes is as after a login, not private as what is ours."""


class StartError(Exception):
    """A process that cannot be started; the text is a sentence."""


@dataclass(frozen=True)
class Command:
    """All that is needed to start a process."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str


def environment(plan: NodePlan, folder: RunFolder, extra: Mapping[str, str]) -> dict[str, str]:
    """The login environment, the plan's over it, our marks over both."""
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    for name, value in {**plan.env, **extra}.items():
        env[name] = folder.plan_text(value)
    env.update(
        {
            JOB_VARIABLE: plan.job,
            NODE_VARIABLE: plan.node,
            RUN_VARIABLE: str(folder.path),
        }
    )
    env.pop(RANK_VARIABLE, None)
    return env


def planned(plan: NodePlan, folder: RunFolder, process: ProcessPlan) -> Command:
    """What to start for one process of the plan; raises StartError where it cannot be."""
    env = environment(plan, folder, process.env)
    argv = tuple(folder.plan_text(argument) for argument in process.argv)
    cwd = str(Path(folder.plan_text(process.cwd) or "~").expanduser())
    if not argv:
        raise StartError(f"{process.name} has no command")
    if not Path(cwd).is_dir():
        raise StartError(f"{process.name} cannot start: there is no folder {cwd} on {plan.node}")
    _find(
        argv[0],
        env,
        cwd,
        f"{process.name} cannot start: no program {argv[0]} on {plan.node}",
    )
    if process.rank is None:
        return Command(argv, env, cwd)
    env[RANK_VARIABLE] = str(process.rank)
    return Command((str(folder / "rank-shim"), *argv), env, cwd)


def _find(program: str, env: Mapping[str, str], cwd: str, complaint: str) -> None:
    if "/" in program:
        path = Path(cwd) / program
        found = path.is_file() and os.access(path, os.X_OK)
        hint = "" if not path.is_file() else ": the file is not executable"
    else:
        found = shutil.which(program, path=env.get("PATH", os.defpath)) is not None
        hint = f" in PATH {env.get('PATH', os.defpath)}"
    if not found:
        raise StartError(complaint + hint)


def start(
    command: Command, outputs: tuple[int, int], group: Optional[Path]
) -> "subprocess.Popen[bytes]":
    """A running process in a session of its own; raises StartError."""
    try:
        return subprocess.Popen(
            command.argv,
            env=dict(command.env),
            cwd=command.cwd,
            stdin=subprocess.DEVNULL,
            stdout=outputs[0],
            stderr=outputs[1],
            start_new_session=True,
            umask=JOB_UMASK,
            preexec_fn=None if group is None else lambda: cgroup.join(group),
        )
    except (OSError, ValueError) as error:
        raise StartError(f"{command.argv[0]} cannot start: {error}") from error
