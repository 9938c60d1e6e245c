"""Lays out the run folder and starts the processes of a job: scripts, environment, working directory."""

import errno
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Optional

from rankdeck_agent.files import private_folder, unwritable, write_private
from rankdeck_agent.job import processes
from rankdeck_agent.job.folder import FolderError, FolderThereError, RunFolder, run_folder
from rankdeck_agent.job.supervisor_state import note_starter
from rankdeck_agent.names import AGENT_TOKEN
from rankdeck_agent.wire import (
    JOB_VARIABLE,
    NODE_VARIABLE,
    RUN_VARIABLE,
    NodeFile,
    NodePlan,
    ProcessPlan,
)

RANK_VARIABLE = "RANKDECK_RANK"
NOT_FOUND, NOT_EXECUTABLE, NOT_STARTED = 127, 126, 125
"""Exit codes of a program that could not be started, as shells and `env` give them."""
_CODES = {errno.ENOENT: NOT_FOUND, errno.EACCES: NOT_EXECUTABLE, errno.ENOEXEC: NOT_EXECUTABLE}

JOB_UMASK = 0o022
"""Files of a job get the usual permissions of a login; our own files are private."""


class StartError(Exception):
    """A process that cannot be started; the text is a sentence."""

    def __init__(self, text: str, code: int = NOT_STARTED) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class StartCommand:
    """All that is needed to start a process."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str


def environment(plan: NodePlan, folder: RunFolder, extra: Mapping[str, str]) -> dict[str, str]:
    """The login environment, the plan's over it, our marks over both."""
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    for name, value in {**plan.env, **extra}.items():
        env[name] = folder.plan_text(value)
    env.update({JOB_VARIABLE: plan.job, NODE_VARIABLE: plan.node, RUN_VARIABLE: str(folder.path)})
    env.pop(RANK_VARIABLE, None)
    return env


def planned(plan: NodePlan, folder: RunFolder, process: ProcessPlan) -> StartCommand:
    """What to start for one process of the plan; raises StartError where it cannot be."""
    env = environment(plan, folder, process.env)
    argv = tuple(folder.plan_text(argument) for argument in _with_agent(process.argv))
    cwd = str(Path(folder.plan_text(process.cwd) or "~").expanduser())
    if not argv:
        raise StartError(f"{process.name} has no command")
    if not Path(cwd).is_dir():
        raise StartError(f"{process.name} cannot start: there is no folder {cwd} on {plan.node}")
    _find(argv[0], env, cwd, f"{process.name} cannot start: no program {argv[0]} on {plan.node}")
    if process.rank is None:
        return StartCommand(process.name, argv, env, cwd)
    env[RANK_VARIABLE] = str(process.rank)
    return StartCommand(process.name, (str(folder / "rank-shim"), *argv), env, cwd)


def _with_agent(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Run a command of the agent with the file that runs now."""
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


def start(
    command: StartCommand, outputs: tuple[int, int], group: Optional[Path]
) -> "subprocess.Popen[bytes]":
    """A running process in a session of its own; raises StartError."""
    mark = processes.mark_of(command.env[JOB_VARIABLE], command.env[NODE_VARIABLE])
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
            preexec_fn=lambda: processes.enter(group, mark),
        )
    except OSError as error:
        why = f"{command.name} cannot start: {error.strerror}"
        raise StartError(why, _CODES.get(error.errno or 0, NOT_STARTED)) from error
    except ValueError as error:
        raise StartError(f"{command.name} cannot start: {error}") from error


RANK_SHIM = r"""#!/bin/sh
# rank-shim PROGRAM ARGS...: run one rank with its own terminal, files and exit record.
#
# The program is a foreground child in the shim's own process group, so a launcher that
# signals the group (mpirun, torchrun, srun, our supervisor) reaches it, and Ctrl-C keeps
# its meaning. A signal to the shim's pid alone is swallowed until the program ends: to
# forward it the program would have to run in the background, where POSIX makes a shell
# ignore INT and QUIT for it. No descriptor is kept open: PMI_FD may be any number.
rank=${RANKDECK_RANK:-${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-${RANK:-$SLURM_PROCID}}}}}
here=${0%/*}
run=
for folder in "$RANKDECK_RUN" "$here" "/tmp/rankdeck.$RANKDECK_JOB"/* "$here"/*; do
    if [ -n "$rank" ] && [ -d "$folder/rank.$rank" ] && [ -r "$folder/self" ]; then
        run=$folder
        break
    fi
done
if [ -z "$run" ]; then
    echo "rankdeck: no place for the output of rank '$rank'; it stays with the launcher" >&2
    exec "$@"
fi
# A launcher may have passed on the first node's folder and name: put our own.
{ read -r RANKDECK_RUN; read -r RANKDECK_JOB; read -r RANKDECK_NODE; } <"$run/self"
export RANKDECK_RUN RANKDECK_JOB RANKDECK_NODE
control=$RANKDECK_RUN/control
place=$RANKDECK_RUN/rank.$rank
out=$place/tty err=$place/fifo
read -r supervisor rest 2>/dev/null <"$RANKDECK_RUN/supervisor.pid"
if ! { [ -n "$supervisor" ] && kill -0 "$supervisor" 2>/dev/null && [ -w "$out" ] && [ -p "$err" ]; }; then
    out=$place/out err=$place/err
fi
trap : TERM INT USR1 USR2 HUP
# What we write is the user's alone; what the program makes is as its launcher has it.
mask=$(umask)
umask 077
host=${SLURMD_NODENAME:-$(uname -n)}
marks=$RANKDECK_RUN/marks/${SLURM_RESTART_COUNT:-0}
(
    umask "$mask"
    # In the child, so that a session leader does not make the tty its controlling one.
    read -r pid rest </proc/self/stat
    if [ -p "$err" ]; then
        [ ! -p "$control" ] || printf 'started %s %s %s\n' "$rank" "$pid" "$$" 1<>"$control"
    elif [ -d "${marks%/*}" ]; then
        : >"$marks.$rank.began.$pid.$host"
    else
        printf '%s\n' "$host" >"$place/started"
    fi
    exec "$@"
) >>"$out" 2>>"$err"
status=$?
[ ! -d "${marks%/*}" ] || : >"$marks.$rank.ended.$status"
printf '%s\n' "$status" >"$place/exit"
[ ! -p "$control" ] || printf 'exited %s %s\n' "$rank" "$status" 1<>"$control"
exit "$status"
"""

LAUNCH_AGENT = r"""#!/bin/sh
# launch-agent [SSH OPTIONS] HOST COMMAND...: have Rankdeck start an MPI daemon on HOST.
# mpirun takes our exit status 0 for "the daemon runs". The supervisor keeps the time.
run=${RANKDECK_RUN:-${0%/*}}
while [ $# -gt 0 ]; do
    case $1 in
    --) shift; break ;;
    -[BbcDEeFIiJLlmOopQRSWw]) shift; [ $# -eq 0 ] || shift ;;
    -*) shift ;;
    *) break ;;
    esac
done
if [ $# -lt 2 ]; then
    echo "rankdeck: launch-agent needs a host and a command" >&2
    exit 1
fi
host=${1##*@}
shift
read -r supervisor rest <"$run/supervisor.pid"
if ! kill -0 "$supervisor" 2>/dev/null; then
    echo "rankdeck: $host: no daemon started, the supervisor of this node is gone" >&2
    exit 1
fi
try=0 id=$$
until mkfifo -m 600 "$run/spawn/$id.reply" 2>/dev/null; do
    try=$((try + 1)) id=$$-$try
    if [ "$try" -gt 99 ]; then
        echo "rankdeck: $host: cannot write in $run/spawn" >&2
        exit 1
    fi
done
exec 4<>"$run/spawn/$id.reply"
printf '%s\n%s' "$host" "$*" >"$run/spawn/$id.ask" || exit 1
printf 'spawn %s\n' "$id" 1<>"$run/control"
read -r answer <&4
rm -f "$run/spawn/$id.reply" "$run/spawn/$id.ask"
[ "$answer" != ok ] || exit 0
echo "rankdeck: $host: $answer" >&2
exit 1
"""


def make(plan: NodePlan) -> RunFolder:
    """Lay out the run folder with all its files; raises FolderError and leaves nothing then."""
    folder = run_folder(plan.job, plan.node)
    try:
        private_folder(folder.path.parent.parent)
        private_folder(folder.path.parent)
        folder.path.mkdir(mode=0o700)
    except FileExistsError:
        why = f"job {plan.job} has been started on node {plan.node} before"
        raise FolderThereError(why) from None
    except OSError as error:
        raise FolderError(unwritable(folder.path.parent.parent, error)) from error
    try:
        _fill(folder, plan)
    except (OSError, FolderError) as error:
        unlink_links(folder)
        shutil.rmtree(folder.path, ignore_errors=True)
        if isinstance(error, FolderError):
            raise
        if isinstance(error, FileExistsError):
            why = f"{error.filename} is there already and is not ours: have its owner remove it"
            raise FolderError(why) from error
        raise FolderError(unwritable(_place_of(error, folder), error)) from error
    return folder


def _place_of(error: OSError, folder: RunFolder) -> Path:
    """The folder that cannot be written: that of the file in the error, otherwise the run folder."""
    return Path(os.fsdecode(error.filename)).parent if error.filename else folder.path


def _fill(folder: RunFolder, plan: NodePlan) -> None:
    _write(folder / "plan.json", json.dumps(asdict(plan), indent=1))
    _write(folder / "self", f"{folder.path}\n{plan.job}\n{plan.node}\n")
    _write(folder / "rank-shim", RANK_SHIM, program=True)
    for name in ("spawn", "launcher", *(f"rank.{rank}" for rank in plan.ranks)):
        (folder / name).mkdir(mode=0o700)
    for file in plan.files:
        path = _inside(folder, file)
        private_folder(path.parent)
        program = bool(file.mode & stat.S_IXUSR)
        _write(path, folder.plan_text(file.text), program=program)
    os.mkfifo(folder / "control", 0o600)
    _make_links(folder)
    note_starter(folder)
    _write(folder / "events", "")  # from now on others see the job


def _inside(folder: RunFolder, file: NodeFile) -> Path:
    path = Path(os.path.normpath(folder.path / file.path))
    if folder.path not in path.parents:
        raise FolderError(f"file {file.path!r} is outside the run folder")
    return path


def _write(path: Path, text: str, *, program: bool = False) -> None:
    write_private(path, text.encode(), program=program)


def _make_links(folder: RunFolder) -> None:
    links = folder.links
    links.mkdir(mode=0o700, exist_ok=True)
    if not _is_private(links):
        raise FolderError(f"{links} is not a private folder of this user")
    for name, script in (("rank", RANK_SHIM), ("launch-agent", LAUNCH_AGENT)):
        fresh = links / f".{name}.{os.getpid()}"
        _write(fresh, script, program=True)
        fresh.replace(links / name)
    for name in _link_names(folder):
        fresh = links / f".{name}.{os.getpid()}"
        fresh.symlink_to(folder.path)
        fresh.replace(links / name)


def _is_private(path: Path) -> bool:
    """Whether it is a folder of this user alone: another one may have been there before us."""
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid() and not seen.st_mode & 0o077


def _link_names(folder: RunFolder) -> tuple[str, ...]:
    """Host name and node name: virtual nodes of one machine share the first."""
    return tuple(dict.fromkeys((socket.gethostname(), folder.node)))


def unlink_links(folder: RunFolder) -> None:
    """Remove this node's links, and their folder with the last one; only where it is ours."""
    if not _is_private(folder.links):
        return
    for name in _link_names(folder):
        link = folder.links / name
        if link.is_symlink() and link.resolve() == folder.path.resolve():
            link.unlink()
    if not any(p.is_symlink() for p in folder.links.iterdir()):
        shutil.rmtree(folder.links, ignore_errors=True)
