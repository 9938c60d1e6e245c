"""SSH connections to the nodes, opened when needed, shared, reopened when lost; host keys; errors in plain words."""

import asyncio
import errno
import random
import re
import socket
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import asyncssh

from rankdeck.config.files import append_lines, expanded, read_regular
from rankdeck.errors import HostKeyError, UnreachableError
from rankdeck.model.cluster import Cluster, Node
from rankdeck.remote.shell import (
    ClockOffset,
    Confirm,
    OnData,
    Receiver,
    ReceivingChannel,
    Shell,
    WithThisMachine,
    asks_here,
    exit_code,
    login_line,
    text_file,
)

Place = tuple[str, str, int | None]
"""(host, address, port or None for 22), by which known_hosts is searched for a key."""


@dataclass(frozen=True, slots=True)
class OfferedKey:
    """The host key of a server that is not in known_hosts."""

    place: Place
    key: asyncssh.SSHKey


class HostKeys:
    """The known_hosts files for a node; the first is the user's own."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(files)
        self._stamps: tuple[tuple[int, int], ...] | None = None
        self._known = asyncssh.SSHKnownHosts()

    def known(self) -> asyncssh.SSHKnownHosts:
        """The parsed files; read again only when one of them has changed."""
        stamps = tuple(_stamp(file) for file in self.files)
        if stamps != self._stamps:
            self._known = asyncssh.SSHKnownHosts()
            for file in self.files:
                for line in _lines(file):
                    _load(self._known, line)
            self._stamps = stamps
        return self._known

    def judge(self, node: str, offered: OfferedKey) -> HostKeyError:
        """The error for a key that is not known; `line` would accept it, "" if it contradicts a known key."""
        fingerprint = offered.key.get_fingerprint()
        if place := self._contradiction(offered.place):
            why = (
                f"its host key has changed to {fingerprint}: if the machine was set up anew, remove {place};"
                " if not, this may be a man-in-the-middle attack"
            )
            return HostKeyError(node, why, fingerprint=fingerprint)
        why = f"its host key is not known: {fingerprint}; compare it on the node and accept it"
        return HostKeyError(node, why, fingerprint=fingerprint, line=_line(offered))

    def accept(self, line: str) -> None:
        """Append this line to the user's known_hosts; raises OSError."""
        file = self.files[0]
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        append_lines(file, [line])

    def _contradiction(self, place: Place) -> str:
        """`file:line` of another key that is known for this host; "" if there is none."""
        for file in self.files:
            for number, line in enumerate(_lines(file), 1):
                alone = asyncssh.SSHKnownHosts()
                _load(alone, line)
                if alone.match(*place)[0]:
                    return f"{file}:{number}"
        return ""


def _line(offered: OfferedKey) -> str:
    host, _, port = offered.place
    name = f"[{host}]:{port}" if port else host
    words = offered.key.export_public_key().decode().split()
    return f"{name} {words[0]} {words[1]}"


def _load(known: asyncssh.SSHKnownHosts, line: str) -> None:
    try:
        known.load(line)
    except ValueError:
        return  # a broken line is ignored, as OpenSSH does


_MOST_KNOWN = 64 << 20
"""Most bytes of a known_hosts file: a site's own may have every machine."""


def _lines(file: Path) -> list[str]:
    try:
        return read_regular(file, _MOST_KNOWN).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _stamp(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except (OSError, ValueError):  # ValueError: a NUL character in its path
        return 0, 0
    return status.st_mtime_ns, status.st_size


FAN_OUT = 64
"""Most logins at a time, unless the cluster file sets a number."""
JUMP_FAN_OUT = 8
"""The same through one jump host: its sshd drops some of 10 or more at a time (MaxStartups 10:30:100)."""
KEEPALIVE, KEEPALIVE_MISSES = 5.0, 2
"""Seconds without a byte until a keepalive is sent, and how many may stay unanswered: 15 s in all, as for followers."""
FAILURES = (asyncssh.Error, asyncssh.ChannelListenError, OSError, ValueError)
"""All exceptions that asyncssh may raise; its key and config errors are ValueErrors."""


DROPS = (asyncssh.ConnectionLost, ConnectionResetError, BrokenPipeError)
PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds (± 50 %) until a login that the server dropped is tried again."""


class DroppedError(UnreachableError):
    """The server ended the connection before it sent its version, as servers do with too many logins at a time."""


class _Client(asyncssh.SSHClient):
    """Keeps a host key that is not in known_hosts, and whether the server has sent its version."""

    def __init__(self) -> None:
        self.offered: OfferedKey | None = None
        self._connection: asyncssh.SSHClientConnection | None = None

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self._connection = conn

    @property
    def greeted(self) -> bool:
        """Whether the server sent its version."""
        return bool(self._connection and self._connection.get_extra_info("server_version"))

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        self.offered = OfferedKey((host, addr, port if port != 22 else None), key)
        return False


class Logins:
    """Logs in to the nodes of a cluster, with keys and known_hosts parsed once."""

    def __init__(self, cluster: Cluster, confirm: Confirm | None) -> None:
        self._access = cluster.access
        text = cluster.access.config_text
        self._agreed = None if text is None else text_file(text)
        self._confirm = confirm
        self._hostkeys: dict[tuple[str, ...], HostKeys] = {}
        self._identity: list[asyncssh.SSHKey] | None = None
        self._refused: set[str] = set()
        self._gates: dict[str, asyncio.Semaphore] = {}
        """Jump host ("": none) -> semaphore that limits the logins through it."""

    @property
    def _config(self) -> Any:  # noqa: ANN401 - asyncssh takes (), None or a list
        """The ssh_config to read, in asyncssh's form: the text that the user agreed to, not the file as it is now."""
        if self._agreed is not None:
            return [f"/proc/self/fd/{self._agreed.fileno()}"]
        named = self._access.config
        if named == "none":
            return None
        return [str(expanded(named))] if named else ()

    async def connect(self, node: Node) -> asyncssh.SSHClientConnection:
        """Log in; asks once about an unknown host key. Raises UnreachableError."""
        try:
            return await self._attempt(node)
        except HostKeyError as error:
            if not error.line or self._confirm is None or error.line in self._refused:
                raise
            if not await self._confirm(error):
                self._refused.add(error.line)
                raise
            self._accept(node, error.line)
        return await self._attempt(node)

    def _accept(self, node: Node, line: str) -> None:
        hostkeys = self._trusted(node)
        try:
            hostkeys.accept(line)
        except OSError as error:
            why = f"the host key could not be added to {hostkeys.files[0]}: {error.strerror}"
            raise UnreachableError(node.name, why) from error

    async def _attempt(self, node: Node) -> asyncssh.SSHClientConnection:
        """Log in when it is this node's turn; try again if the server drops the login."""
        try:
            gate = self.gate_of(node)
        except FAILURES as error:
            raise UnreachableError(node.name, explain(error, node)) from error
        async with gate:  # also held during the pauses, so that fewer logins are tried at a time
            for pause in PAUSES:
                try:
                    return await self._login(node)
                except DroppedError:
                    await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            return await self._login(node)

    async def _login(self, node: Node) -> asyncssh.SSHClientConnection:
        client = _Client()
        try:
            hostkeys = self._trusted(node)
            options = self._options(node)
            async with asyncio.timeout(self._access.connect_limit):
                return await asyncssh.connect(
                    node.host,
                    client_factory=lambda: client,
                    # A function: with empty bytes, asyncssh would read ~/.ssh/known_hosts itself.
                    known_hosts=hostkeys.known().match,
                    **options,
                )
        except FAILURES as error:
            if client.offered is not None:
                raise self._trusted(node).judge(node.name, client.offered) from error
            if isinstance(error, DROPS) and not client.greeted:
                raise DroppedError(node.name, _dropped(node)) from error
            raise UnreachableError(node.name, explain(error, node)) from error

    def _options(self, node: Node) -> dict[str, Any]:
        access = self._access
        options: dict[str, Any] = {
            "config": self._config,
            "keepalive_interval": KEEPALIVE,
            "keepalive_count_max": KEEPALIVE_MISSES,
            "encoding": None,
        }
        if node.port != 22:
            options["port"] = node.port
        if access.user:
            options["username"] = access.user
        if access.identity:
            options["client_keys"] = self._keys()
        return options

    def _keys(self) -> list[asyncssh.SSHKey]:
        if self._identity is None:
            path = expanded(self._access.identity)
            try:
                self._identity = [asyncssh.import_private_key(read_regular(path))]
            except OSError as error:
                raise asyncssh.KeyImportError(f"{path}: {error.strerror or error}") from error
        return self._identity

    def gate_of(self, node: Node) -> asyncio.Semaphore:
        """The semaphore that limits logins to this node: one for all direct logins, and one for each jump host."""
        named: object = "" if self._access.config == "none" else self._probe(node).tunnel
        jump = named if isinstance(named, str) else ""
        if jump not in self._gates:
            most = self._access.logins or (JUMP_FAN_OUT if jump else FAN_OUT)
            self._gates[jump] = asyncio.Semaphore(most)
        return self._gates[jump]

    def _probe(self, node: Node) -> asyncssh.SSHClientConnectionOptions:
        """The options for this node in ssh_config."""
        return asyncssh.SSHClientConnectionOptions(
            host=node.host, config=self._config, client_keys=None, agent_path=None
        )

    def _trusted(self, node: Node) -> HostKeys:
        files = tuple(self._known_hosts_files(node))
        if files not in self._hostkeys:
            self._hostkeys[files] = HostKeys([expanded(file) for file in files])
        return self._hostkeys[files]

    def _known_hosts_files(self, node: Node) -> list[str]:
        if self._access.known_hosts:
            return [self._access.known_hosts]
        named: object = self._probe(node).known_hosts
        chosen = (
            [str(file) for file in cast("list[object]", named)] if isinstance(named, list) else []
        )
        return chosen or ["~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts"]


def explain(error: BaseException, node: Node) -> str:
    """What went wrong with the connection to this node, and what to do, in one sentence."""
    where = f"{node.host} port {node.port}"
    for kind, sentence in _SENTENCES:
        if isinstance(error, kind):
            return sentence.format(where=where, host=node.host, port=node.port, error=_words(error))
    if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return f"no route to {node.host}; is the network up, and the address right?"
    return f"no SSH connection to {where}: {_words(error)}"


def _dropped(node: Node) -> str:
    return (
        f"the SSH server of {node.host} port {node.port} ended the connection at once, {len(PAUSES) + 1} times: "
        "too many logins at a time? Say fewer with `ssh: {logins: 8}`, or look at its MaxStartups"
    )


def _words(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:300] or type(error).__name__


_SENTENCES: tuple[tuple[type[BaseException], str], ...] = (
    (
        asyncssh.PermissionDenied,
        "login refused (Permission denied): check `ssh: {{user, identity}}`, ssh-agent and the node's authorized_keys",
    ),
    (
        asyncssh.HostKeyNotVerifiable,
        "a host key on the way is not trusted ({error}): log in once with `ssh {host}` and look at it",
    ),
    (asyncssh.KeyEncryptionError, "the key has a passphrase: add it to ssh-agent with ssh-add"),
    (asyncssh.KeyImportError, "the key named by `ssh: {{identity}}` cannot be used: {error}"),
    (asyncssh.ConfigParseError, "the ssh_config file cannot be read: {error}"),
    (asyncssh.KeyExchangeFailed, "no common algorithm with the SSH server of {where}: {error}"),
    (ConnectionRefusedError, "{where} refused the connection; is sshd running there?"),
    (TimeoutError, "{where} does not answer; is the node up?"),
    (socket.gaierror, "the name {host} does not resolve: give an `address` in the cluster file"),
    (asyncssh.ChannelOpenError, "the SSH server allows no further session: {error}"),
    (asyncssh.ChannelListenError, "the SSH server refuses port forwarding; see AllowTcpForwarding"),
)


SESSIONS = 8
"""Most sessions per connection; OpenSSH allows 10."""
OPEN_LIMIT = 15.0
CLOSE_LIMIT = 3.0
_PINGS = 4
_CLOCK = ("sh", "-c", "while read x; do date +%s.%N; done")
_STAMP = re.compile(rb"(\d{9,11})(\.\d+)?")


class _Session(Receiver, asyncssh.SSHClientSession[bytes]):
    """Receives the calls of asyncssh."""


class SshChannel(ReceivingChannel):
    """One running program; see `shell.Channel`."""

    def __init__(
        self, node: Node, channel: "asyncssh.SSHClientChannel[bytes]", session: _Session
    ) -> None:
        super().__init__(session)
        self._node, self._channel = node, channel

    def write(self, data: bytes) -> None:
        if not self._channel.is_closing():
            self._channel.write(data)  # pyright: ignore[reportUnknownMemberType]

    def end(self) -> None:
        if not self._channel.is_closing() and self._channel.can_write_eof():
            self._channel.write_eof()

    def pause(self) -> None:
        self._channel.pause_reading()

    def resume(self) -> None:
        self._channel.resume_reading()

    async def wait(self) -> int:
        error = await self._end()
        code = self._channel.get_returncode()
        if code is None:
            why = explain(error, self._node) if error else "the connection was lost"
            raise UnreachableError(self._node.name, why) from error
        return exit_code(code)

    async def close(self) -> None:
        self._channel.close()


class _Link:
    """A connection, and how many sessions use it."""

    def __init__(self, connection: asyncssh.SSHClientConnection) -> None:
        self.connection = connection
        self.sessions = 0

    @property
    def alive(self) -> bool:
        return not self.connection.is_closed()


class Connections:
    """Connections to all nodes of a cluster (see `shell.Shell`); an async context manager that closes them."""

    def __init__(self, cluster: Cluster, confirm: Confirm | None = None) -> None:
        self._nodes = {node.name: node for node in cluster.hosts}
        self._logins = Logins(cluster, confirm)
        self._locks = {name: asyncio.Lock() for name in self._nodes}
        self._links: dict[str, list[_Link]] = {name: [] for name in self._nodes}
        self._clocks: dict[str, tuple[_Link, ClockOffset]] = {}

    async def __aenter__(self) -> "Connections":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        links = [link for links in self._links.values() for link in links]
        for link in links:
            link.connection.close()
        try:
            async with asyncio.timeout(CLOSE_LIMIT):
                for link in links:
                    await link.connection.wait_closed()
        except TimeoutError:
            for link in links:
                link.connection.abort()

    def connected(self, node: str) -> bool:
        """Whether there is a connection to the node now."""
        return any(link.alive for link in self._links.get(node, ()))

    def drop(self, node: str) -> None:
        """Cut every connection to a node; the next use opens a new one."""
        for link in self._links.get(node, ()):
            link.connection.abort()

    async def open(self, node: str, argv: Sequence[str], on_data: OnData) -> SshChannel:
        """Start a program; `on_data` is called with its stdout as it arrives. Raises UnreachableError."""
        link = await self._free_link(node)
        command = login_line(argv)
        session = _Session(on_data)
        link.sessions += 1
        opened = False
        try:
            async with self._opening(node):
                channel, _ = await link.connection.create_session(  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
                    lambda: session, command, encoding=None
                )
            opened = True
        finally:
            link.sessions -= not opened
        session.ended.add_done_callback(lambda _: _release(link))
        return SshChannel(
            self._nodes[node], cast("asyncssh.SSHClientChannel[bytes]", channel), session
        )

    async def reverse_tunnel(self, node: str, host: str, port: int) -> int:
        """Open a port on the node's loopback that leads to `host:port` as seen from this machine; returns the port."""
        link = await self._free_link(node)
        async with self._opening(node):
            listener = await link.connection.forward_remote_port("127.0.0.1", 0, host, port)
        return listener.get_port()

    async def clock(self, node: str) -> ClockOffset:
        """How the node's clock differs from the console's; measured once per connection. Raises UnreachableError."""
        link = await self._free_link(node)
        known = self._clocks.get(node)
        if known is None or known[0] is not link:
            known = link, await self._measure(node)
            self._clocks[node] = known
        return known[1]

    async def _measure(self, node: str) -> ClockOffset:
        answers: asyncio.Queue[bytes] = asyncio.Queue()
        channel = await self.open(node, _CLOCK, answers.put_nowait)
        best = ClockOffset(0.0, 60.0)
        try:
            async with asyncio.timeout(5):
                for _ in range(_PINGS):
                    asked = time.time()
                    channel.write(b"\n")
                    best = min(best, _reading(await answers.get(), asked), key=_width)
        except TimeoutError:
            return best
        finally:
            await channel.close()
        return best

    async def _free_link(self, node: str) -> _Link:
        if node not in self._nodes:
            raise UnreachableError(node, "no node of that name in the cluster file")
        async with self._locks[node]:
            links = [link for link in self._links[node] if link.alive]
            self._links[node] = links
            for link in links:
                if link.sessions < SESSIONS:
                    return link
            link = _Link(await self._logins.connect(self._nodes[node]))
            links.append(link)
            return link

    @asynccontextmanager
    async def _opening(self, node: str) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(OPEN_LIMIT):
                yield
        except FAILURES as error:
            raise UnreachableError(node, explain(error, self._nodes[node])) from error


def _release(link: _Link) -> None:
    link.sessions -= 1


def _width(clock: ClockOffset) -> float:
    return clock.uncertainty


def _reading(answer: bytes, asked: float) -> ClockOffset:
    """The clock offset by one answer: the node read its clock in the middle of the round trip, ± half of it."""
    answered = time.time()
    match = _STAMP.search(answer)
    if match is None:
        return ClockOffset(0.0, 60.0)
    half = (answered - asked) / 2
    if match[2] is None:
        return ClockOffset(int(match[1]) + 0.5 - asked - half, half + 0.5)
    return ClockOffset(float(match[0]) - asked - half, half)


@asynccontextmanager
async def reach(cluster: Cluster, confirm: Confirm) -> AsyncGenerator[Shell]:
    """The shell for the nodes of a cluster; with this machine too, if that runs kubectl for the cluster.

    `confirm` is awaited with each unknown host key.
    """
    async with Connections(cluster, confirm) as connections:
        yield WithThisMachine(connections) if asks_here(cluster) else connections
