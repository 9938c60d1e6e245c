"""Reads the command line, runs the command, turns every error into a sentence and an exit code."""

import argparse
import difflib
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import rankdeck_agent
from rankdeck.cli import output
from rankdeck.cli.output import BAD_INPUT, INTERRUPTED, NOBODY_READS, TROUBLE, UsageError
from rankdeck.cli.verbs import AGENT_HELP, AGENT_MORE, AGENT_VERBS, VERBS, Verb
from rankdeck.errors import (
    ConfigError,
    RankdeckError,
    UnknownJobError,
    UnknownPluginError,
    leaves,
)

if TYPE_CHECKING:
    from rankdeck.model.cluster import Cluster


EXIT_CODES = """exit codes:
  0    all is well
  1    trouble: a node, a network, a broker, processes that cancel could not end
  2    bad input: a wrong option, file or name
  run  that of the first rank that failed; 128 + N if signal N ended it; 130 after Ctrl-C
  sh   the largest of all nodes; 124 at the time limit, 255 for a node that was not reached
  health  0 ok, 1 warn, 2 bad, 3 unknown or trouble: as monitoring plug-ins have them
  status  3 if the worst node is unknown, 4 if warn, 5 if bad"""


class _Parser(argparse.ArgumentParser):
    """Complains in one sentence, like everything else here."""

    def parse_known_args(self, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - argparse hides its type
        """As always, but a verb refuses itself what it does not know: its own help has it."""
        known, unknown = super().parse_known_args(*args, **named)
        if unknown:
            options = self._option_string_actions
            near = difflib.get_close_matches(unknown[0].partition("=")[0], options, 1, 0.75)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            self.error(f"no option or word `{unknown[0][:60]}` here{hint}")
        return known, unknown

    def error(self, message: str) -> NoReturn:
        wrong = re.match(r"argument VERB: invalid choice: '(.*?)'", message)
        hint = _meant(wrong[1]) if wrong else ""
        if wrong:
            message = f"no verb `{wrong[1][:60]}`"
        raise UsageError(message + (hint or f"; see `{self.prog} --help`"))


def _meant(word: str) -> str:
    names = [verb.name for verb in (*VERBS, *AGENT_VERBS)]
    close = difflib.get_close_matches(word, [*names, "agent"], n=1)
    return f"; did you mean `{close[0]}`?" if close else ""


Offers = Mapping[str, Callable[..., Iterable[str]]]
"""Name of an argument -> what argcomplete may offer there."""


def make_parser(offers: Offers = MappingProxyType({})) -> argparse.ArgumentParser:
    """The parser of the whole command line; raises UsageError."""
    parser = _Parser(
        prog="rankdeck",
        description="The console of a GPU or HPC cluster. Without a verb: open it.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="say which version this is")
    _add_common(parser, offers, default=True)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    _add_verbs(verbs, VERBS, offers)
    agent = verbs.add_parser(
        "agent", help=AGENT_HELP, description=AGENT_HELP, epilog=AGENT_MORE,
        allow_abbrev=False,
    )  # fmt: skip
    _add_verbs(agent.add_subparsers(metavar="VERB", required=True), AGENT_VERBS, offers)
    return parser


def _add_verbs(verbs: Any, table: tuple[Verb, ...], offers: Offers) -> None:  # noqa: ANN401 - argparse hides its type
    for verb in table:
        sub = verbs.add_parser(verb.name, help=verb.help, description=verb.help, allow_abbrev=False)
        _add_common(sub, offers, default=False)
        for name, options in verb.arguments.items():
            _offer(sub.add_argument(name, **options), offers)
        sub.set_defaults(target=verb.target)


def _offer(action: Any, offers: Offers) -> None:  # noqa: ANN401 - argparse knows no completers
    if action.dest in offers:
        action.completer = offers[action.dest]


def _add_common(parser: argparse.ArgumentParser, offers: Offers, *, default: bool) -> None:
    """-c and --json are understood before the verb and after it."""
    hidden: dict[str, Any] = {} if default else {"default": argparse.SUPPRESS}
    cluster = parser.add_argument(
        "-c",
        "--cluster",
        metavar="CLUSTER",
        help="a cluster file, the name of one in ~/.config/rankdeck/clusters, or `demo`",
        **(hidden or {"default": ""}),
    )
    _offer(cluster, offers)
    parser.add_argument("--json", action="store_true", help="JSON on stdout", **hidden)


_BAD_INPUT = (UsageError, ConfigError, UnknownJobError, UnknownPluginError)


class OpenConsole(Protocol):
    """Show the console of a cluster until it is closed, first on a job if one is named.

    With `simulated` its nodes are made up, and nothing can run there.
    """

    def __call__(
        self, cluster: "Cluster", job: str = "", *, replay: float = 0.0, simulated: bool = False
    ) -> int: ...


VerbFunction = Callable[[argparse.Namespace, OpenConsole], int]


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
    if "_ARGCOMPLETE" in os.environ:  # a shell wants to know what may come next
        completion = import_module("rankdeck.cli.completion")
        completion.answer(make_parser(completion.OFFERS))
    if (bare := _cluster_alone(argv)) is not None:
        return _open(bare, open_console)
    options = make_parser().parse_args(argv)
    if options.version:
        output.say(f"rankdeck {rankdeck_agent.__version__}")
        return 0
    if options.verb is None:
        return _open(options.cluster, open_console)
    module, name = options.target.split(":")
    verb: VerbFunction = getattr(import_module(module), name)
    return verb(options, open_console)


def _cluster_alone(argv: Sequence[str]) -> str | None:
    """The cluster that is named, "" for none, where nothing else is said; the first picture waits for no parser."""
    if len(argv) == 2 and argv[0] in ("-c", "--cluster") and not argv[1].startswith("-"):
        return argv[1]
    return None if argv else ""


def _open(name: str, open_console: OpenConsole) -> int:
    """Show the console of the cluster of this file or name."""
    choose = import_module("rankdeck.cli.choose")
    return open_console(choose.cluster(name), "")


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
