"""Why a login or a connection failed, in one sentence: the errors of
asyncssh and of sockets in plain words.
"""

import errno
import re
import socket
from collections.abc import Callable, Sequence

import asyncssh

from rankdeck.errors import AlgorithmError, ForwardingError, HostKeyError, UnreachableError
from rankdeck.model.cluster import Node
from rankdeck.model.safe_text import clean_line
from rankdeck.values import Value, replace

FAILURES = (asyncssh.Error, asyncssh.ChannelListenError, OSError, ValueError)
"""All exceptions that asyncssh may raise; its key and config errors are ValueErrors."""


class DroppedError(UnreachableError):
    """The server ended the connection before it sent its version, as
    servers do with too many logins at a time.
    """


class CertificateError(UnreachableError):
    """The certificate of the host key is not valid, or of an authority that is not trusted; the key
    itself may be.
    """


_INVALID_CERTIFICATE = re.compile(r"Certificate |Invalid certificate|Host CA key is not trusted")


def distrusts_certificate(error: BaseException) -> bool:
    """Whether a login failed for the certificate of a host key alone."""
    found = _INVALID_CERTIFICATE.match(str(error))
    return isinstance(error, asyncssh.HostKeyNotVerifiable) and found is not None


DROPS = (asyncssh.ConnectionLost, ConnectionResetError, BrokenPipeError)
"""Errors of a connection that the other side has ended."""


class Destination(Value):
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


def explain_login_error(error: BaseException, to: Destination) -> str:
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


def unreachable_error(node: str, error: BaseException, to: Destination) -> UnreachableError:
    """The error for a node whose login or connection failed."""
    common = explain_login_error(error, replace(to, host="HOST"))
    own = (kind for raised, kind in _KINDS_OF_ERROR if isinstance(error, raised))
    return next(own, UnreachableError)(node, explain_login_error(error, to), common=common)


def refused_login(node: str, to: Destination) -> UnreachableError:
    """The error for a login that lacks an answer."""
    return unreachable_error(node, asyncssh.PermissionDenied(""), to)


def _refused(to: Destination) -> str:
    whom = f" for {to.user}" if to.user else ""
    more = "".join(f"; {remark}" for remark in to.remarks)
    return (
        f"login refused (Permission denied){whom} by {to.where}: check `ssh: {{user, identity}}`, ssh-agent and the "
        f"node's authorized_keys{more}"
    )


def dropped_login(to: Destination, times: int) -> str:
    """The sentence for a server that ended the connection at once."""
    return (
        f"the SSH server of {to.where} ended the connection at once, {times} times: "
        "too many logins at a time? Say fewer with `ssh: {logins: 8}`, or look at its MaxStartups"
    )


def ended_after_login(to: Destination) -> str:
    """The sentence for a server that ended the connection when a program was to start."""
    return (
        f"the SSH server of {to.where} accepted the login and then ended the connection: its log says why "
        "(ChrootDirectory, a limit on logins, a session that PAM refuses)"
    )


def ended_negotiation(to: Destination, chosen: Sequence[str]) -> str:
    """The sentence for a server that ended the connection before both had agreed on
    algorithms; `chosen`: options of ssh_config that choose some.
    """
    options = {
        "hostkeyalgorithms": "HostKeyAlgorithms",
        "kexalgorithms": "KexAlgorithms",
        "macs": "MACs",
        "ciphers": "Ciphers",
        "pubkeyacceptedalgorithms": "PubkeyAcceptedAlgorithms",
    }
    named = ", ".join(options[one] for one in chosen)
    why = (
        f"perhaps it has none of those that ssh_config chooses ({named})"
        if named
        else "look at its log"
    )
    return (
        f"the SSH server of {to.where} ended the connection before both agreed on algorithms: {why}"
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
        "the SSH server of {where} refuses port forwarding (AllowTcpForwarding, PermitListen): {error}",
    ),
)
_KINDS_OF_ERROR: Sequence[tuple[type[BaseException], type[UnreachableError]]] = (
    (asyncssh.ChannelListenError, ForwardingError),
    (asyncssh.KeyExchangeFailed, AlgorithmError),
)


# ---- what the program ssh says

_KINDS: Sequence[tuple[re.Pattern[str], Callable[[str], Exception]]] = (
    (
        re.compile(r"Permission denied \(|Too many authentication failures"),
        asyncssh.PermissionDenied,
    ),
    (re.compile(r"Host key verification failed"), asyncssh.HostKeyNotVerifiable),
    (re.compile(r"no matching .* found"), asyncssh.KeyExchangeFailed),
    (
        re.compile(r"Could not resolve hostname"),
        lambda said: socket.gaierror(socket.EAI_NONAME, said),
    ),
    (re.compile(r"Connection refused"), ConnectionRefusedError),
    (
        re.compile(r"No route to host|Network is unreachable"),
        lambda said: OSError(errno.EHOSTUNREACH, said),
    ),
    (re.compile(r"timed out|Timeout, server"), TimeoutError),
    (re.compile(r"remote port forwarding failed"), asyncssh.ChannelListenError),
    (
        re.compile(r"session request failed|channel \d+: open failed"),
        lambda said: asyncssh.ChannelOpenError(1, said),
    ),
)
"""How a line of ssh reads -> the error of asyncssh that means the
same; the first row that fits wins.
"""
_DROPPED = re.compile(r"(?:ssh|kex)_exchange_identification")
_AFTER = re.compile(r"^\s*$|^Connection (?:closed|reset) by")
"""Lines that say no more than those beside them."""
_REVOKED = re.compile(r"^(?:Host key .* revoked by|Error checking host key|The .* host key .* is marked as revoked).*", re.MULTILINE)  # fmt: skip
_CHANGED = re.compile(r"Offending .* key in (\S+:\d+)")


def refuses_login(said: str) -> bool:
    """Whether ssh says that the server has refused the login."""
    known, _ = _KINDS[0]
    return known.search(said) is not None


def from_ssh(node: str, said: str, to: Destination, times: int = 1) -> UnreachableError:
    """The error for what the program ssh wrote when it could not log in
    or open something; quotes its line.

    `times`: how often a login is tried that the server drops.
    """
    if changed := _CHANGED.search(said):
        why = (
            f"its host key has changed: if the machine was set up anew, remove {clean_line(changed[1])};"
            " if not, this may be a man-in-the-middle attack"
        )
        return HostKeyError(node, why)
    if revoked := _REVOKED.search(said):
        return HostKeyError(node, f"its host key must not be used: {clean_line(revoked[0], 300)}")
    lines = [line for line in said.splitlines() if not _AFTER.search(line)]
    # Where a proxy or jump host failed, what they say stands beside the drop.
    why = [line for line in lines if not _DROPPED.search(line)]
    quote = f"; ssh says: {clean_line([*lines, *why][-1], 300) if lines else 'nothing'}"
    if lines and not why:
        return DroppedError(node, dropped_login(to, times) + quote)
    errors = (make(line) for known, make in _KINDS for line in why if known.search(line))
    error = next(errors, None)
    if error is None:
        return UnreachableError(node, f"no SSH connection to {to.where}{quote}")
    found = unreachable_error(node, error, to)
    return type(found)(node, found.why + quote, common=found.common + quote)
