"""Connections by the user's own program ssh: one master per node, and each
program a client of it (ControlMaster).

A master is the user's own where one is open for the host, else ours: its socket is in a folder of
ours, and it ends with the console, or by itself when it was not used for a while.
"""

import asyncio
import logging
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from rankdeck.config.files import read_regular
from rankdeck.errors import HostKeyError, UnreachableError
from rankdeck.model.cluster import Cluster, Node
from rankdeck.remote.clock import ClockOffsets
from rankdeck.remote.control_socket import master_answers
from rankdeck.remote.identities import kerberos_remark
from rankdeck.remote.login_errors import (
    Destination,
    DroppedError,
    from_ssh,
    of_node,
    refused_login,
    refuses_login,
)
from rankdeck.remote.logins import (
    CLOSE_LIMIT,
    KEEPALIVE,
    KEEPALIVE_MISSES,
    OPEN_LIMIT,
    PAUSES,
    Logins,
)
from rankdeck.remote.shell import (
    ClockOffset,
    HereProgram,
    LocalChannel,
    LocalShell,
    OnData,
    Way,
    limit_time,
    login_line,
    run_program,
    start_here,
)
from rankdeck.remote.ssh_config import HostSettings
from rankdeck.remote.ssh_questions import AskProgram, SshConversation, end_group
from rankdeck.remote.user_ssh import UserSsh, text_file
from rankdeck.values import Value, replace

log = logging.getLogger(__name__)
PERSIST = 600
"""Seconds without a session after which a master of ours ends by itself:
it outlives a console that was killed.
"""
_LONGEST_FOLDER = 60
"""Most bytes of the path of the sockets' folder: ssh makes names of up to 108 bytes from it."""
_SILENT = "BatchMode=yes"
"""Nobody answers questions."""
_ASKS = ("NumberOfPasswordPrompts=1",)
"""Each run asks once: whether it asks again is decided here, for all nodes."""
_OWN = ("ClearAllForwardings=yes", "RemoteCommand=none", "PermitLocalCommand=no", "ForwardX11=no")
"""What the user's ssh_config opens is not ours."""
_ALWAYS = (_SILENT, *_OWN)
"""Options of clients of a master, and of logins that only look what happens."""
_MASTER = (
    *_OWN, f"ControlPersist={PERSIST}", "LogLevel=INFO",
    f"ServerAliveInterval={KEEPALIVE:.0f}", f"ServerAliveCountMax={KEEPALIVE_MISSES}",
)  # fmt: skip
_CLIENT = (*_ALWAYS, "ControlMaster=no", "ControlPersist=no", "LogLevel=ERROR")
_ALONE = (*_ALWAYS, "ControlMaster=no", "ControlPath=none", "ControlPersist=no", "LogLevel=INFO")
"""Options of a login without a master, whose proxy is heard: of one that is to
persist, ssh drops what its proxy says.
"""
_WITH_INPUT = "StdinNull=no"
"""Said only where ssh_config switches StdinNull on: an ssh before 8.7 does not know it."""
_SIGNALS_TOLD = '"$@"; exit $?'
"""A shell around the program, for ssh gives 255 for every program that a signal ended."""
_FAILED = 255
"""The exit status of ssh itself; a program may have the same."""
_NO_SESSION = "session request failed"
_NOT_KNOWN = "Host key verification failed"
_MOST_SAID = 64 << 10


@dataclass(slots=True)
class Master:
    """An open master connection to a node."""

    node: str
    path: str
    """Its socket."""
    ours: bool
    destination: Destination
    answered: bool = False
    """Whether a program on it was heard."""
    forwards: list[str] = field(default_factory=list[str])
    """Tunnels that were opened on it, in the words of `-R`."""

    @property
    def alive(self) -> bool:
        return master_answers(self.path)

    def command(self, what: str, *words: str) -> tuple[str, ...]:
        """The command line that asks the master for something (`-O`)."""
        return ("ssh", "-F", "none", "-S", self.path, "-O", what, *words, "--", "master")


class Client(Value):
    """What a client of a master needs to judge its own end."""

    master: Master
    said: BinaryIO
    """What ssh itself writes, apart from the program's stderr."""
    refused: Callable[[], None]
    """Called if the server had no session left, and the client logged in by itself."""
    try_alone: Callable[[], Awaitable[UnreachableError | None]]
    """Why a login that runs nothing fails; None if it works."""


class OpenSshChannel(LocalChannel):
    """One running program; see `shell.Channel`."""

    def __init__(
        self, transport: asyncio.SubprocessTransport, program: HereProgram, client: Client
    ) -> None:
        super().__init__(transport, program)
        self._master, self._said, self._refused = client.master, client.said, client.refused
        self._try_alone = client.try_alone

    async def wait(self) -> int:
        code = await super().wait()
        if code != _FAILED or self._said.closed:
            return code
        lines = _text(self._said).splitlines()
        said = [line for line in lines if _NO_SESSION not in line]
        if lines and not said and (error := await self._try_alone()):
            raise error  # of its own login ssh says nothing at this level
        if said:  # a login of its own has failed, where the master had no session left
            raise from_ssh(self._master.node, "\n".join(said), self._master.destination)
        if not self._master.alive:
            raise UnreachableError(self._master.node, "the connection was lost")
        return code

    async def close(self) -> None:
        await super().close()
        if not self._said.closed:
            if _NO_SESSION in _text(self._said):
                self._refused()
            self._said.close()


def _text(file: BinaryIO) -> str:
    file.seek(0)
    return file.read(_MOST_SAID).decode("utf-8", "replace")


class OpenSsh:
    """Connections to the nodes of a cluster by ssh (see `shell.Shell`); an
    async context manager that closes them.
    """

    def __init__(self, cluster: Cluster, logins: Logins) -> None:
        self._nodes = {node.name: node for node in cluster.hosts}
        self._open_limit = OPEN_LIMIT * cluster.access.patience
        self._ssh, self._logins = UserSsh(cluster), logins
        self._locks = {name: asyncio.Lock() for name in self._nodes}
        self._masters: dict[str, Master] = {}
        self._without_input: set[str] = set()
        """Nodes whose programs would get no stdin, as ssh_config says."""
        self._clocks = ClockOffsets(self, cluster.access.patience)
        self._folder: Path | None = None
        self._count = 0
        self._user = cluster.access.user
        self._first_jumps: dict[str, asyncio.Lock] = {}
        self._tried_jumps: set[str] = set()
        """Jump hosts through which somebody has tried to log in."""

    async def __aenter__(self) -> "OpenSsh":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        masters = [one for one in self._masters.values() if one.ours or one.forwards]
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_LIMIT), asyncio.TaskGroup() as tasks:
                for master in masters:
                    tasks.create_task(_leave(master))
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    def connected(self, node: str) -> bool:
        """Whether there is a connection to the node now."""
        return node in self._masters and self._masters[node].alive

    async def open(self, node: str, argv: Sequence[str], on_data: OnData) -> OpenSshChannel:
        """Start a program; `on_data` is called with its stdout as it arrives.

        Raises UnreachableError.
        """
        there = self._known(node)
        await self._master(there)
        async with self._logins.first_program(lambda: self._answered(node)) as turn:
            master = await self._master(there)
            said = text_file("")
            first = ("-T", "-S", master.path, "-E", f"/proc/{os.getpid()}/fd/{said.fileno()}")
            options = (_WITH_INPUT, *_CLIENT) if node in self._without_input else _CLIENT
            words = (
                *self._ssh.reach(node, first, options),
                login_line(("sh", "-c", _SIGNALS_TOLD, "sh", *argv)),
            )
            try:
                transport, program = await start_here(node, words, on_data)
            except UnreachableError:
                said.close()
                raise
            turn.keep_until(program.heard)
        program.heard.add_done_callback(lambda _: setattr(master, "answered", True))
        client = Client(
            master,
            said,
            lambda: self._logins.note_few_sessions(node),
            lambda: self._try_alone(node),
        )
        return OpenSshChannel(transport, program, client)

    async def reverse_tunnel(self, node: str, host: str, port: int) -> int:
        """Open a port on the node's loopback that leads to `host:port` as seen
        from this machine; returns the port.
        """
        master = await self._master(self._known(node))
        wanted = f"127.0.0.1:0:{_bracketed(host)}:{port}"
        ask = master.command("forward", "-R", wanted)
        done = await run_program(LocalShell(), node, ask, limit=self._open_limit)
        if done.code or not done.word.isdecimal():
            raise from_ssh(node, done.err.decode("utf-8", "replace"), master.destination)
        master.forwards.append(wanted)
        return int(done.word)

    def way(self, node: str) -> Way:
        """What is particular about the way to the node, as far as it was used."""
        return Way(few_sessions=node in self._logins.few_sessions)

    async def clock(self, node: str) -> ClockOffset:
        """How the node's clock differs from the console's; measured once per connection.

        Raises UnreachableError.
        """
        return await self._clocks.of(node, await self._master(self._known(node)))

    def _known(self, node: str) -> Node:
        if node not in self._nodes:
            raise UnreachableError(node, "no node of that name in the cluster file")
        return self._nodes[node]

    def _answered(self, node: str) -> bool:
        master = self._masters.get(node)
        return master is not None and master.answered and master.alive

    async def _master(self, node: Node) -> Master:
        async with self._locks[node.name]:
            known = self._masters.get(node.name)
            if known is None or not known.alive:
                known = self._masters[node.name] = await self._connect(node)
            return known

    async def _connect(self, node: Node) -> Master:
        settings = await self._logins.settings(node)
        to = self._destination(node, settings)
        if settings is not None and settings.yes("stdinnull"):
            self._without_input.add(node.name)
        if settings is not None and (path := await self._logins.open_master(node)):
            return Master(node.name, path, ours=False, destination=to)

        async def log_in() -> Master:
            jump = settings.one("proxyjump") if settings else ""
            async with self._alone_at_first(jump):
                return await self._log_in(node, settings, to)

        return await self._logins.with_known_key(node, log_in)

    @asynccontextmanager
    async def _alone_at_first(self, jump: str) -> AsyncGenerator[None]:
        """The first login through a jump host is alone: it may open a master
        there that spares the others a question.
        """
        if not jump or jump in self._tried_jumps:
            yield
            return
        async with self._first_jumps.setdefault(jump, asyncio.Lock()):
            alone = jump not in self._tried_jumps
            if alone:
                try:
                    yield
                finally:
                    self._tried_jumps.add(jump)
        if not alone:
            yield

    async def _log_in(self, node: Node, settings: HostSettings | None, to: Destination) -> Master:
        """Start a master of ours: ssh goes to the background when it has logged in.

        Raises UnreachableError.
        """
        self._count += 1
        master = Master(node.name, str(self._own_folder() / f"{self._count}"), True, to)
        talk = await self._logins.talk_by_ssh(node, to, settings)
        code, text = await self._start_master(master, talk, settings)
        while code and talk.worth_another_try and refuses_login(text):
            code, text = await self._start_master(master, talk, settings)
        talk.end(accepted=not code)
        if not code:
            return master
        if refuses_login(text):
            await talk.note_refusal(text)
        to = replace(to, remarks=(*talk.remarks, *kerberos_remark(settings)))
        if talk.declined and (talk.stopped or refuses_login(text)):
            raise UnreachableError(node.name, talk.declined)
        if talk.stopped:
            raise refused_login(node.name, to)
        error = from_ssh(node.name, text, to, len(PAUSES) + 1)
        if _NOT_KNOWN in text and not isinstance(error, HostKeyError) and _asks(settings):
            raise await self._unknown_key(node, settings) or error
        if isinstance(error, DroppedError) and settings is not None and _has_proxy(settings):
            raise await self._try_alone(node.name) or error
        raise error

    async def _start_master(
        self, master: Master, talk: SshConversation, settings: HostSettings | None
    ) -> tuple[int, str]:
        """Start ssh for a master; returns its exit status, and what it said."""
        options = (*(_ASKS if talk.own.can_ask else (_SILENT,)), *_MASTER)
        words = self._ssh.reach(master.node, ("-M", "-N", "-f", "-S", master.path), options)
        limit = self._logins.limit(settings)
        with text_file("") as said:
            if not talk.own.can_ask:
                return await _run_to_background(master.node, words, said, limit), _text(said)
            async with AskProgram(Path(f"{master.path}.ask"), talk) as asks:
                code = await _run_to_background(master.node, words, said, limit, asks)
            return code, _text(said)

    async def _unknown_key(self, node: Node, settings: HostSettings | None) -> HostKeyError | None:
        """The question about the key that the host has shown, which ssh itself
        writes down; None if it is another's.
        """
        self._count += 1
        file = self._own_folder() / f"{self._count}.keys"
        options = (
            "StrictHostKeyChecking=accept-new",
            f'UserKnownHostsFile="{file}"',
            "GlobalKnownHostsFile=none",
            "HashKnownHosts=no",
            "UpdateHostKeys=no",
            "CheckHostIP=no",
            "PreferredAuthentications=none",
            *_ALONE,
        )
        words = (*self._ssh.reach(node.name, ("-T",), options), "exit")
        with text_file("") as said:
            await _run_to_background(node.name, words, said, self._logins.limit(settings))
        try:
            (line,) = (await asyncio.to_thread(read_regular, file)).decode().splitlines()
        except (OSError, ValueError):  # ValueError: not one line
            return None
        return self._logins.unknown_key(node, settings, line)

    async def _try_alone(self, name: str) -> UnreachableError | None:
        """Why a login without a master fails, in the words of ssh, a proxy
        or a jump host; None if it works.
        """
        node = self._nodes[name]
        settings = await self._logins.settings(node)
        to = self._destination(node, settings)
        words = (*self._ssh.reach(name, ("-T",), _ALONE), "exit")
        with text_file("") as said:
            code = await _run_to_background(name, words, said, self._logins.limit(settings))
            return from_ssh(name, _text(said), to, len(PAUSES) + 1) if code else None

    def _destination(self, node: Node, settings: HostSettings | None) -> Destination:
        if settings is not None:
            return Destination(settings.host, settings.port, settings.user)
        return replace(of_node(node), user=self._user)

    def _own_folder(self) -> Path:
        """The folder of the sockets, which only this user can enter."""
        if self._folder is None:
            places = (os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp")
            usable = (
                p for p in places if os.access(p, os.W_OK) and len(os.fsencode(p)) < _LONGEST_FOLDER
            )
            self._folder = Path(tempfile.mkdtemp(prefix="rd.", dir=next(usable, "/tmp")))
        return self._folder


async def _run_to_background(
    node: str, words: Sequence[str], said: BinaryIO, limit: float, asks: AskProgram | None = None
) -> int:
    """Run a program until it, but not what it has left in the background,
    has ended; `said` gets its stderr.
    """
    null = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=null,
            stdout=null,
            stderr=said,
            start_new_session=True,
            env=asks.variables if asks else None,
        )
    except OSError as error:
        raise UnreachableError(node, f"{words[0]} cannot be started: {error.strerror}") from error
    try:
        async with limit_time(node, limit, f"no login by ssh within {limit:g} s"):
            return await (asks.wait_for(process, said) if asks else process.wait())
    finally:
        end_group(process)


async def _leave(master: Master) -> None:
    """End a master of ours; from the user's, take back the tunnels that were opened on it."""
    asked = [("exit",)] if master.ours else [("cancel", "-R", one) for one in master.forwards]
    for what, *words in asked:
        with suppress(UnreachableError):
            await run_program(
                LocalShell(), master.node, master.command(what, *words), limit=CLOSE_LIMIT
            )


def _asks(settings: HostSettings | None) -> bool:
    """Whether a key that is not known is a question (StrictHostKeyChecking)."""
    return settings is None or settings.one("stricthostkeychecking") == "ask"


def _has_proxy(settings: HostSettings) -> bool:
    return bool(settings.one("proxyjump") or settings.one("proxycommand"))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
