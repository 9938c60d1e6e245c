"""Steps of srun as the way to the nodes of an allocation that the user holds: no SSH is needed.

Each program is a step of its own beside what runs there (`srun --overlap`), kept by a small program
on the node: it says when the program has ended, and keeps the step while something that the program
left behind still runs, such as the supervisor of a job. So what Slurm counts and ends with the
allocation is all that we start in it. A step outlives the console, because srun does.
"""

import asyncio
import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

from rankdeck.errors import ForwardingError, UnreachableError
from rankdeck.model.cluster import Cluster
from rankdeck.remote.clock import ClockOffsets
from rankdeck.remote.shell import (
    Channel,
    ClockOffset,
    HereProgram,
    LocalChannel,
    OnData,
    Way,
    start_here,
)
from rankdeck.remote.this_machine import program_environment

_STEP = (
    "--overlap", "--nodes=1", "--ntasks=1", "--mem=0", "--cpu-bind=none", "--mpi=none", "--wait=0",
    "--kill-on-bad-exit=0", "--immediate=20", "--unbuffered", "--quiet", "--chdir=/",
    "--job-name=rankdeck",
)  # fmt: skip
"""Options of srun. The step shares all that the allocation has on the node, GPUs too. Without
`--unbuffered` what is behind the last line feed would wait for the next one.
"""
_KEEP = """\
import ctypes, os, subprocess, sys
mark, words = sys.argv[1], sys.argv[2:]
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
ours = ("SLURM", "SRUN_", "PMI_", "PMIX_", "PRTE_")
env = {n: v for n, v in os.environ.items() if n == "SLURM_CONF" or not n.startswith(ours)}
try:
    os.chdir(os.path.expanduser("~"))
except OSError:
    pass
try:
    code = subprocess.call(words, env=env)
except OSError as error:
    os.write(2, ("%s: %s" % (words[0], error.strerror)).encode())
    code = 127
end = ("\\0%s %d\\n" % (mark, 128 - code if code < 0 else code)).encode()
os.write(2, end)
os.write(1, end)
null = os.open(os.devnull, os.O_RDWR)
for fd in (0, 1, 2):
    os.dup2(null, fd)
while True:
    try:
        os.wait()
    except OSError:
        break
"""
"""Run by the node's Python around a program. It is the parent of what the program leaves behind
(PR_SET_CHILD_SUBREAPER). Variables of the step are no business of a job's launcher: mpirun would
start its daemons by srun.
"""
_WITH_PYTHON = (
    'pythons=$1 keep=$2; shift 2; for python in $pythons; do command -v "$python" >/dev/null 2>&1 && '
    'exec "$python" -I -c "$keep" "$@"; done; echo "there is no python3 there" >&2; exit 127'
)
_PYTHON = "python3"
_TELL_PID = 'echo "$0 $$" >&2; exec "$@"'
_CLOSE_LIMIT = 2.0


class StepOutput:
    """One stream of a step: passes on what the program wrote, and finds the mark of its end."""

    def __init__(self, mark: str) -> None:
        self._mark = b"\0" + mark.encode() + b" "
        self._held = b""
        self.code: int | None = None
        """The exit status of the program; None while it runs."""

    def feed(self, data: bytes) -> bytes:
        """The bytes of the program in what has arrived."""
        if self.code is not None:
            return b""
        held = self._held + data
        at = held.find(self._mark)
        if at < 0:
            at = self._partial(held)
        elif (end := held.find(b"\n", at)) >= 0:
            digits = held[at + len(self._mark) : end].strip()
            self.code = int(digits) if digits.isdigit() else 255
        self._held = held[at:]
        return held[:at]

    def _partial(self, held: bytes) -> int:
        """Where a mark may begin that has not arrived whole; the length if there is none."""
        at = held.find(b"\0", max(0, len(held) - len(self._mark) + 1))
        while at >= 0:
            if self._mark.startswith(held[at:]):
                return at
            at = held.find(b"\0", at + 1)
        return len(held)


class StepProgram(HereProgram):
    """Receives what a step writes; ends when the program has, however long the step stays."""

    def __init__(self, on_data: OnData, mark: str) -> None:
        super().__init__(on_data)
        self._mark = mark.encode() + b" "
        self._streams = {1: StepOutput(mark), 2: StepOutput(mark)}
        self.srun = 0
        """Its pid; 0 until it has started."""
        self._begun = b""

    @property
    def code(self) -> int | None:
        """The exit status of the program; None if it runs, or the step ended without it."""
        return self._streams[1].code

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2 and not self.srun:
            data = self._first_line(data)
        if text := self._streams[fd].feed(data):
            super().pipe_data_received(fd, text)
        if all(stream.code is not None for stream in self._streams.values()):
            self.connection_lost(None)

    def _first_line(self, data: bytes) -> bytes:
        """Read the pid from the first line of stderr; returns what is behind that line."""
        self._begun += data
        line, found, rest = self._begun.partition(b"\n")
        if not found:
            return b""
        said = line.removeprefix(self._mark)
        self.srun = int(said) if said.isdigit() else -1
        return rest


class StepChannel(LocalChannel):
    """One running program; see `shell.Channel`."""

    def __init__(
        self, node: str, transport: asyncio.SubprocessTransport, program: StepProgram
    ) -> None:
        super().__init__(transport, program)
        self._node, self._program = node, program

    async def wait(self) -> int:
        await self._end()
        if self._program.code is None:
            raise UnreachableError(self._node, why_no_step(self.complaint))
        return self._program.code

    async def close(self) -> None:
        """End the program if it still runs: its stdin is closed, then srun gets SIGTERM.

        What it left behind stays, in its step.
        """
        self.end()
        if not self._program.ended.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_LIMIT):
                    await asyncio.shield(self._program.ended)
        if not self._program.ended.done() and self._program.srun > 0:
            with suppress(ProcessLookupError):
                os.killpg(self._program.srun, signal.SIGTERM)
        self._transport.close()


def why_no_step(said: str) -> str:
    """Why srun started no step, or lost it; `said`: its last line."""
    words = said.removeprefix("srun: ").removeprefix("error: ")
    if any(text in words for text in ("Invalid job id", "already completed", "expired")):
        return f"the allocation has ended (srun says: {words})"
    return f"srun started nothing there: {words}" if words else "the step was lost"


class SrunShell:
    """Runs programs on the nodes of an allocation; see `shell.Shell`."""

    def __init__(self, cluster: Cluster) -> None:
        own = {node.name: node.pythons for node in cluster.nodes}
        self._pythons: Mapping[str, Sequence[str]] = {
            name: (*(pythons or cluster.access.pythons), _PYTHON) for name, pythons in own.items()
        }
        self._number = cluster.access.allocation
        self._env = program_environment(cluster)
        self._clocks = ClockOffsets(self, cluster.access.patience)

    async def open(self, node: str, argv: Sequence[str], on_data: OnData) -> Channel:
        """Start a program; `on_data` is called with its stdout as it arrives.

        Raises UnreachableError.
        """
        if node not in self._pythons:
            raise UnreachableError(node, "no node of that name in the allocation")
        mark = f"rankdeck-{secrets.token_hex(8)}"
        words = step_command(self._number, node, self._pythons[node], mark, argv)
        transport, program = await start_here(
            node,
            words,
            on_data,
            lambda take: StepProgram(take, mark),
            cwd=str(Path.home()),
            env=self._env,
        )
        return StepChannel(node, transport, cast("StepProgram", program))

    async def reverse_tunnel(self, node: str, host: str, port: int) -> int:
        """A step opens no port for us: raises ForwardingError."""
        raise ForwardingError(node, "a step of Slurm forwards no ports")

    async def clock(self, node: str) -> ClockOffset:
        """How the node's clock differs from the console's; measured once."""
        return await self._clocks.of(node, self)

    def way(self, node: str) -> Way:
        """By a step of the allocation."""
        return Way(step=self._number)


def step_command(
    number: str, node: str, pythons: Sequence[str], mark: str, argv: Sequence[str]
) -> tuple[str, ...]:
    """The command that runs a program in a step on one node, in a session of its own.

    It ends at once; srun goes on with its stdin, stdout and stderr, whose first line is `mark` and
    the pid of srun. Behind what the program wrote, both have a line of NUL, `mark` and exit status.
    """
    srun = ("srun", f"--jobid={number}", f"--nodelist={node}", *_STEP)
    kept = ("sh", "-c", _WITH_PYTHON, "sh", " ".join(pythons), _KEEP, mark, *argv)
    return ("setsid", "--fork", "sh", "-c", _TELL_PID, mark, *srun, *kept)
