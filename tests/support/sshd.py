"""SSH servers on loopback that really run commands, each with a HOME of its own."""

import asyncio
import os
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from rankdeck.demo.server import RemoteCommand
from rankdeck.model.cluster import Access, Cluster, Node
from tests.support.agent_file import put_agent


@dataclass
class UnderWay:
    """How many logins to all servers are under way now, and the most so far."""

    now: int = 0
    most: int = 0


class _Command(RemoteCommand):
    def _hold(self, *, full):
        """Read all input without flow control: tests send little to commands."""


class _Server(asyncssh.SSHServer):
    def __init__(self, sshd):
        self.sshd = sshd

    def connection_made(self, conn):
        self.connection = conn
        self.sshd.connections.append(conn)
        self.sshd.logins.now += 1
        self.sshd.logins.most = max(self.sshd.logins.most, self.sshd.logins.now)
        if self.sshd.dropping:
            self.sshd.dropping -= 1
            conn.abort()

    def auth_completed(self):
        self.sshd.logins.now -= 1

    def session_requested(self):
        self.sshd.sessions += 1
        return _Command(self.sshd.environment)

    def connection_requested(self, dest_host, dest_port, orig_host, orig_port):
        return True

    def begin_auth(self, username):
        if self.sshd.banner:
            self.connection.send_auth_banner(self.sshd.banner)
        return True

    def server_requested(self, listen_host, listen_port):
        return self.sshd.forwards


@dataclass
class Sshd:
    """The SSH server of one node: its port, its home, and ways to cut its link."""

    name: str
    home: Path
    host_key: asyncssh.SSHKey
    authorized: Path
    environment: dict[str, str] = field(default_factory=dict)
    connections: list = field(default_factory=list)
    sessions: int = 0
    dropping: int = 0
    """Logins still to be dropped at once, as sshd does at MaxStartups."""
    banner: str = ""
    """What it says before a login."""
    forwards: bool = True
    """Whether it opens ports, as AllowTcpForwarding says."""
    port: int = 0
    acceptor: asyncssh.SSHAcceptor | None = None
    logins: UnderWay = field(default_factory=UnderWay)

    async def start(self):
        self.acceptor = await asyncssh.create_server(
            lambda: _Server(self),
            "127.0.0.1",
            self.port,
            server_host_keys=[self.host_key],
            authorized_client_keys=str(self.authorized),
            password_auth=False,
            encoding=None,
            line_editor=False,
        )
        self.port = self.acceptor.get_port()

    async def stop(self):
        self.acceptor.close()
        await self.acceptor.wait_closed()
        self.cut()

    @asynccontextmanager
    async def frozen(self):
        """Inside the block connections are accepted and nobody answers, as with a stopped sshd."""
        await self.stop()
        with socket.create_server(("127.0.0.1", self.port)):
            yield
        await self.start()

    def cut(self):
        """Break every connection, as a pulled cable finally does."""
        for connection in self.connections:
            connection.abort()
        self.connections.clear()


@dataclass
class Nodes:
    """Several nodes and the cluster they make."""

    root: Path
    sshd: dict[str, Sshd]
    cluster: Cluster
    logins: UnderWay


@asynccontextmanager
async def nodes(root: Path, names=("n1", "n2"), **node_options):
    """Nodes that run; the cluster's access is self-contained in `root`."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(root / "id")
    (root / "id").chmod(0o600)
    key.write_public_key(root / "authorized")
    logins = UnderWay()
    servers = {name: _node(root, name, logins) for name in names}
    for server in servers.values():
        await server.start()
    known = [
        f"[127.0.0.1]:{s.port} {s.host_key.export_public_key().decode()}" for s in servers.values()
    ]
    (root / "known_hosts").write_text("".join(known))
    access = Access(
        user="tester",
        identity=str(root / "id"),
        known_hosts=str(root / "known_hosts"),
        config="none",
        connect_limit=5,
    )
    members = tuple(
        Node(
            name=s.name,
            address="127.0.0.1",
            port=s.port,
            **{"slots": 2, **node_options},
        )
        for s in servers.values()
    )
    try:
        yield Nodes(root, servers, Cluster(name="test", nodes=members, access=access), logins)
    finally:
        for server in servers.values():
            await server.stop()


@asynccontextmanager
async def nodes_with_agent(root: Path, names=("n1", "n2")):
    """The same, and the agent is there already."""
    async with nodes(root, names) as found:
        await asyncio.to_thread(put_agent, [sshd.home for sshd in found.sshd.values()])
        yield found


def _node(root, name, logins):
    home = root / name
    home.mkdir()
    environment = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "RANKDECK_STATE": str(home / "state"),
        "USER": "tester",
    }
    key = asyncssh.generate_private_key("ssh-ed25519")
    return Sshd(name, home, key, root / "authorized", environment, logins=logins)
