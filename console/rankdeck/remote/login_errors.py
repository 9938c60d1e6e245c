"""Why a login or a connection failed, in one sentence: the errors of asyncssh and of sockets in plain words."""

import errno
import socket
from dataclasses import dataclass, replace

import asyncssh

from rankdeck.errors import UnreachableError
from rankdeck.model.cluster import Node

FAILURES = (asyncssh.Error, asyncssh.ChannelListenError, OSError, ValueError)
"""All exceptions that asyncssh may raise; its key and config errors are ValueErrors."""


DROPS = (asyncssh.ConnectionLost, ConnectionResetError, BrokenPipeError)
"""Errors of a connection that the other side has ended."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a login goes, as ssh_config says."""

    host: str
    port: int
    user: str = ""
    """"" if it is not known here."""
    remarks: tuple[str, ...] = ()
    """What was not used for the login, each a part of a sentence."""

    @property
    def where(self) -> str:
        """Host and port in words."""
        return f"{self.host} port {self.port}"


def of_node(node: Node) -> Destination:
    """The destination that the cluster file says."""
    return Destination(node.host, node.port)


def explain(error: BaseException, to: Destination) -> str:
    """What went wrong with the connection, and what to do, in one sentence."""
    words = {"where": to.where, "host": to.host, "port": to.port, "error": _words(error)}
    if isinstance(error, asyncssh.PermissionDenied):
        return _refused(to)
    for kind, sentence in _SENTENCES:
        if isinstance(error, kind):
            return sentence.format(**words)
    if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return f"no route to {to.host}; is the network up, and the address right?"
    return f"no SSH connection to {to.where}: {words['error']}"


def unreachable(node: str, error: BaseException, to: Destination) -> UnreachableError:
    """The error for a node whose login or connection failed."""
    common = explain(error, replace(to, host="HOST"))
    return UnreachableError(node, explain(error, to), common=common)


def _refused(to: Destination) -> str:
    whom = f" for {to.user}" if to.user else ""
    more = "".join(f"; {remark}" for remark in to.remarks)
    return (
        f"login refused (Permission denied){whom} by {to.where}: check `ssh: {{user, identity}}`, ssh-agent and the "
        f"node's authorized_keys{more}"
    )


def dropped(to: Destination, times: int) -> str:
    """The sentence for a server that ended the connection at once."""
    return (
        f"the SSH server of {to.where} ended the connection at once, {times} times: "
        "too many logins at a time? Say fewer with `ssh: {logins: 8}`, or look at its MaxStartups"
    )


def _words(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:300] or type(error).__name__


_SENTENCES: tuple[tuple[type[BaseException], str], ...] = (
    (
        asyncssh.HostKeyNotVerifiable,
        "a host key on the way is not trusted ({error}): log in once with `ssh {host}` and look at it",
    ),
    (asyncssh.KeyEncryptionError, "the key has a passphrase: add it to ssh-agent with ssh-add"),
    (asyncssh.KeyImportError, "the key named by `ssh: {{identity}}` cannot be used: {error}"),
    (
        asyncssh.ConfigParseError,
        "the ssh_config file cannot be read: {error}; OpenSSH is not installed here, and Rankdeck alone understands less",
    ),
    (asyncssh.KeyExchangeFailed, "no common algorithm with the SSH server of {where}: {error}"),
    (ConnectionRefusedError, "{where} refused the connection; is sshd running there?"),
    (TimeoutError, "{where} does not answer; is the node up?"),
    (socket.gaierror, "the name {host} does not resolve: give an `address` in the cluster file"),
    (asyncssh.ChannelOpenError, "the SSH server allows no further session: {error}"),
    (
        asyncssh.ChannelListenError,
        "the SSH server of {where} refuses port forwarding (AllowTcpForwarding): jobs run, but no numbers can come this way; "
        "have it allow `remote`, or install the agent there and name a broker in the cluster file",
    ),
)
