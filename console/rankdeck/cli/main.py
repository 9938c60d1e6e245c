"""Reads the command line, runs the command, turns every error into a sentence and an exit code."""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import rankdeck_agent
from rankdeck.cli import output
from rankdeck.cli.output import BAD_INPUT, INPUT_ERRORS, INTERRUPTED, NOBODY_READS, TROUBLE
from rankdeck.errors import LaunchError, RankdeckError, leaf_errors

if TYPE_CHECKING:
    from argparse import Namespace

    from rankdeck.model.cluster import Cluster


class OpenConsole(Protocol):
    """Show the console of a cluster until it is closed; `job` is the job to show
    first, `replay` the speed of its replay.

    With `simulated`, its nodes are simulated and nothing can run there.
    """

    def __call__(
        self, cluster: "Cluster", job: str = "", *, replay: float = 0.0, simulated: bool = False
    ) -> int: ...


VerbFunction = Callable[["Namespace", OpenConsole], int]


def run_command_line(argv: Sequence[str], open_console: OpenConsole) -> int:
    """Run the command line; returns the exit code. Errors of Rankdeck are printed, not raised."""
    try:
        code = _dispatch(argv, open_console)
        output.flush_stdout()
    except KeyboardInterrupt:
        return INTERRUPTED
    except (RankdeckError, BrokenPipeError, BaseExceptionGroup) as error:
        return _explain(error)
    return code


def _dispatch(argv: Sequence[str], open_console: OpenConsole) -> int:
    if argv and argv[0] == "agent" and _is_for_nodes(argv[1:]):
        return _become_agent(argv[1:])
    asked = "_ARGCOMPLETE" in os.environ  # a shell asks for completions
    if not asked and (bare := _cluster_alone(argv)) is not None:
        return _open(bare, open_console)
    parser = import_module("rankdeck.cli.parser")
    if asked:
        completion = import_module("rankdeck.cli.completion")
        completion.answer_shell(parser.make_parser(completion.OFFERS))
    options = parser.read_arguments(argv)
    if options.version:
        output.print_text(f"rankdeck {rankdeck_agent.__version__}")
        return 0
    if options.namespace or options.allocation:
        import_module("rankdeck.cli.choose").note_choice(options.namespace, options.allocation)
    if options.verb is None:
        return _open(options.cluster, open_console)
    module, name = options.target.split(":")
    verb: VerbFunction = getattr(import_module(module), name)
    return verb(options, open_console)


def _cluster_alone(argv: Sequence[str]) -> str | None:
    """The cluster if the command line has nothing else ("" for none), so that the
    first picture need not wait for the parser.
    """
    if len(argv) == 2 and argv[0] in ("-c", "--cluster") and not argv[1].startswith("-"):
        return argv[1]
    return None if argv else ""


def _open(name: str, open_console: OpenConsole) -> int:
    """Show the console of the cluster of this file or name."""
    choose = import_module("rankdeck.cli.choose")
    return open_console(choose.choose_cluster(name), "")


def _explain(error: BaseException) -> int:
    """Print each error once on stderr and return the exit code; errors that
    are not Rankdeck's are raised again.
    """
    code = BAD_INPUT
    for leaf in dict.fromkeys(leaf_errors(error)):
        if isinstance(leaf, BrokenPipeError):
            output.close_quietly()
            return NOBODY_READS
        if isinstance(leaf, KeyboardInterrupt):
            return INTERRUPTED
        if not isinstance(leaf, RankdeckError):
            raise error
        output.print_progress(str(leaf) if getattr(leaf, "problems", ()) else f"rankdeck: {leaf}")
        cannot_be = isinstance(leaf, LaunchError) and leaf.stage == "plan"
        if not (cannot_be or isinstance(leaf, INPUT_ERRORS)):
            code = TROUBLE
    return code


def _is_for_nodes(arguments: Sequence[str]) -> bool:
    """Whether `rankdeck agent …` runs the agent itself, not a command about services on nodes."""
    from rankdeck.cli.verbs import AGENT_VERBS

    ours = {verb.name for verb in AGENT_VERBS} | {"-h", "--help"}
    return bool(arguments) and arguments[0] not in ours


def _become_agent(arguments: Sequence[str]) -> int:
    """Replace this process by the agent, because the console does not import it."""
    home = str(Path(rankdeck_agent.__file__).parents[1])
    path = os.pathsep.join(part for part in (home, os.environ.get("PYTHONPATH", "")) if part)
    command = [sys.executable, "-m", "rankdeck_agent", *arguments]
    os.execve(sys.executable, command, {**os.environ, "PYTHONPATH": path})
