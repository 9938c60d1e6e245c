"""Runs programs on nodes and on this machine through one protocol: the
part of SSH that the layers above see.
"""

import asyncio
import os
import re
import shlex
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Protocol, TypeVar, cast

from rankdeck.errors import AgentError, NodeError, UnreachableError
from rankdeck.model.cluster import Cluster
from rankdeck.model.json_tables import parse_tables
from rankdeck.model.safe_text import clean_line
from rankdeck.remote.questions import WAITS
from rankdeck.values import Value

OnData = Callable[[bytes], None]
_ODD = re.compile(r"[\\!\n]")
"""Not special to sh within single quotes, but `\\` is to fish,
and `!` and a line feed are to csh.
"""
_CODED = re.compile(r"[\\'!\n]")


def login_line(argv: Sequence[str]) -> str:
    """A command line that every login shell (bash, zsh, ksh, fish,
    csh) splits into exactly these words.
    """
    line = shlex.join(argv)
    if not _ODD.search(line):
        return line
    coded = _CODED.sub(lambda found: f"\\0{ord(found[0]):03o}", line)
    return f"""sh -c 'eval "exec $(printf %b "$1")"' sh '{coded}'"""


Row = dict[str, Any]
"""One JSON object, as the agent prints them."""


def last_line(text: bytes) -> str:
    """The last line of a program's stderr; safe to show."""
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return clean_line(lines[-1], 300) if lines else ""


class ProgramResult(Value):
    """Output and exit status of a program.

    Start-up files of the login shell may have printed to `out` too.
    """

    code: int
    """128 + signal if a signal ended it."""
    out: bytes
    err: bytes

    @property
    def rows(self) -> tuple[Row, ...]:
        """Its answers: the JSON objects among the last 1000 lines of stdout."""
        return tuple(parse_tables(self.out))[::-1]

    @property
    def row(self) -> Row:
        """The last answer; {} if there is none."""
        return next(parse_tables(self.out), dict[str, Any]())

    @property
    def word(self) -> str:
        """The last word of stdout, for commands that print only one."""
        return b"".join(self.out.split()[-1:])[:80].decode("utf-8", "replace")

    @property
    def complaint(self) -> str:
        """The last line of stderr, else the exit status; safe to show."""
        return last_line(self.err).removeprefix("rankdeck: ") or f"exit status {self.code}"


class ClockOffset(Value):
    """Seconds by which a node's clock is ahead of the console's, ± `uncertainty`."""

    offset: float = 0.0
    uncertainty: float = 0.5


class Way(Value):
    """What is particular about the way to a node, for `doctor`."""

    here: bool = False
    """The node is this machine, and is used without SSH."""
    few_sessions: bool = False
    """Its server refused a further session on a connection (MaxSessions)."""
    step: str = ""
    """The number of the allocation of Slurm in which steps lead there; "": SSH, or `here`."""


class Channel(Protocol):
    """A running program on a node."""

    def write(self, data: bytes) -> None:
        """Send to the program's stdin; does nothing if it has ended."""
        ...

    async def drain(self) -> None:
        """Wait until the data written has been sent; returns at once if the program has ended."""
        ...

    def end(self) -> None:
        """Close the program's stdin."""
        ...

    def pause(self) -> None:
        """Stop receiving output; the program blocks once SSH's window is full."""
        ...

    def resume(self) -> None:
        """Receive output again after `pause`."""
        ...

    @property
    def complaints(self) -> bytes:
        """The end of the program's stderr."""
        ...

    @property
    def complaint(self) -> str:
        """The last line of the program's stderr."""
        ...

    def wait(self) -> Awaitable[int]:
        """Wait for the exit status. Raises UnreachableError if the connection is lost
        first, and the NodeError that `on_data` raised.
        """
        ...

    async def close(self) -> None:
        """Close the channel; a program that still runs is ended or loses its connection."""
        ...


class StartsPrograms(Protocol):
    """Starts programs on nodes; raises UnreachableError if a node cannot be reached.

    If `on_data` raises a NodeError, it is not called again, and `Channel.wait` raises that error.
    """

    async def open(self, node: str, argv: Sequence[str], on_data: OnData) -> Channel:
        """Start a program; `on_data` is called with its stdout as it arrives."""
        ...


class Shell(StartsPrograms, Protocol):
    """Starts programs and opens tunnels on nodes."""

    async def reverse_tunnel(self, node: str, host: str, port: int) -> int:
        """Open a port on the node's loopback that leads to `host:port` as
        seen from here; returns the port.
        """
        ...

    async def clock(self, node: str) -> ClockOffset:
        """How the node's clock differs from the console's."""
        ...

    def way(self, node: str) -> Way:
        """What is particular about the way to the node, as far as it was used."""
        ...


@asynccontextmanager
async def limit_time(node: str, limit: float, why: str = "") -> AsyncGenerator[None]:
    """Cancel the block after `limit` seconds and raise
    UnreachableError; `why` replaces its usual text.

    While the operator is asked something, or the block waits for its
    turn to log in, the limit stands still.
    """
    try:
        async with WAITS.limited(limit):
            yield
    except TimeoutError as error:
        raise UnreachableError(node, why or f"no answer within {limit:g} s") from error


_MOST_OUTPUT = 32 << 20


async def run_program(
    shell: StartsPrograms, node: str, argv: Sequence[str], stdin: bytes = b"", limit: float = 30
) -> ProgramResult:
    """Run a program to its end, at most `limit` seconds.

    Raises UnreachableError, or AgentError if it sends more than 32 MB.
    """
    out = bytearray()

    def keep(data: bytes) -> None:
        if len(out) + len(data) > _MOST_OUTPUT:
            out.clear()
            raise AgentError(node, f"sent more than {_MOST_OUTPUT >> 20} MB as an answer")
        out.extend(data)

    async with limit_time(node, limit, f"no answer within {limit:.0f} s to {argv[-1][:60]}"):
        channel = await shell.open(node, argv, keep)
        try:
            channel.write(stdin)
            channel.end()
            code = await channel.wait()
        finally:
            await channel.close()
    return ProgramResult(code, bytes(out), channel.complaints)


_MOST_COMPLAINT = 16 << 10


class Receiver:
    """Passes stdout to `on_data` as it arrives, until that raises
    NodeError; keeps the end of stderr.
    """

    def __init__(self, on_data: OnData) -> None:
        self._on_data = on_data
        self.complaints = b""
        loop = asyncio.get_running_loop()
        self.heard: asyncio.Future[None] = loop.create_future()
        """Done when the program or its login shell has written something, or has ended."""
        self.ended: asyncio.Future[Exception | None] = loop.create_future()
        self.writable = asyncio.Event()
        self.writable.set()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """Called with output of the program; `datatype` is None for stdout, as in asyncssh."""
        self._note_heard()
        if datatype is not None:
            self.complaints = (self.complaints + data)[-_MOST_COMPLAINT:]
        elif not self.ended.done():
            try:
                self._on_data(data)
            except NodeError as error:
                self.ended.set_result(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self.writable.set()
        self._note_heard()
        if not self.ended.done():
            self.ended.set_result(exc)

    def _note_heard(self) -> None:
        if not self.heard.done():
            self.heard.set_result(None)


T = TypeVar("T")


async def on_each(
    names: Iterable[str], ask: Callable[[str], Awaitable[T]], at_once: int | None = None
) -> tuple[dict[str, T], dict[str, NodeError]]:
    """Await `ask` for every node; returns (node -> answer, node -> why it failed).

    `at_once`: most at a time.
    """
    answers: dict[str, T] = {}
    failed: dict[str, NodeError] = {}
    turn = asyncio.Semaphore(at_once) if at_once else nullcontext()

    async def one(name: str) -> None:
        try:
            async with turn:
                answers[name] = await ask(name)
        except NodeError as error:
            failed[name] = error

    async with asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(one(name))
    return answers, failed


THIS_MACHINE = "localhost"
"""Name of the control host of Kubernetes jobs if the cluster file names no login node."""
_CLOSE_LIMIT = 2.0


def control_host(cluster: Cluster) -> str:
    """The machine that runs kubectl: the login node, or this machine."""
    return cluster.options.get("login", "") or THIS_MACHINE


def asks_here(cluster: Cluster) -> bool:
    """Whether the scheduler's commands run on this machine, because the
    cluster file names no login node.
    """
    return cluster.can.asked_from_here and control_host(cluster) == THIS_MACHINE


class HereProgram(Receiver, asyncio.SubprocessProtocol):
    """Receives what a program on this machine writes."""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.data_received(data, None if fd == 1 else fd)


class ReceivingChannel:
    """What the channels to nodes and on this machine have in
    common: all that their Receiver knows.
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    async def drain(self) -> None:
        await self._receiver.writable.wait()

    @property
    def complaints(self) -> bytes:
        return self._receiver.complaints

    @property
    def complaint(self) -> str:
        return last_line(self._receiver.complaints)

    async def _end(self) -> Exception | None:
        """Wait for the end; returns the error with which the connection ended.

        Raises the NodeError of `on_data`.
        """
        error = await asyncio.shield(self._receiver.ended)
        if isinstance(error, NodeError):
            raise error
        return error


def shell_exit_code(code: int) -> int:
    """The exit status as in a shell: 128 + signal for a negative code."""
    return 128 - code if code < 0 else code


class LocalChannel(ReceivingChannel):
    """One running program; see `shell.Channel`."""

    def __init__(self, transport: asyncio.SubprocessTransport, program: HereProgram) -> None:
        super().__init__(program)
        self._transport = transport
        self._stdin = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
        self._stdout = cast("asyncio.ReadTransport", transport.get_pipe_transport(1))

    def write(self, data: bytes) -> None:
        if not self._stdin.is_closing():
            self._stdin.write(data)

    def end(self) -> None:
        if not self._stdin.is_closing():
            self._stdin.close()

    def pause(self) -> None:
        if not self._stdout.is_closing():
            self._stdout.pause_reading()

    def resume(self) -> None:
        if not self._stdout.is_closing():
            self._stdout.resume_reading()

    async def wait(self) -> int:
        await self._end()
        return shell_exit_code(self._transport.get_returncode() or 0)

    async def close(self) -> None:
        """End the program and all processes that it started, except
        detached ones: SIGTERM, then SIGKILL.
        """
        if self._transport.get_returncode() is None:
            self._signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(_CLOSE_LIMIT):
                    await asyncio.shield(self._receiver.ended)
            except TimeoutError:
                self._signal(signal.SIGKILL)
        self._transport.close()

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._transport.get_pid(), number)
        except ProcessLookupError:
            return


async def start_here(
    node: str,
    argv: Sequence[str],
    on_data: OnData,
    receiver: Callable[[OnData], HereProgram] = HereProgram,
    **more: Any,  # noqa: ANN401 - as subprocess.Popen has them
) -> tuple[asyncio.SubprocessTransport, HereProgram]:
    """Start a program on this machine, in a session of its own, for
    `node`. Raises UnreachableError.

    `receiver` makes what receives its output; `more`: `cwd` and `env`, as of `subprocess.Popen`.
    """
    loop = asyncio.get_running_loop()
    try:
        return await loop.subprocess_exec(
            lambda: receiver(on_data), *argv, start_new_session=True, **more
        )
    except OSError as error:
        raise UnreachableError(node, f"{argv[0]} cannot be started: {error}") from error


class LocalShell:
    """Runs programs on this machine; see `shell.Shell`."""

    def __init__(
        self, home: str | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        """`home` and `environment`: what programs start in; None: as the console."""
        self._home, self._environment = home, environment

    async def open(self, node: str, argv: Sequence[str], on_data: OnData) -> LocalChannel:
        """Start a program; `on_data` is called with its stdout as it arrives.

        Raises UnreachableError.
        """
        started = await start_here(node, argv, on_data, cwd=self._home, env=self._environment)
        return LocalChannel(*started)

    async def reverse_tunnel(self, node: str, host: str, port: int) -> int:
        """Returns `port`: on this machine no tunnel is needed."""
        return port

    async def clock(self, node: str) -> ClockOffset:
        """Offset 0: it is the same clock."""
        return ClockOffset(0.0, 0.0)

    def way(self, node: str) -> Way:
        """Without SSH."""
        return Way(here=True)
