"""One login by asyncssh: its keys in OpenSSH's order, the host key that is
not known, and what the server asks.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import asyncssh

from rankdeck.remote.host_keys import HostKeys, OfferedKey
from rankdeck.remote.identities import (
    MODULES,
    KeyFile,
    Usable,
    agent_path,
    from_agent,
    match_certificates,
)
from rankdeck.remote.locked_keys import DeferredKey, KeyRing
from rankdeck.remote.login_errors import FAILURES, Destination
from rankdeck.remote.proxy_command import ProxyProgram
from rankdeck.remote.questions import Conversation
from rankdeck.remote.smart_cards import LockedKeyError
from rankdeck.remote.ssh_config import HostSettings, SshConfigError
from rankdeck.values import Value


class Route(Value):
    """What one login needs."""

    node: str
    settings: HostSettings | None
    """None: asyncssh reads the configuration by itself, or there is none."""
    host: str
    """The host to give to asyncssh."""
    to: Destination
    hostkeys: HostKeys
    files: tuple[KeyFile, ...] | None = None
    """The key files to use; None: asyncssh takes the usual ones."""
    jump: bool = False
    """Whether it is the login to a jump host."""
    plain: bool = False
    """Whether the host key itself must be known, because its certificate is not valid."""

    @property
    def strict(self) -> str:
        """StrictHostKeyChecking, as OpenSSH prints it."""
        return self.settings.one("stricthostkeychecking") if self.settings else "ask"


class LoginClient(asyncssh.SSHClient):
    """One login: its keys, the host key that is not in known_hosts, and
    whether the server has sent its version.
    """

    def __init__(self, route: Route, talk: Conversation, ring: KeyRing) -> None:
        self._route, self.talk, self._ring = route, talk, ring
        self.offered: OfferedKey | None = None
        self.in_use = False
        """Whether the login is done; before that, the one who logs in needs what a proxy said."""
        self.carriers: list[asyncssh.SSHClientConnection | ProxyProgram] = []
        """Jump host or proxy that end with the connection."""
        self._connection: asyncssh.SSHClientConnection | None = None
        self.agent: asyncssh.SSHAgentClient | None = None
        self._offers = self._offer_keys()
        self.locked: list[str] = []
        """Why keys were not opened."""
        self.banner = ""
        """What the server said before the login, such as that only root may log in now."""

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self._connection = conn

    def connection_lost(self, exc: Exception | None) -> None:
        if self.in_use:
            self.release()

    def finish(self, connection: asyncssh.SSHClientConnection | None) -> None:
        """The login is over, with this connection; without one, what
        should carry it is not needed.
        """
        if self.agent is not None:
            self.agent.close()
            self.agent = None
        self.talk.end()
        self.in_use = True
        if connection is None or connection.is_closed():
            self.release()

    def release(self) -> None:
        """End what carries the connection."""
        for one in self.carriers:
            if isinstance(one, ProxyProgram):
                one.end()
            else:
                one.close()
        self.carriers.clear()

    def auth_banner_received(self, msg: str, lang: str) -> None:
        self.banner = msg

    @property
    def greeted(self) -> bool:
        """Whether the server sent its version."""
        return bool(self._connection and self._connection.get_extra_info("server_version"))

    @property
    def agreed(self) -> bool:
        """Whether both have agreed on algorithms."""
        return bool(self._connection and self._connection.get_extra_info("send_cipher"))

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        route = self._route
        alone = port == 22 or (route.settings is not None and route.settings.alias)
        offered = OfferedKey((host, addr, None if alone else port), key)
        if route.strict in ("false", "accept-new"):
            # Only here: it looks through all known keys, and is asked
            # again when a login is refused.
            line = route.hostkeys.judge(route.node, offered).line
            if line:
                with suppress(OSError):  # as OpenSSH, which goes on if it cannot write there
                    route.hostkeys.accept(line)
            if line or route.strict == "false":
                return True
        self.offered = offered
        return False

    async def public_key_auth_requested(self) -> Any:  # noqa: ANN401 - one of asyncssh's many forms of keys
        return await anext(self._offers, None)

    async def _offer_keys(self) -> AsyncGenerator[list[Usable]]:
        """The keys in OpenSSH's order; each list when the server has refused those before it."""
        files = self._route.files
        if files is None:
            return
        certified = await asyncio.to_thread(match_certificates, self._route.settings, files)
        ready = await self._held(files)
        for file in files:
            if file.sealed and not file.public:  # what to offer is in the part that is locked
                if ready:
                    yield ready
                ready = []
            ready += await self._usable(file, certified)
        if ready:
            yield ready
        if on_cards := await self._on_cards():
            yield on_cards

    async def _usable(
        self, file: KeyFile, certified: Mapping[bytes, asyncssh.SSHCertificate]
    ) -> list[Usable]:
        """The private key of a file, after its certificate; none if it has none or stays locked."""
        public, private = file.public, file.private
        if file.sealed and not public:
            try:
                public = private = await self._open(file)
            except LockedKeyError:
                return []
        if public is None or not (private or file.sealed):
            return []
        certificate = certified.get(public.public_data)
        if private:
            return [(private, certificate), private] if certificate else [private]

        async def sign(data: bytes, way: bytes) -> bytes:
            return (await self._open(file)).sign(data, way)

        found: list[Usable] = [DeferredKey(public, certificate, sign)] if certificate else []
        return [*found, DeferredKey(public, None, sign)]

    async def _on_cards(self) -> list[Usable]:
        """The keys of smart cards: last, for the PIN is wanted before it is
        known whether the server takes them.
        """
        settings = self._route.settings
        provider = settings.one("pkcs11provider") if settings else ""
        if settings is None or not provider or "pkcs11" not in MODULES:
            return []
        try:
            return [*await self._ring.cards.keys(settings.path(provider), self.talk)]
        except (LockedKeyError, SshConfigError) as error:
            self.locked.append(str(error))
            return []

    async def _open(self, file: KeyFile) -> asyncssh.SSHKey:
        """The private key of a file with a passphrase. Raises LockedKeyError."""
        try:
            return (await self._ring.open(file, self.talk)).key
        except LockedKeyError as error:
            self.locked.append(str(error))
            raise

    def auth_completed(self) -> None:
        self.talk.accepted()

    async def password_auth_requested(self) -> str | None:
        return await self.talk.password()

    async def kbdint_auth_requested(self) -> str | None:
        return "" if await self.talk.begin() else None

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> list[str] | None:
        return await self.talk.reply(f"{name} {instructions}".strip(), prompts)

    async def _held(self, files: Sequence[KeyFile]) -> list[Usable]:
        settings = self._route.settings
        if not (path := agent_path(settings)):
            return []
        try:
            self.agent = await asyncssh.connect_agent(path)
            return await from_agent(self.agent, settings, files)
        except FAILURES:
            return []  # no agent listens there, as with OpenSSH
