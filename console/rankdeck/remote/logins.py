"""Logins to the nodes of a cluster: what OpenSSH's settings mean for
asyncssh, jump hosts, proxies, few at a time.
"""

import asyncio
import logging
import os
import random
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import asyncssh
from asyncssh.constants import OPEN_ADMINISTRATIVELY_PROHIBITED

from rankdeck.config.files import expand_path
from rankdeck.errors import AlgorithmError, HostKeyError, UnreachableError
from rankdeck.model.cluster import Access, Cluster, Node
from rankdeck.remote.control_socket import has_sockets, master_answers
from rankdeck.remote.host_keys import NOWHERE, HostKeys, OfferedKey, unknown_key_error
from rankdeck.remote.identities import Identities, KeyFile, unused_remarks
from rankdeck.remote.locked_keys import KeyRing
from rankdeck.remote.login_client import LoginClient, Route
from rankdeck.remote.login_errors import (
    DROPS,
    FAILURES,
    CertificateError,
    Destination,
    DroppedError,
    distrusts_certificate,
    dropped_login,
    ended_negotiation,
    explain_login_error,
    of_node,
    unreachable_error,
)
from rankdeck.remote.proxy_command import ProxyProgram, start_proxy
from rankdeck.remote.questions import (
    KEY_LIMIT,
    MOST_TRIES,
    WAITS,
    Answer,
    Asker,
    Confirm,
    Conversation,
)
from rankdeck.remote.shell import last_line
from rankdeck.remote.ssh_config import HostSettings, SshConfig, SshConfigError
from rankdeck.remote.ssh_options import chosen_algorithms, connect_options
from rankdeck.remote.ssh_questions import SshConversation, same_machine
from rankdeck.remote.user_ssh import text_file
from rankdeck.values import Value, replace

log = logging.getLogger(__name__)
# Without a handler Python would write the library's warnings to the terminal.
logging.getLogger("asyncssh").addHandler(logging.NullHandler())

FAN_OUT = 64
"""Most logins and first programs at a time, unless the cluster file sets a number."""
JUMP_FAN_OUT = 8
"""Most logins through one jump host: its sshd drops some of 10 or more
at a time (MaxStartups 10:30:100).
"""
START_LIMIT = 30.0
"""Seconds after which a first program that was not heard leaves its turn to others."""
KEEPALIVE, KEEPALIVE_MISSES = 5.0, 2
"""Seconds without a byte until a keepalive is sent, and how many may stay
unanswered: 15 s in all, as for followers.
"""
OPEN_LIMIT, CLOSE_LIMIT = 15.0, 3.0
"""Seconds to open a session or tunnel on a connection, and to end all connections."""
PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds (± 50 %) until a login that the server dropped is tried again."""
MOST_JUMPS = 8
T = TypeVar("T")
_JUMP = re.compile(
    r"(?:ssh://)?(?:(.*)@)?(\[[^\]]+\]|[^\[\]:]+|[^\[\]@]*:[^\[\]@]*:[^\[\]@]*)(?::(\d{1,5}))?/?"
)


class Login(Value):
    """A connection, and where it leads."""

    connection: asyncssh.SSHClientConnection
    destination: Destination
    asked: bool
    """Whether the operator was asked something."""


_JumpKey = tuple[str, int, str, str]
"""Host, port and user of a jump host as they are named, and the jump hosts before it."""


@dataclass(slots=True)
class _JumpHost:
    """A jump host that nodes share."""

    first: asyncio.Lock = field(default_factory=asyncio.Lock)
    asks: bool | None = None
    """Whether a login there asks the operator; None: not known yet."""
    login: Login | None = None
    """The login that all nodes use, where each would ask."""


class Turn:
    """A turn to start the first program on a node; see `Logins.first_program`."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self.gate: asyncio.Semaphore | None = None
        """What counts the turns; None: it is not counted."""
        self.kept = False
        """Whether it lasts longer than the block in which it was taken."""

    def keep_until(self, heard: asyncio.Future[None]) -> None:
        """Keep the turn until the program was heard, at most for the limit."""
        self.kept = True
        timer = asyncio.get_running_loop().call_later(self._limit, self.end)
        heard.add_done_callback(lambda _: (timer.cancel(), self.end()))

    def end(self) -> None:
        """Leave the turn to another; the second time, do nothing."""
        gate, self.gate = self.gate, None
        if gate is not None:
            gate.release()


class Logins:
    """Logs in to the nodes of a cluster, with keys and known_hosts parsed once."""

    def __init__(
        self, cluster: Cluster, confirm: Confirm | None, answer: Answer | None = None
    ) -> None:
        """`answer`: who answers what servers ask at a login; None: nobody."""
        self._access: Access = cluster.access
        text = cluster.access.config_text
        self._agreed = None if text is None else text_file(text)
        self._ssh = SshConfig(self._config_file)
        self._confirm, self.asker = confirm, Asker(answer)
        self._jumps: dict[_JumpKey, _JumpHost] = {}
        self._hostkeys: dict[tuple[str, ...], HostKeys] = {}
        self._identities, self.ring = Identities(), KeyRing()
        self._judged_lines: dict[str, bool] = {}
        """Line of an unknown host key -> whether the operator accepts it."""
        self._questions: dict[str, HostKeys] = {}
        """Line of an unknown host key -> the files that it would be added to."""
        self._gates: dict[str, asyncio.Semaphore] = {}
        """Jump host ("": none) -> semaphore that limits the logins through it."""
        self._first_programs = asyncio.Semaphore(cluster.access.logins or FAN_OUT)
        self._said: set[str] = set()
        self.few_sessions: set[str] = set()
        """Nodes whose server refused a further session on a connection, so
        that there are more connections.
        """

    @property
    def _config_file(self) -> str:
        """The ssh_config to read instead of the usual ones: the text that the user
        agreed to, not the file as it is now.
        """
        if self._agreed is not None:
            return f"/proc/{os.getpid()}/fd/{self._agreed.fileno()}"
        named = self._access.config
        return str(expand_path(named)) if named not in ("", "none") else ""

    @property
    def _config(self) -> Any:  # noqa: ANN401 - asyncssh takes (), None or a list
        """The same in asyncssh's form, for machines without OpenSSH."""
        if self._access.config == "none":
            return None
        return [self._config_file] if self._config_file else ()

    def close(self) -> None:
        """End the connections to jump hosts that nodes share."""
        for jump in self._jumps.values():
            if jump.login is not None:
                jump.login.connection.close()

    async def connect(self, node: Node) -> Login:
        """Log in; asks once about an unknown host key. Raises UnreachableError."""
        return await self.with_known_key(node, lambda: self._login(node))

    async def with_known_key(self, node: Node, log_in: Callable[[], Awaitable[T]]) -> T:
        """Await `log_in` in turn, again if it fails for an unknown
        host key that the operator accepts.

        Raises UnreachableError.
        """
        with self.asker.counted():
            return await self._with_known_key(node, log_in)

    async def _with_known_key(self, node: Node, log_in: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self.in_turn(node, log_in)
        except HostKeyError as error:
            if not error.line or self._confirm is None:
                raise
            async with self.asker.asking:
                if error.line not in self._judged_lines:
                    await self._judge_key(node, error, self._confirm)
            if not self._judged_lines.get(error.line):
                raise
        return await self.in_turn(node, log_in)

    async def _judge_key(self, node: Node, error: HostKeyError, confirm: Confirm) -> None:
        """Ask about an unknown host key, and add it to known_hosts if it is accepted."""
        try:
            with WAITS.paused():
                async with asyncio.timeout(KEY_LIMIT):
                    accepted = await confirm(error)
        except TimeoutError:
            return  # nobody is there: asked again when the node is tried again
        self._judged_lines[error.line] = accepted
        if accepted:
            self._accept(node, error.line)

    def conversation(
        self, node: str, to: Destination, settings: HostSettings | None, *, jump: bool = False
    ) -> Conversation:
        """The questions of a login to a node, or to its jump host."""
        whom = f"{to.user}@{to.host}" if to.user else to.host
        talk = self.asker.conversation(to.where if jump else "", to.user, node, whom)
        if settings is not None and settings.yes("batchmode"):
            talk.silence()
        most = settings.one("numberofpasswordprompts") if settings else ""
        talk.most = int(most) if most.isdecimal() and len(most) < 3 else MOST_TRIES
        return talk

    async def key_files(self, node: Node, settings: HostSettings | None) -> tuple[KeyFile, ...]:
        """The key files for a node. Raises UnreachableError."""
        if not self._access.identity:
            return await self._identities.files(settings) if settings else ()
        try:
            return (await self._identities.own(self._access.identity),)
        except asyncssh.KeyImportError as error:
            raise unreachable_error(node.name, error, of_node(node)) from error

    async def talk_by_ssh(
        self, node: Node, to: Destination, settings: HostSettings | None
    ) -> SshConversation:
        """The questions of a login by the program ssh."""
        files = await self.key_files(node, settings)
        return SshConversation(
            self.conversation(node.name, to, settings),
            same_machine(to, settings.alias if settings else ""),
            files,
            self.ring,
            lambda whom: self.asker.conversation(whom, "", node.name, whom),
        )

    def _accept(self, node: Node, line: str) -> None:
        hostkeys = self._questions[line]
        try:
            hostkeys.accept(line)
        except OSError as error:
            why = f"the host key could not be added to {hostkeys.files[0]}: {error.strerror}"
            raise UnreachableError(node.name, why) from error

    async def in_turn(self, node: Node, log_in: Callable[[], Awaitable[T]]) -> T:
        """Await `log_in` when it is this node's turn; try again if the server drops the login.

        Raises UnreachableError.
        """
        gate = await self.gate_of(node)
        with WAITS.queued():
            await gate.acquire()
        try:  # Also during the pauses: fewer logins are tried at a time.
            for pause in PAUSES:
                try:
                    return await log_in()
                except DroppedError:
                    await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            return await log_in()
        finally:
            gate.release()

    @asynccontextmanager
    async def first_program(self, answered: Callable[[], bool]) -> AsyncGenerator[Turn]:
        """Wait for the turn to start a program after a login; no wait if one has
        `answered` on the connection that there is.

        A login shell may cost more than the login.
        """
        turn = Turn(START_LIMIT * self._access.patience)
        if not answered():
            with WAITS.queued():
                await self._first_programs.acquire()
            turn.gate = self._first_programs
        try:
            yield turn
        finally:
            if not turn.kept:
                turn.end()

    async def gate_of(self, node: Node) -> asyncio.Semaphore:
        """The semaphore that limits logins to this node: one for all direct
        logins, and one for each jump host.

        Raises UnreachableError.
        """
        jump = self._jump_of(node, await self.settings(node))
        if jump not in self._gates:
            most = self._access.logins or (JUMP_FAN_OUT if jump else FAN_OUT)
            self._gates[jump] = asyncio.Semaphore(most)
        return self._gates[jump]

    def _jump_of(self, node: Node, settings: HostSettings | None) -> str:
        if settings is not None:
            command = settings.one("proxycommand")
            return settings.one("proxyjump") or (command if _is_ssh(command) else "")
        if self._access.config == "none":
            return ""
        named: object = self._probe(node).tunnel
        return named if isinstance(named, str) else ""

    def note_few_sessions(self, node: str) -> None:
        """Note that the server of a node refused a further session
        on a connection; says so once.
        """
        if node not in self.few_sessions:
            self.few_sessions.add(node)
            log.warning(
                "%s: its SSH server allows few sessions at a time on a connection (MaxSessions): Rankdeck logs in "
                "again for more",
                node,
            )

    async def open_master(self, node: Node) -> str:
        """The socket of a master connection of the user's own ssh to this node
        (ControlPath) that is open; "" if none.

        Raises UnreachableError.
        """
        settings = await self.settings(node)
        named = settings.one("controlpath") if settings else ""
        # The path is that of a host that is treated alike: without a
        # socket beside it, this host has none.
        if not named or not has_sockets(Path(named).parent):
            return ""
        try:
            found = await self._ssh.control_path(node.host, _port(node), self._access.user)
        except SshConfigError as error:
            raise UnreachableError(node.name, str(error)) from error
        return found if master_answers(found) else ""

    async def settings(self, node: Node) -> HostSettings | None:
        """What OpenSSH's configuration says for a node; None: it is not read, or not by OpenSSH.

        Raises UnreachableError.
        """
        if self._access.config == "none":
            return None
        try:
            return await self._ssh.of(node.host, _port(node), self._access.user)
        except SshConfigError as error:
            raise UnreachableError(node.name, str(error)) from error

    async def _login(self, node: Node) -> Login:
        try:
            return await self._log_in_as_told(node)
        except FAILURES as error:
            raise unreachable_error(node.name, error, of_node(node)) from error

    async def _log_in_as_told(self, node: Node) -> Login:
        settings = await self.settings(node)
        if settings is not None:
            return await self._follow(await self._route(node.name, settings), ())
        hostkeys = self._trusted(self._files_of(node, None))
        to = replace(of_node(node), user=self._access.user)
        own = (
            (await self._identities.own(self._access.identity),) if self._access.identity else None
        )
        route = Route(node.name, None, node.host, to, hostkeys, own)
        return await _or_by_plain_key(
            route, lambda route: self._log_in(route, self._own_options(node), {})
        )

    async def _route(self, node: str, settings: HostSettings, *, jump: bool = False) -> Route:
        own = "" if jump else self._access.identity
        files = (
            (await self._identities.own(own),) if own else await self._identities.files(settings)
        )
        chosen = self._hosts_files(settings, jump=jump)
        told = () if own else unused_remarks(settings, files)
        to = Destination(settings.host, settings.port, settings.user, told)
        if settings.one("stricthostkeychecking") == "false" and not self._said:
            self._said.add(settings.host)
            log.warning(
                "%s: its host key is not checked, nor of others: ssh_config says StrictHostKeyChecking no",
                node,
            )
        return Route(node, settings, settings.host, to, self._trusted(chosen), files, jump)

    def _hosts_files(self, settings: HostSettings, *, jump: bool) -> tuple[str, ...]:
        if self._access.known_hosts and not jump:
            return (self._access.known_hosts,)
        own = settings.paths("userknownhostsfile") or (str(NOWHERE),)
        found = (*own, *settings.paths("globalknownhostsfile"))
        return tuple(str(expand_path(file)) for file in found)

    async def _follow(self, route: Route, chain: tuple[_JumpKey, ...]) -> Login:
        """Log in as OpenSSH's settings say; `chain`: the jump hosts that want this login."""
        return await _or_by_plain_key(route, lambda route: self._follow_once(route, chain))

    async def _follow_once(self, route: Route, chain: tuple[_JumpKey, ...]) -> Login:
        settings = cast("HostSettings", route.settings)
        options = connect_options(settings, route.hostkeys)
        carrier: dict[str, Any] = {}
        if settings.one("proxyjump"):
            carrier["tunnel"], carrier["shared"] = await self._jump(route, chain)
        elif command := settings.one("proxycommand"):
            carrier["proxy"], carrier["sock"] = await _proxy(route, command)
        return await self._log_in(route, options, carrier)

    async def jump_settings(self, node: Node, settings: HostSettings) -> Sequence[HostSettings]:
        """What ssh_config says for each jump host on the way to a node, the
        last one first. Raises UnreachableError.
        """
        found: list[HostSettings] = []
        chain: tuple[_JumpKey, ...] = ()
        while settings.one("proxyjump"):
            key, settings = await self._onward(node.name, settings, chain)
            chain = (*chain, key)
            found.append(settings)
        return found

    async def jump_key_files(self, settings: HostSettings) -> tuple[KeyFile, ...]:
        """The key files for a jump host."""
        return await self._identities.files(settings)

    async def _onward(
        self, node: str, settings: HostSettings, chain: tuple[_JumpKey, ...]
    ) -> tuple[_JumpKey, HostSettings]:
        """The last of the jump hosts of these settings, and what ssh_config says for it."""
        named = settings.one("proxyjump")
        nowhere = f"ProxyJump {named[:80]} in ssh_config leads nowhere"
        try:
            before, _, last = settings.filled(named).rpartition(",")
            parts = _JUMP.fullmatch(last.strip())
            if parts is None or len(chain) >= MOST_JUMPS:
                raise UnreachableError(node, nowhere)
            user, host, port = parts[1] or "", parts[2].strip("[]"), int(parts[3] or 0)
            key = (host, port, user, before)
            if key in chain:
                raise UnreachableError(node, nowhere)
            return key, cast("HostSettings", await self._ssh.of(host, port, user, before))
        except SshConfigError as error:
            raise UnreachableError(node, str(error)) from error

    async def _jump(
        self, route: Route, chain: tuple[_JumpKey, ...]
    ) -> tuple[asyncssh.SSHClientConnection, bool]:
        """The connection to the last of the jump hosts, through those before it;
        and whether other nodes use it too.
        """
        key, found = await self._onward(route.node, cast("HostSettings", route.settings), chain)
        host = key[0]
        try:
            onward = await self._route(route.node, found, jump=True)
            jump = self._jumps.setdefault(key, _JumpHost())
            login = await self._login_to_jump(jump, lambda: self._follow(onward, (*chain, key)))
        except SshConfigError as error:
            raise UnreachableError(route.node, str(error)) from error
        except HostKeyError:
            raise
        except UnreachableError as error:
            raise type(error)(route.node, f"its jump host {host}: {error.why}") from error
        return login.connection, login is jump.login

    async def _login_to_jump(
        self, jump: _JumpHost, log_in: Callable[[], Awaitable[Login]]
    ) -> Login:
        """A login of its own for each node, but one for all if the
        operator must answer something for it.
        """
        if jump.asks is False:
            return await log_in()
        async with jump.first:
            if jump.login is None or jump.login.connection.is_closed():
                login = await log_in()
                jump.asks = login.asked
                if not login.asked:
                    return login
                jump.login = login
            return jump.login

    async def _log_in(
        self, route: Route, options: dict[str, Any], carrier: dict[str, Any]
    ) -> Login:
        talk = self.conversation(route.node, route.to, route.settings, jump=route.jump)
        client = LoginClient(route, talk, self.ring)
        proxy: ProxyProgram | None = carrier.pop("proxy", None)
        own = None if carrier.pop("shared", False) else carrier.get("tunnel")
        client.carriers = [one for one in (proxy, own) if one is not None]
        alias = route.settings.alias if route.settings else ""

        def known(host: str, addr: str, port: int | None) -> Any:  # noqa: ANN401 - asyncssh's
            keys, authorities, *rest = route.hostkeys.known().match(
                host, addr, None if alias else port
            )
            return keys, () if route.plain else authorities, *rest

        made: asyncssh.SSHClientConnection | None = None
        try:
            async with WAITS.limited(self.limit(route.settings)):
                made = connection = await asyncssh.connect(
                    route.host,
                    client_factory=lambda: client,
                    # A function: with empty bytes, asyncssh would read ~/.ssh/known_hosts itself.
                    known_hosts=known,
                    login_timeout=0,  # the limit above, which stands still while the operator is asked
                    keepalive_interval=KEEPALIVE,
                    keepalive_count_max=KEEPALIVE_MISSES,
                    encoding=None,
                    **options,
                    **carrier,
                )
        except FAILURES as error:
            raise await self._judged(route, client, error, proxy) from error
        finally:
            client.finish(made)
        return Login(connection, route.to, client.talk.asked)

    async def _judged(
        self, route: Route, client: LoginClient, error: Exception, proxy: ProxyProgram | None
    ) -> UnreachableError:
        """The error in our words, after a login has failed."""
        if client.offered is not None:
            return self._question(route, client.offered)
        if distrusts_certificate(error) and not route.plain:
            return CertificateError(route.node, explain_login_error(error, route.to))
        lost = isinstance(error, DROPS) and not client.greeted
        if proxy is not None and not client.greeted:
            said = await proxy.complaint()
            why = f"no connection to {route.to.where} through ProxyCommand `{proxy.command[:120]}`"
            kind = DroppedError if lost and proxy.worth_trying_again else UnreachableError
            return kind(route.node, f"{why}: {said or explain_login_error(error, route.to)}")
        if isinstance(error, asyncssh.ChannelOpenError):
            forbids = error.code == OPEN_ADMINISTRATIVELY_PROHIBITED
            reason = "it forbids that (AllowTcpForwarding, PermitOpen)" if forbids else error.reason
            why = f"its jump host cannot reach {route.to.where}: {reason}"
            return UnreachableError(route.node, why)
        if lost:
            return DroppedError(route.node, dropped_login(route.to, len(PAUSES) + 1))
        if isinstance(error, DROPS) and not client.agreed:
            return AlgorithmError(
                route.node, ended_negotiation(route.to, chosen_algorithms(route.settings))
            )
        if isinstance(error, asyncssh.PermissionDenied) and client.talk.stopped:
            return UnreachableError(route.node, client.talk.stopped)
        said = last_line(client.banner.encode())
        remarks = (f"the server says: {said}" * bool(said), client.talk.remark, *client.locked[:2])
        to = replace(route.to, remarks=(*route.to.remarks, *filter(None, remarks)))
        return unreachable_error(route.node, error, to)

    def _question(self, route: Route, offered: OfferedKey) -> HostKeyError:
        if route.strict in ("true", "yes"):
            return route.hostkeys.refusal(route.node, offered)
        error = route.hostkeys.judge(route.node, offered)
        self._questions[error.line] = route.hostkeys
        return error

    def unknown_key(
        self, node: Node, settings: HostSettings | None, line: str
    ) -> HostKeyError | None:
        """The question about a host key that ssh has seen; `line` is that for known_hosts.

        None if it is no key.
        """
        try:
            fingerprint = asyncssh.import_public_key(line.partition(" ")[2]).get_fingerprint()
        except asyncssh.KeyImportError:
            return None
        self._questions[line] = self._trusted(self._files_of(node, settings))
        return unknown_key_error(node.name, fingerprint, line)

    def _files_of(self, node: Node, settings: HostSettings | None) -> Sequence[str]:
        """The known_hosts files for a node."""
        if settings is not None:
            return self._hosts_files(settings, jump=False)
        named = self._access.known_hosts
        return (named,) if named else self._known_hosts_files(node)

    def limit(self, settings: HostSettings | None) -> float:
        """Seconds for one login: ConnectTimeout if that is longer, unless
        the cluster file says its own number.

        A shorter one is not for the whole login: to OpenSSH it is for the connection alone.
        """
        limit = self._access.connect_limit
        told = settings.seconds("connecttimeout") if settings else 0.0
        return max(told, limit) if limit == Access().connect_limit else limit

    def _own_options(self, node: Node) -> dict[str, Any]:
        """For a login whose configuration asyncssh reads, or that has none."""
        access = self._access
        options: dict[str, Any] = {"config": self._config}
        if node.port != 22:
            options["port"] = node.port
        if access.user:
            options["username"] = access.user
        if access.identity:
            options |= {"client_keys": None, "agent_path": None}  # the client gives them
        return options

    def _probe(self, node: Node) -> asyncssh.SSHClientConnectionOptions:
        """The options for this node in ssh_config, as asyncssh reads it.

        Raises UnreachableError.
        """
        try:
            return asyncssh.SSHClientConnectionOptions(
                host=node.host, config=self._config, client_keys=None, agent_path=None
            )
        except FAILURES as error:
            raise unreachable_error(node.name, error, of_node(node)) from error

    def _trusted(self, files: Sequence[str]) -> HostKeys:
        key = tuple(files)
        if key not in self._hostkeys:
            self._hostkeys[key] = HostKeys([expand_path(file) for file in key])
        return self._hostkeys[key]

    def _known_hosts_files(self, node: Node) -> tuple[str, ...]:
        named: object = self._probe(node).known_hosts
        found = cast("list[object]", named) if isinstance(named, list) else []
        return tuple(map(str, found)) or ("~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts")


def _port(node: Node) -> int:
    """The port that wins over ssh_config; 0: that of ssh_config."""
    return node.port if node.port != 22 else 0


def _is_ssh(command: str) -> bool:
    """Whether a ProxyCommand logs in to a jump host with ssh."""
    words = [word for word in command.split()[:2] if word != "exec"]
    return bool(words) and words[0].rpartition("/")[2] == "ssh"


async def _or_by_plain_key(route: Route, log_in: Callable[[Route], Awaitable[Login]]) -> Login:
    """Log in; where the certificate of the host key is not valid, again by the key itself."""
    try:
        return await log_in(route)
    except CertificateError:
        return await log_in(replace(route, plain=True))


async def _proxy(route: Route, command: str) -> tuple[ProxyProgram, Any]:
    settings = cast("HostSettings", route.settings)
    try:
        filled = settings.filled(command)
        return await start_proxy(filled, pass_socket=settings.yes("proxyusefdpass"))
    except (OSError, SshConfigError) as error:
        why = f"the ProxyCommand `{command[:120]}` in ssh_config cannot be used: {error}"
        raise UnreachableError(route.node, why) from error
