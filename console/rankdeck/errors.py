"""Every error that a user can see; the text says who, where and what to do now."""

import difflib
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast


class RankdeckError(Exception):
    """Base of all errors that are shown as a sentence instead of a traceback."""


def leaf_errors(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group of groups; a single error is its own leaf."""
    if isinstance(error, BaseExceptionGroup):
        # For pyright: isinstance leaves the type of the leaves unknown.
        for part in cast("BaseExceptionGroup[Any]", error).exceptions:
            yield from leaf_errors(part)
    else:
        yield error


@dataclass(frozen=True)
class Problem:
    """One mistake in a file: `file:line:col: path: what; did you mean …`."""

    file: str
    line: int
    column: int
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.path}: {self.text}"


class ConfigError(RankdeckError):
    """A file cannot be used; `problems` has every mistake in it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


class UntrustedError(ConfigError):
    """A file would run or read something that the user has not agreed
    to; `file` is the path of that file.
    """

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        super().__init__(problems)
        self.file = file
        hint = (
            f"not used before you agree: look at it, then say `rankdeck trust {shlex.quote(file)}`"
        )
        self.args = (f"{self}\n{file}: {hint}",)


class HostileFileError(ConfigError):
    """A file has more entries or levels than any real one: nothing more of it is read."""


class UnknownFileError(ConfigError):
    """No file has the name of this cluster or job."""

    def __init__(self, text: str) -> None:
        super().__init__(())
        self.args = (text,)


class NodeError(RankdeckError):
    """An error of one node; `why` is the message without the node's name."""

    def __init__(self, node: str, why: str) -> None:
        self.node, self.why = node, why
        super().__init__(f"{node}: {why}")


class UnreachableError(NodeError):
    """No SSH connection to the node; `common` is `why` with HOST in place
    of its address, to join equal ones.
    """

    def __init__(self, node: str, why: str, *, common: str = "") -> None:
        super().__init__(node, why)
        self.common = common or why


class ForwardingError(UnreachableError):
    """The SSH server of the node opens no port (AllowTcpForwarding,
    PermitListen); commands run there.
    """


class AlgorithmError(UnreachableError):
    """Both sides have no algorithm in common; another SSH client may."""


class HostKeyError(UnreachableError):
    """The host key is unknown, or differs from the known one
    (possible man-in-the-middle attack).
    """

    def __init__(self, node: str, why: str, *, fingerprint: str = "", line: str = "") -> None:
        super().__init__(node, why)
        self.fingerprint, self.line = fingerprint, line
        """`line` is the known_hosts line that accepting the key would add; "" if
        the key differs from the known one.
        """


class AgentError(NodeError):
    """The agent of a node could not be started, or sent something invalid."""


class BrokerError(RankdeckError):
    """No telemetry: the MQTT broker refuses or cannot be reached."""


class MetricsError(RankdeckError):
    """The site's Prometheus gave no numbers; the text is why, without the server's name."""


class LaunchError(RankdeckError):
    """A job could not be started; `stage` is "plan", "prepare" or "start"."""

    def __init__(self, stage: str, why: str, nodes: Mapping[str, str] | None = None) -> None:
        self.stage = stage
        self.nodes = nodes or {}
        """Node -> why the job could not start there; only failures that a
        job without this node would avoid.
        """
        super().__init__(why)


class HistoryError(RankdeckError):
    """The history could not be written."""


class UnknownRunError(RankdeckError):
    """No acceptance run of that name."""


class UnknownPluginError(RankdeckError):
    """No backend, runtime or recipe of that name."""


class UnknownJobError(RankdeckError):
    """No job of that name, or more than one."""


_LONGEST_WORD = 80


def find_closest(word: str, known: Collection[str]) -> str:
    """The closest known word; "" if none is close."""
    if len(word) > _LONGEST_WORD:
        return ""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return close[0] if close else ""


def suggest_word(word: str, known: Collection[str]) -> str:
    """`; did you mean …?` with the closest known word; "" if none is close."""
    close = find_closest(word, known)
    return f"; did you mean `{close}`?" if close else ""


def suggest_or_list(word: str, known: Collection[str]) -> str:
    """Like `suggest_word`, but lists all known words if none is close."""
    return suggest_word(word, known) or f"; there are: {', '.join(known) or 'none'}"
