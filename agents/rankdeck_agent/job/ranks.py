"""Starts the ranks and MPI daemons of a job on a node, lays out the run folder,
and keeps the supervisor's table of ranks.
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Callable, Optional

from rankdeck_agent import AGENT_TOKEN, LAUNCHER, RANK_IN_SHELL, RANK_VARIABLE
from rankdeck_agent.job import processes
from rankdeck_agent.job.folder import (
    CancelledEarlierError,
    End,
    FolderError,
    FolderThereError,
    Journal,
    RunFolder,
    has_failed,
    is_start_forbidden,
    run_folder,
)
from rankdeck_agent.job.supervisor_state import note_starter
from rankdeck_agent.job.witness import INSIDE_RANK
from rankdeck_agent.private_files import make_private_folder, replace_private, write_private_file
from rankdeck_agent.rules.mpi_daemon import SKIP_SSH_OPTIONS, daemon_of, daemons_of, in_place
from rankdeck_agent.state_folder import unwritable_folder
from rankdeck_agent.text import parse_json_table, plain_line
from rankdeck_agent.wire import (
    JOB_VARIABLE,
    NODE_VARIABLE,
    RUN_VARIABLE,
    NodePlan,
    ProcessPlan,
)
from rankdeck_agent.wire.job_events import (
    DaemonAnswered,
    DaemonAsked,
    LauncherStarted,
    is_request_id,
)
from rankdeck_agent.wire.run_folder import CONTROL, INSIDE, SELF, SHIM, SPAWN, name_rank_folder

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


@dataclass(frozen=True)
class StartCommand:
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
                preexec_fn=(lambda: processes.enter_cgroup(group)) if enters else None,
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


RANK_SHIM = r"""#!/bin/sh
# rank-shim PROGRAM ARGS...: run one rank with its own terminal, files and exit record.
#
# The program is a foreground child in the shim's own process group, so a launcher that
# signals the group (mpirun, torchrun, srun, our supervisor) reaches it, and Ctrl-C keeps
# its meaning. A signal to the shim's pid alone is swallowed until the program ends: to
# forward it the program would have to run in the background, where POSIX makes a shell
# ignore INT and QUIT for it. No descriptor is kept open: PMI_FD may be any number.
rank=@RANK@
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
# Into the cgroup of the job, before anything is started.
read -r rest 2>/dev/null <"$RANKDECK_RUN/cgroup"
[ -z "$rest" ] || echo 0 2>/dev/null >"$rest/cgroup.procs"
control=$RANKDECK_RUN/control
place=$RANKDECK_RUN/rank.$rank
out=$place/tty err=$place/fifo
read -r supervisor rest 2>/dev/null <"$RANKDECK_RUN/supervisor.pid"
if ! { [ -n "$supervisor" ] && kill -0 "$supervisor" 2>/dev/null && [ -w "$out" ] && [ -p "$err" ]; }; then
    out=$place/out err=$place/err
fi
# A rank of torch.distributed or mpi4py answers where it is: job/witness.py.
inside=$RANKDECK_RUN/inside
many=$MASTER_ADDR$OMPI_COMM_WORLD_SIZE$PMI_SIZE$PMIX_RANK
if [ -n "$many" ] && [ "$RANKDECK_WITNESS" != off ] && [ -r "$inside/sitecustomize.py" ]; then
    RANKDECK_WITNESS=$inside/$rank
    PYTHONPATH=$inside${PYTHONPATH:+:$PYTHONPATH}
    : "${TORCH_FR_BUFFER_SIZE:=2000}" "${TORCH_NCCL_TRACE_BUFFER_SIZE:=$TORCH_FR_BUFFER_SIZE}"
    export RANKDECK_WITNESS PYTHONPATH TORCH_FR_BUFFER_SIZE TORCH_NCCL_TRACE_BUFFER_SIZE
fi
trap : TERM INT USR1 USR2 HUP
# What we write is the user's alone; what the program makes is as its launcher has it.
# Where the supervisor made the files, nothing is asked of other programs: each would cost a fork.
mask= host=
if ! [ -p "$err" ]; then
    mask=$(umask) host=${SLURMD_NODENAME:-$(uname -n)}
    umask 077
fi
marks=$RANKDECK_RUN/marks/${SLURM_RESTART_COUNT:-0}
(
    [ -z "$mask" ] || umask "$mask"
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
umask 077
[ ! -d "${marks%/*}" ] || : >"$marks.$rank.ended.$status"
printf '%s\n' "$status" >"$place/exit"
[ ! -p "$control" ] || printf 'exited %s %s\n' "$rank" "$status" 1<>"$control"
exit "$status"
""".replace("@RANK@", RANK_IN_SHELL)

LAUNCH_AGENT = (
    r"""#!/bin/sh
# launch-agent [SSH OPTIONS] HOST COMMAND...: have Rankdeck start an MPI daemon on HOST.
# mpirun takes our exit status 0 for "the daemon runs". The supervisor keeps the time.
run=${RANKDECK_RUN:-${0%/*}}
"""
    + SKIP_SSH_OPTIONS
    + r"""if [ $# -lt 2 ]; then
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
)


def make_run_folder(plan: NodePlan) -> RunFolder:
    """Make the run folder with all its files. Raises FolderError and then leaves nothing.

    FolderThereError: it exists; CancelledEarlierError: see `forbid_start`.
    """
    folder = run_folder(plan.job, plan.node)
    try:
        make_private_folder(folder.path.parent.parent)
        make_private_folder(folder.path.parent)
        folder.path.mkdir(mode=0o700)
    except FileExistsError:
        if is_start_forbidden(folder):
            why = f"job {plan.job} was cancelled on node {plan.node}: it is not started there any more"
            raise CancelledEarlierError(why) from None
        why = f"job {plan.job} has been started on node {plan.node} before"
        raise FolderThereError(why) from None
    except OSError as error:
        raise FolderError(unwritable_folder(folder.path.parent.parent, error)) from error

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
        full = Path(os.fsdecode(error.filename)).parent if error.filename else folder.path
        raise FolderError(unwritable_folder(full, error)) from error
    return folder


def _fill(folder: RunFolder, plan: NodePlan) -> None:
    _write(folder.plan, json.dumps(asdict(plan), indent=1))
    _write(folder / SELF, f"{folder.path}\n{plan.job}\n{plan.node}\n")
    _write(folder / SHIM, RANK_SHIM, program=True)
    (folder / INSIDE).mkdir(mode=0o700)
    _write(folder / INSIDE / "sitecustomize.py", INSIDE_RANK)
    for name in (SPAWN, *map(name_rank_folder, (LAUNCHER, *plan.ranks))):
        (folder / name).mkdir(mode=0o700)
    for file in plan.files:
        path = Path(os.path.normpath(folder.path / file.path))
        if folder.path not in path.parents:
            raise FolderError(f"file {file.path!r} is outside the run folder")
        make_private_folder(path.parent)
        program = bool(file.mode & stat.S_IXUSR)
        _write(path, folder.plan_text(file.text), program=program)

    os.mkfifo(folder / CONTROL, 0o600)
    _make_links(folder)
    note_starter(folder)
    _write(folder.events, "")  # from now on others see the job


def _write(path: Path, text: str, *, program: bool = False) -> None:
    write_private_file(path, text.encode(), program=program)


def _make_links(folder: RunFolder) -> None:
    while True:
        folder.links.mkdir(mode=0o700, exist_ok=True)
        if not _is_private(folder.links):
            if not os.path.lexists(folder.links):
                continue
            raise FolderError(f"{folder.links} is not a private folder of this user")
        with hold_links(folder.links) as there:
            if there:
                _lay_links(folder)
                return


@contextlib.contextmanager
def hold_links(links: Path) -> Generator[bool, None, None]:
    """Lock the links folder, because several virtual nodes of this machine may
    share it; yields False if it is gone.
    """
    try:
        handle = os.open(links, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield False
        return
    try:
        # The lock is held only to make or remove a few links; the end of the process releases it.
        fcntl.flock(handle, fcntl.LOCK_EX)
        seen = os.fstat(handle)
        yield seen.st_nlink > 0 and seen.st_uid == os.geteuid()
    finally:
        os.close(handle)


def _lay_links(folder: RunFolder) -> None:
    links = folder.links
    for name, script in (("rank", RANK_SHIM), ("launch-agent", LAUNCH_AGENT)):
        fresh = links / f".{name}.{os.getpid()}"
        _write(fresh, script, program=True)
        fresh.replace(links / name)
    for name in _link_names(folder):
        fresh = links / f".{name}.{os.getpid()}"
        fresh.symlink_to(folder.path)
        fresh.replace(links / name)


def _is_private(path: Path) -> bool:
    """Whether it is a folder that only this user can access: in /tmp
    another user may have made it first.
    """
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid() and not seen.st_mode & 0o077


def _link_names(folder: RunFolder) -> tuple[str, ...]:
    """Host name and node name; virtual nodes of one machine share the host name."""
    return tuple(dict.fromkeys((socket.gethostname(), folder.node)))


def unlink_links(folder: RunFolder) -> None:
    """Remove this node's links, and with the last link their folder; does
    nothing if the folder is not ours.
    """
    if not _is_private(folder.links):
        return
    with hold_links(folder.links) as there:
        if not there:
            return
        for name in _link_names(folder):
            link = folder.links / name
            if link.is_symlink() and link.resolve() == folder.path.resolve():
                link.unlink()
        if not any(p.is_symlink() for p in folder.links.iterdir()):
            shutil.rmtree(folder.links, ignore_errors=True)


_LINGER = 1.0
_DAEMON_LINGER = 10.0


@dataclass
class RankRecord:
    """One rank as its shim reports it; `pid` of the program and of the
    `shim` are 0 if not usable here.
    """

    pid: int = 0
    shim: int = 0
    running: bool = False
    exited: bool = False


@dataclass
class RankTable:
    """What runs of the job on this node. Only the supervisor writes to it."""

    expected: Sequence[int]
    ranks: dict[int, RankRecord] = field(default_factory=dict[int, RankRecord])
    processes: dict[int, str] = field(default_factory=dict[int, str])
    """pid -> name of the planned processes that run."""
    daemons: dict[int, str] = field(default_factory=dict[int, str])
    """pid -> name of the MPI daemons that run."""
    had_processes: bool = False
    had_daemons: bool = False
    cancelled: bool = False
    linger: float = _LINGER
    """Seconds to wait for orphans once everything else has ended."""
    _quiet_since: Optional[float] = None

    def started(self, rank: int, pid: int, shim: int) -> None:
        """Note the start of a rank: pid of its program and of its shim, 0 if not usable here."""
        self.ranks[rank] = RankRecord(pid, shim, running=True)

    def exited(self, rank: int) -> bool:
        """Note the end of a rank; False if it was noted before."""
        record = self.ranks.setdefault(rank, RankRecord())
        was = record.running or not record.exited
        record.running, record.exited = False, True
        return was

    def visible(self) -> dict[int, RankRecord]:
        """The running ranks whose pids we can use; not those in another
        pid namespace, whose `shim` is 0.
        """
        return {rank: one for rank, one in self.ranks.items() if one.running and one.shim}

    def pids(self) -> dict[int, int]:
        """pid -> rank, for programs and shims of visible ranks."""
        return {pid: rank for rank, one in self.visible().items() for pid in (one.shim, one.pid)}

    def running(self) -> dict[int, int]:
        """Rank -> pid of the program, for visible ranks."""
        return {rank: one.pid for rank, one in self.visible().items()}

    @property
    def all_exited(self) -> bool:
        """Whether every expected rank has ended."""
        return all(rank in self.ranks and self.ranks[rank].exited for rank in self.expected)

    @property
    def busy(self) -> bool:
        """Whether a planned process, a daemon or a rank runs."""
        running = any(record.running for record in self.ranks.values())
        return bool(self.processes or self.daemons or running)

    @property
    def complete(self) -> bool:
        """Whether something has been started here (or all ranks ended, or a cancel):
        if not `busy`, nothing more will begin.
        """
        return self.had_processes or self.had_daemons or self.cancelled or self.all_exited

    def may_close(self, now: float, others: int) -> bool:
        """Whether to close now (monotonic seconds); `others`: the number
        of orphans that became our children.

        A daemon that put itself into the background is such an orphan: wait for it while ranks may
        still start. For any others wait `linger` seconds, then close although they run.
        """
        if self.busy or not self.complete:
            self._quiet_since = None
            return False
        if not others:
            return True
        if self.had_daemons and not (self.all_exited or self.cancelled):
            self._quiet_since = None
            return False
        if self._quiet_since is None:
            self._quiet_since = now
        least = _DAEMON_LINGER if self.had_daemons else 0.0
        return now - self._quiet_since >= max(self.linger, least)


class Orphans:
    """Finds ranks whose shim was killed: their program becomes a child of the supervisor."""

    def __init__(self, table: RankTable) -> None:
        self._table = table
        self._missed: set[int] = set()

    def rank_of(self, pid: int) -> Optional[int]:
        """The rank whose program was this child that has just
        ended; None if it was not a rank's.
        """
        for rank, record in self._table.visible().items():
            if record.pid == pid and not processes.is_alive(record.shim):
                return rank
        return None

    def lost(self) -> list[int]:
        """The ranks that are gone without a report of their end; each is returned once."""
        ranks = self._table.visible().items()
        gone = {n for n, one in ranks if not any(map(processes.is_alive, (one.shim, one.pid)))}
        # Seen in two calls, a second apart: the report may still be in the control FIFO.
        lost, self._missed = sorted(gone & self._missed), gone - self._missed
        return lost


def not_known(ranks: Iterable[int]) -> str:
    """The sentence for ranks that are lost."""
    names = ", ".join(map(str, ranks))
    if "," in names:
        return f"the shims of ranks {names} were killed: how these ranks ended is not known"
    return f"the shim of rank {names} was killed: how this rank ended is not known"


ANSWER_LIMIT = 60.0
"""Seconds, times the `patience` of the plan, in which a console has to start a daemon elsewhere."""
_LONGEST = 1 << 18


class Daemons:
    """MPI daemons: passes requests of this node's launcher to the console, and
    starts daemons for other nodes' launchers.
    """

    def __init__(
        self,
        plan: NodePlan,
        folder: RunFolder,
        journal: Journal,
        ranks: RankTable,
        ended: Callable[[str, End], None],
    ) -> None:
        self._plan, self._folder = plan, folder
        self._limit = ANSWER_LIMIT * plan.patience
        self._journal, self._table = journal, ranks
        self._record_end = ended
        self._deadlines: dict[str, float] = {}
        self._done: set[str] = set()
        self._background = ""
        """Name of a daemon that went into the background: its first process ended with
        code 0 and left another one; "" if none.
        """
        self._adopted: Optional[set[int]] = None
        """Pids of the processes that it left; None until they were looked for."""
        self._strays: set[int] = set()
        self._before: set[int] = set()
        """Pids of the orphans that were there when the daemon was started."""

    # ---- this node's launcher asks -------------------------------------------------------

    def ask(self, request: str) -> None:
        """Pass a request of the launch agent to the console, as a `spawn` event. Raises OSError."""
        if not is_request_id(request) or request in self._deadlines:
            return
        text = (self._place(request, "ask")).read_bytes()[:_LONGEST].decode("utf-8", "replace")
        host, _, command = text.partition("\n")
        self._deadlines[request] = time.monotonic() + self._limit
        self._journal.add(DaemonAsked(request, plain_line(host, 255), command))

    def answer(self, request: str, text: str) -> None:
        """Pass the console's answer to the waiting launch agent."""
        if self._deadlines.pop(request, None) is None:
            return
        text_of_answer = "ok" if text == "ok" else plain_line(text) or "no reason given"
        self._reply(request, text_of_answer)
        self._journal.add(DaemonAnswered(request, text_of_answer == "ok", text_of_answer))

    def expire(self, now: float) -> None:
        """Refuse requests that were not answered in time; `now` in
        seconds of the monotonic clock.
        """
        for request in [r for r, deadline in self._deadlines.items() if deadline <= now]:
            self.answer(request, f"no console started the daemon within {self._limit:.0f} s")

    def refuse_all(self, why: str) -> None:
        """Refuse every open request, with the reason `why`."""
        for request in list(self._deadlines):
            self.answer(request, why)

    def _reply(self, request: str, text: str) -> None:
        try:
            fd = os.open(self._place(request, "reply"), os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return  # the launch agent is gone
        os.write(fd, text.encode() + b"\n")
        os.close(fd)

    # ---- another node's launcher wants a daemon here ------------------------------------

    def start(self, request: str, outputs: tuple[int, int], group: Optional[Path]) -> None:
        """Start the command in `spawn/ID.json`; write "ok", or why not, to `spawn/ID.started`.

        Raises OSError.
        """
        if not is_request_id(request) or request in self._done:
            return
        self._done.add(request)

        raw = parse_json_table(
            self._place(request, "json").read_text(encoding="utf-8", errors="replace")
        )
        line = str((raw or {}).get("command", ""))
        why = self._refusal(line)
        if why:
            self._say(request, why)
            return

        # `exec` leaves no shell in between, so that what the daemon leaves is known to be its own.
        command = ("sh", "-c", in_place(line))
        env = process_environment(self._plan, self._folder, {})
        try:
            child = start_process(
                StartCommand("the daemon", command, env, str(Path.home())), outputs, group
            )
        except StartError as error:
            self._say(request, str(error))
            return

        child.returncode = 0
        self._table.daemons[child.pid] = f"daemon {request}"
        self._table.had_daemons = True
        self._before = self._strays
        self._journal.add(LauncherStarted(f"daemon {request}", child.pid))
        self._say(request, "ok")

    def _refusal(self, command: str) -> str:
        """Why this command is refused; "" if it is an MPI daemon that this job may start here."""
        if daemon_of(command) is None:
            return "the command is no MPI daemon: refused"
        plans = self._plan.processes
        if plans and not any(daemons_of(p.argv, self._plan.job) for p in plans):
            return "this job has no launcher of MPI: refused"
        if self._table.daemons or self._background:
            return "the job has its MPI daemon here already: refused"
        return ""

    def _say(self, request: str, text: str) -> None:
        replace_private(self._place(request, "started"), text.encode())

    def ended(self, pid: int, end: End) -> None:
        """Handle the end of a child that was not planned: record it if it was a daemon."""
        name = self._table.daemons.pop(pid, None)
        if name is not None and has_failed(end):
            self._record_end(name, end)
        elif name is not None:
            self._background, self._adopted = name, None
        elif self._background and has_failed(end):
            # Until the orphans were looked for, every new one counts as the daemon's own.
            adopted = self._adopted
            own = pid not in self._before if adopted is None else pid in adopted
            if own:
                name, self._background = self._background, ""
                self._record_end(name, end)

    def adopt(self, strays: Iterable[int]) -> None:
        """Note the orphans: those that appeared since a daemon was started
        belong to it once it is in the background.
        """
        now = set(strays)
        if self._background and self._adopted is None:
            # Compared with the start of the daemon: the look before this one may have seen them.
            self._adopted = now - self._before
        self._strays = now

    def settle(self, others: int) -> None:
        """Record the end, with code 0, of a daemon in the background when no orphan is left."""
        if not self._background or others:
            return
        name, self._background = self._background, ""
        self._record_end(name, {"code": 0, "signal": None})

    def _place(self, request: str, kind: str) -> Path:
        return self._folder / SPAWN / f"{request}.{kind}"
