"""Read the command line, do the verb, turn every trouble into a sentence and an exit code."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import rankdeck_agent
from rankdeck.cli import output
from rankdeck.cli.codes import BAD_INPUT, INTERRUPTED, NOBODY_READS, TROUBLE, UsageError
from rankdeck.cli.parser import make_parser
from rankdeck.cli.verbs import AGENT_VERBS
from rankdeck.errors import (
    ConfigError,
    RankdeckError,
    UnknownJobError,
    UnknownPluginError,
    leaves,
)

if TYPE_CHECKING:
    from rankdeck.model.cluster import Cluster

_BAD_INPUT = (UsageError, ConfigError, UnknownJobError, UnknownPluginError)


class OpenConsole(Protocol):
    """Show the console of a cluster until it is closed, first on a job if one is named."""

    def __call__(self, cluster: "Cluster", job: str = "", *, replay: float = 0.0) -> int: ...


Verb = Callable[[argparse.Namespace, OpenConsole], int]


def run(argv: Sequence[str], open_console: OpenConsole) -> int:
    """Do what the command line says; gives the exit code, never raises."""
    try:
        code = _dispatch(argv, open_console)
        output.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except (RankdeckError, BrokenPipeError, BaseExceptionGroup) as error:
        return _explain(error)
    return code


def _dispatch(argv: Sequence[str], open_console: OpenConsole) -> int:
    if argv and argv[0] == "agent" and _is_for_nodes(argv[1:]):
        return _become_agent(argv[1:])
    options = make_parser().parse_args(argv)
    if options.version:
        output.say(f"rankdeck {rankdeck_agent.__version__}")
        return 0
    if options.verb is None:
        choose = import_module("rankdeck.cli.choose")
        return open_console(choose.cluster(options.cluster), "")
    module, name = options.target.split(":")
    verb: Verb = getattr(import_module(module), name)
    return verb(options, open_console)


def _explain(error: BaseException) -> int:
    """Say each trouble once on stderr; what is not one of ours is raised again."""
    code = BAD_INPUT
    for leaf in dict.fromkeys(leaves(error)):
        if isinstance(leaf, BrokenPipeError):
            output.close_quietly()
            return NOBODY_READS
        if isinstance(leaf, KeyboardInterrupt):
            return INTERRUPTED
        if not isinstance(leaf, RankdeckError):
            raise error
        output.progress(str(leaf) if getattr(leaf, "problems", ()) else f"rankdeck: {leaf}")
        if not isinstance(leaf, _BAD_INPUT):
            code = TROUBLE
    return code


def _is_for_nodes(arguments: Sequence[str]) -> bool:
    """Whether `rankdeck agent …` is the agent itself and not about services on nodes."""
    ours = {verb.name for verb in AGENT_VERBS} | {"-h", "--help"}
    return bool(arguments) and arguments[0] not in ours


def _become_agent(arguments: Sequence[str]) -> int:
    """Replace this process by the agent: the console imports nothing of it but the wire."""
    home = str(Path(rankdeck_agent.__file__).parents[1])
    path = os.pathsep.join(part for part in (home, os.environ.get("PYTHONPATH", "")) if part)
    command = [sys.executable, "-m", "rankdeck_agent", *arguments]
    os.execve(sys.executable, command, {**os.environ, "PYTHONPATH": path})
