"""The parser of the command line, made from the table of commands; its errors are sentences."""

import argparse
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

from rankdeck.cli.output import UsageError
from rankdeck.cli.verbs import AGENT_HELP, AGENT_MORE, AGENT_VERBS, VERBS, Verb
from rankdeck.errors import suggest_word

EXIT_CODES = """exit codes:
  0    all is well
  1    trouble: a node, a network, a broker, processes that cancel could not end
  2    bad input: a wrong option, file or name
  run  that of the first rank that failed; 128 + N if signal N ended it; 130 after Ctrl-C
  sh   the largest of all nodes; 124 at the time limit, 255 for a node that was not reached
  health  0 ok, 1 warn, 2 bad, 3 unknown or trouble: as monitoring plug-ins have them
  status  3 if the worst node is unknown, 4 if warn, 5 if bad"""


_IN_OUR_WORDS = (
    (r"^argument (\S+): invalid choice: '(.*?)' \(choose from (.*)\)$", r"\1: no `\2`; choose from \3"),
    (r"^argument (\S+): invalid int value: '(.*?)'$", r"\1: `\2` is not a whole number"),
    (r"^argument (\S+): invalid float value: '(.*?)'$", r"\1: `\2` is not a number"),
    (r"^argument (\S+): expected (?:one|at least one) argument$", r"\1 needs a value"),
    (r"^argument (\S+): ignored explicit argument '.*'$", r"\1 takes no value"),
    (r"^the following arguments are required: (.*)$", r"\1 is missing"),
)  # fmt: skip
"""Message of argparse -> our message."""


def _refuse_empty(argv: Sequence[str]) -> None:
    """Raise UsageError at an empty argument: a shell variable that
    is not set would mean "all nodes".
    """
    ours = argv[: argv.index("--")] if "--" in argv else argv
    for number, word in enumerate(ours, 1):
        if not word or (word.startswith("--") and word.partition("=")[1:] == ("=", "")):
            raise UsageError(
                f"argument {number} is empty: is a shell variable not set? A command for nodes stands after `--`"
            )


class _Parser(argparse.ArgumentParser):
    """Reports mistakes in one sentence, like the rest of Rankdeck."""

    def parse_known_args(self, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - argparse hides its type
        """As in argparse, but each command itself refuses unknown arguments,
        so that the error names its own help.
        """
        known, unknown = super().parse_known_args(*args, **named)
        if unknown:
            options = self._option_string_actions
            near = difflib.get_close_matches(unknown[0].partition("=")[0], options, 1, 0.75)
            hint = f"did you mean `{near[0]}`?" if near else f"see `{self.prog} --help`"
            raise UsageError(f"no option or word `{unknown[0][:60]}` here; {hint}")
        return known, unknown

    def error(self, message: str) -> NoReturn:
        wrong = re.match(r"argument VERB: invalid choice: '(.*?)'", message)
        verbs = [*(verb.name for verb in VERBS), "agent"]
        hint = suggest_word(wrong[1], verbs) if wrong else ""
        if wrong:
            message = f"no verb `{wrong[1][:60]}`"
        for pattern, words in _IN_OUR_WORDS:
            message = re.sub(pattern, words, message)
        if message.endswith(" is missing"):
            hint = _order_of_words(self.prog)
        raise UsageError(message + (hint or f"; see `{self.prog} --help`"))


def _order_of_words(prog: str) -> str:
    """How this command is written: the words after it that are no options."""
    name = prog.partition(" ")[2]
    verb = next((verb for verb in VERBS if verb.name == name), None)
    if verb is None:
        return ""
    words = [
        _shown(given["metavar"], given.get("nargs"))
        for key, given in verb.arguments.items()
        if not key.startswith("-") and "metavar" in given
    ]
    return f"; write `{' '.join((prog, *words))}`, see `{prog} --help`"


def _shown(word: str, count: object) -> str:
    return f"[{word}]" if count in ("?", "*") else f"{word} …" if count == "+" else word


def _as_options(argv: Sequence[str]) -> Sequence[str]:
    """`help`, `help VERB` and `version` as the options that they stand for."""
    match argv:
        case ["version"]:
            return ["--version"]
        case ["help", *words]:
            return [*words, "--help"]
        case _:
            return argv


Offers = Mapping[str, Callable[..., Iterable[str]]]
"""Name of an argument -> completer for argcomplete."""


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """What the command line says; raises UsageError."""
    _refuse_empty(argv)
    argv = _as_options(argv)
    asks = not {"-h", "--help"}.isdisjoint(argv)
    named = {"agent", *(verb.name for verb in VERBS)} & {*argv}
    # Making the parsers of all commands takes a fiftieth of a short command.
    only = named if named and not asks else None
    return make_parser(only=only).parse_args(argv)


def make_parser(
    offers: Offers = MappingProxyType({}), only: Collection[str] | None = None
) -> argparse.ArgumentParser:
    """The parser of the command line; parsing raises UsageError.

    `offers` completes arguments in a shell; with `only`, no other commands are known than these.
    """
    parser = _Parser(
        prog="rankdeck",
        description="The console of a GPU or HPC cluster. Without a verb: open it.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("-V", "--version", action="store_true", help="say which version this is")
    _add_common(parser, offers, default=True)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    _add_verbs(verbs, [one for one in VERBS if only is None or one.name in only], offers)
    if only is not None and "agent" not in only:
        return parser
    agent = verbs.add_parser(
        "agent",
        help=AGENT_HELP,
        description=AGENT_HELP,
        epilog=AGENT_MORE,
        allow_abbrev=False,
    )
    _add_verbs(agent.add_subparsers(metavar="VERB", required=True), AGENT_VERBS, offers)
    return parser


def _add_verbs(verbs: Any, table: Iterable[Verb], offers: Offers) -> None:  # noqa: ANN401 - argparse hides its type
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
    """Add `-c`, `--json`, `--namespace` and `--allocation`, which may stand before
    or after the command.
    """
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
    parser.add_argument(
        "--namespace",
        metavar="NAME",
        help="of Kubernetes, in place of that of the cluster file",
        **(hidden or {"default": ""}),
    )
    parser.add_argument(
        "--allocation",
        metavar="JOB",
        help="of Slurm: run jobs within this one of yours, or `here` (inside salloc)",
        **(hidden or {"default": ""}),
    )
