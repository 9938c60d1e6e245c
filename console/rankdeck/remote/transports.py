"""Which way leads to each node: this machine itself, a connection of
asyncssh, the user's own program ssh, or steps of srun.
"""

import asyncio
import logging
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from rankdeck.errors import AlgorithmError
from rankdeck.model.cluster import Cluster, Transport
from rankdeck.remote.identities import MODULES, KeyFile, by_kerberos_alone
from rankdeck.remote.logins import Logins
from rankdeck.remote.openssh import OpenSsh
from rankdeck.remote.questions import Answer, Confirm
from rankdeck.remote.shell import (
    THIS_MACHINE,
    Channel,
    ClockOffset,
    LocalShell,
    OnData,
    Shell,
    Way,
    asks_here,
)
from rankdeck.remote.srun import SrunShell
from rankdeck.remote.ssh import Connections
from rankdeck.remote.ssh_config import HostSettings
from rankdeck.remote.this_machine import login_leads_here, shell_here

log = logging.getLogger(__name__)
T = TypeVar("T")

_SETTINGS = ("KnownHostsCommand", "RevokedHostKeys", "BindInterface")
_SWITCHES = ("NoHostAuthenticationForLocalhost", "VerifyHostKeyDNS")
"""Options that asyncssh lacks, and that decide which host is trusted or how it is reached."""


def needs_openssh(
    settings: HostSettings, files: Sequence[KeyFile], modules: Collection[str]
) -> str:
    """The option of ssh_config that only the program ssh can follow, with
    these of MODULES; "" if there is none.

    `files`: the key files for the host.
    """
    if settings.one("pkcs11provider") and "pkcs11" not in modules:
        return "PKCS11Provider"
    if settings.one("securitykeyprovider") not in ("", "internal"):
        return "SecurityKeyProvider"
    if named := next((one for one in _SETTINGS if settings.one(one.lower())), ""):
        return named
    if named := next((one for one in _SWITCHES if settings.yes(one.lower())), ""):
        return named
    kept = [file for file in files if file.private or file.sealed or file.needs_token]
    if kept and "fido2" not in modules and all(file.needs_token for file in kept):
        return "IdentityFile (a security key)"
    kerberos = settings.yes("gssapiauthentication") and by_kerberos_alone(settings)
    if kerberos and "gssapi" not in modules:
        return "GSSAPIAuthentication"
    return ""


class Transports:
    """The shell for all machines of a cluster (see `shell.Shell`): each goes
    its own way, chosen at its first use.
    """

    def __init__(
        self, cluster: Cluster, logins: Logins, connections: Connections, openssh: OpenSsh
    ) -> None:
        self._cluster, self._wanted = cluster, cluster.access.transport
        self._nodes = {node.name: node for node in cluster.hosts}
        self._logins, self._connections, self._openssh = logins, connections, openssh
        self._here = shell_here(cluster)
        self._chosen: dict[str, Shell] = {
            node.name: self._here for node in cluster.hosts if node.here
        }
        if asks_here(cluster):
            self._chosen[THIS_MACHINE] = LocalShell()
        if self._wanted is Transport.SRUN:
            steps = SrunShell(cluster)
            self._chosen |= {node.name: steps for node in cluster.nodes if not node.here}
        self._locks: dict[str, asyncio.Lock] = {}
        self._said: set[str] = set()

    async def open(self, node: str, argv: Sequence[str], on_data: OnData) -> Channel:
        return await self._by_its_way(node, lambda shell: shell.open(node, argv, on_data))

    async def reverse_tunnel(self, node: str, host: str, port: int) -> int:
        return await self._by_its_way(node, lambda shell: shell.reverse_tunnel(node, host, port))

    async def clock(self, node: str) -> ClockOffset:
        return await self._by_its_way(node, lambda shell: shell.clock(node))

    def way(self, node: str) -> Way:
        return self._chosen[node].way(node) if node in self._chosen else Way()

    async def _by_its_way(self, node: str, use: Callable[[Shell], Awaitable[T]]) -> T:
        """Use the node's shell; the program ssh where asyncssh lacks the server's algorithms."""
        shell = await self._of(node)
        try:
            return await use(shell)
        except AlgorithmError:
            free = self._wanted is None and shell is self._connections
            if not free or shutil.which("ssh") is None:
                raise
        log.info("%s: reached by the program ssh, because of the server's algorithms", node)
        self._chosen[node] = self._openssh
        return await use(self._openssh)

    async def _of(self, node: str) -> Shell:
        if node in self._chosen:
            return self._chosen[node]
        async with self._locks.setdefault(node, asyncio.Lock()):
            if node not in self._chosen:
                self._chosen[node] = await self._choose(node)
            return self._chosen[node]

    async def _choose(self, name: str) -> Shell:
        if self._wanted is not None or name not in self._nodes:
            return self._openssh if self._wanted is Transport.OPENSSH else self._connections
        node = self._nodes[name]
        settings = await self._logins.settings(node)
        is_login = name == self._cluster.options.get("login")
        if is_login and await login_leads_here(self._cluster, settings):
            log.info("%s: is this machine, and used without SSH", name)
            return self._here
        if settings is None:
            return self._connections
        files = await self._logins.key_files(node, settings)
        why = needs_openssh(settings, files, MODULES)
        for jump in await self._logins.jump_settings(node, settings):
            why = why or needs_openssh(jump, await self._logins.jump_key_files(jump), MODULES)
        if not why and await self._logins.open_master(node):
            why = "ControlPath"
        if why and why not in self._said:
            self._said.add(why)
            log.info("%s: reached by the program ssh, because of %s in ssh_config", name, why)
        return self._openssh if why else self._connections


@asynccontextmanager
async def reach_cluster(
    cluster: Cluster, confirm: Confirm, answer: Answer | None = None
) -> AsyncGenerator[Shell]:
    """The shell for the nodes of a cluster; with this machine too, if that
    is one or runs kubectl for the cluster.

    `confirm` is awaited with each unknown host key, `answer` with what servers
    ask at a login; None: nobody can be asked.
    """
    logins = Logins(cluster, confirm, answer)
    async with Connections(cluster, logins=logins) as one, OpenSsh(cluster, logins) as other:
        yield Transports(cluster, logins, one, other)
