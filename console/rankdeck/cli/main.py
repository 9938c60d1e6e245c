"""Read the command line, do the verb, turn every trouble into a sentence and an exit code."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import rankdeck_agent
from rankdeck.cli import output
from rankdeck.cli.codes import BAD_INPUT, INTERRUPTED, NOBODY_READS, TROUBLE, UsageError
from rankdeck.cli.parser import AGENT_VERBS, make_parser
from rankdeck.errors import (
    ConfigError,
    RankdeckError,
    UnknownJobError,
    UnknownPluginError,
)

if TYPE_CHECKING:
    from rankdeck.model.cluster import Cluster

_BAD_INPUT = (UsageError, ConfigError, UnknownJobError, UnknownPluginError)


class OpenConsole(Protocol):
    """Show the console of a cluster until it is closed, first on a job if one is named."""

    def __call__(
        self, cluster: "Cluster", job: str = "", *, replay: float = 0.0
    ) -> int: ...


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
    if argv and argv[0] == "agent" and not _keeps_agents(argv[1:]):
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
    for leaf in dict.fromkeys(_leaves(error)):
        if isinstance(leaf, BrokenPipeError):
            output.close_quietly()
            return NOBODY_READS
        if isinstance(leaf, KeyboardInterrupt):
            return INTERRUPTED
        if not isinstance(leaf, RankdeckError):
            raise error
        output.progress(
            str(leaf) if isinstance(leaf, ConfigError) else f"rankdeck: {leaf}"
        )
        if not isinstance(leaf, _BAD_INPUT):
            code = TROUBLE
    return code


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        group = cast(
            "BaseExceptionGroup[Any]", error
        )  # isinstance leaves its kind unknown
        for part in group.exceptions:
            yield from _leaves(part)
    else:
        yield error


def _keeps_agents(arguments: Sequence[str]) -> bool:
    """Whether `rankdeck agent …` is about services on nodes and not the agent itself."""
    return bool(arguments) and arguments[0] in {verb.name for verb in AGENT_VERBS}


def _become_agent(arguments: Sequence[str]) -> int:
    """Replace this process by the agent: the console imports nothing of it but the wire."""
    home = str(Path(rankdeck_agent.__file__).parents[1])
    path = os.pathsep.join(
        part for part in (home, os.environ.get("PYTHONPATH", "")) if part
    )
    command = [sys.executable, "-m", "rankdeck_agent", *arguments]
    os.execve(sys.executable, command, {**os.environ, "PYTHONPATH": path})
