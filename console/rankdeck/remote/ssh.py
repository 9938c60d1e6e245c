"""SSH connections to the nodes, opened when needed, shared, reopened when
lost, with sessions and tunnels on them.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import cast

import asyncssh

from rankdeck.errors import UnreachableError
from rankdeck.model.cluster import Cluster, Node
from rankdeck.remote.clock import ClockOffsets
from rankdeck.remote.login_errors import (
    FAILURES,
    ended_after_login,
    explain_login_error,
    of_node,
    unreachable_error,
)
from rankdeck.remote.logins import CLOSE_LIMIT, OPEN_LIMIT, Login, Logins
from rankdeck.remote.questions import Confirm
from rankdeck.remote.shell import (
    ClockOffset,
    OnData,
    Receiver,
    ReceivingChannel,
    Way,
    login_line,
    shell_exit_code,
)

SESSIONS = 8
"""Most sessions per connection; OpenSSH allows 10."""
_CLEARED = 0.1
"""Seconds for a server to clear away a session that has ended."""


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
            why = (
                explain_login_error(error, of_node(self._node))
                if error
                else "the connection was lost"
            )
            raise UnreachableError(self._node.name, why) from error
        return shell_exit_code(code)

    async def close(self) -> None:
        self._channel.close()


class _Link:
    """A connection, and how many sessions use it."""

    def __init__(self, login: Login) -> None:
        self.connection, self.destination = login.connection, login.destination
        self.sessions = 0
        self.answered = False
        """Whether a program on it was heard."""
        self.served = False
        """Whether the last session could be opened."""
        self.most = SESSIONS
        """Most sessions that the server allows on it, as far as is known."""

    @property
    def alive(self) -> bool:
        return not self.connection.is_closed()


class Connections:
    """Connections to all nodes of a cluster (see `shell.Shell`); an
    async context manager that closes them.
    """

    def __init__(
        self, cluster: Cluster, confirm: Confirm | None = None, logins: Logins | None = None
    ) -> None:
        self._nodes = {node.name: node for node in cluster.hosts}
        self._open_limit = OPEN_LIMIT * cluster.access.patience
        self._logins = logins or Logins(cluster, confirm)
        self._locks = {name: asyncio.Lock() for name in self._nodes}
        self._links: dict[str, list[_Link]] = {name: [] for name in self._nodes}
        self._clocks = ClockOffsets(self, cluster.access.patience)

    async def __aenter__(self) -> "Connections":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        links = [link for links in self._links.values() for link in links]
        self._logins.close()
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
        """Start a program; `on_data` is called with its stdout as it arrives.

        Raises UnreachableError.
        """
        command, session = login_line(argv), _Session(on_data)
        there = self._known(node)
        await self._free_link(there)
        async with self._logins.first_program(lambda: self._answered(node)) as turn:
            link = await self._free_link(there)
            while (channel := await self._session(node, link, session, command)) is None:
                link = await self._free_link(there)
            turn.keep_until(session.heard)
        session.heard.add_done_callback(lambda _: _note_answer(link))
        session.ended.add_done_callback(lambda _: _release(link))
        return SshChannel(there, channel, session)

    async def _session(
        self, node: str, link: _Link, session: _Session, command: str
    ) -> "asyncssh.SSHClientChannel[bytes] | None":
        """A session that runs this command; None if others on the
        connection leave none for it (MaxSessions).

        Raises UnreachableError.
        """
        link.sessions += 1
        opened = False
        try:
            async with self._opening(node, link):
                channel, _ = await link.connection.create_session(  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
                    lambda: session, command, encoding=None
                )
            opened = link.served = True
        except UnreachableError as error:
            if not isinstance(error.__cause__, asyncssh.ChannelOpenError):
                raise
            if not link.alive:
                raise UnreachableError(node, ended_after_login(link.destination)) from error
            if others := link.sessions - 1:
                # Others that were refused at the same time are still counted, so
                # the last of them says the least.
                link.most = min(link.most, others)
                self._logins.note_few_sessions(node)
            elif link.served:  # sshd has not yet cleared away the session that has just ended
                link.served = False
                await asyncio.sleep(_CLEARED)
            else:
                raise
            return None
        finally:
            link.sessions -= not opened
        return cast("asyncssh.SSHClientChannel[bytes]", channel)

    async def reverse_tunnel(self, node: str, host: str, port: int) -> int:
        """Open a port on the node's loopback that leads to `host:port` as seen
        from this machine; returns the port.
        """
        link = await self._free_link(self._known(node))
        async with self._opening(node, link):
            listener = await link.connection.forward_remote_port("127.0.0.1", 0, host, port)
        return listener.get_port()

    def way(self, node: str) -> Way:
        """What is particular about the way to the node, as far as it was used."""
        return Way(few_sessions=node in self._logins.few_sessions)

    async def clock(self, node: str) -> ClockOffset:
        """How the node's clock differs from the console's; measured once per connection.

        Raises UnreachableError.
        """
        return await self._clocks.of(node, await self._free_link(self._known(node)))

    def _known(self, node: str) -> Node:
        if node not in self._nodes:
            raise UnreachableError(node, "no node of that name in the cluster file")
        return self._nodes[node]

    def _answered(self, node: str) -> bool:
        return any(link.alive and link.answered for link in self._links[node])

    async def _free_link(self, node: Node) -> _Link:
        async with self._locks[node.name]:
            links = [link for link in self._links[node.name] if link.alive]
            self._links[node.name] = links
            for link in links:
                if link.sessions < link.most:
                    return link
            link = _Link(await self._logins.connect(node))
            links.append(link)
            return link

    @asynccontextmanager
    async def _opening(self, node: str, link: _Link) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(self._open_limit):
                yield
        except FAILURES as error:
            raise unreachable_error(node, error, link.destination) from error


def _release(link: _Link) -> None:
    link.sessions -= 1


def _note_answer(link: _Link) -> None:
    link.answered = True
