"""Commands as people write them in one text: split into words as a shell would, but no shell
reads them, so what only a shell understands is refused instead of passed to the program.
"""

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from rankdeck.model.job_spec import Launch

_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_BREAK = re.compile(rf"{_QUOTED.pattern}|\n[^\S\n]*(?=-)", re.DOTALL)
"""Also a line break before an option: what follows belongs to the same command."""
_INSTEAD = "no shell reads a command: write `[sh, -c, '…']`, or put it in quotes if the program itself takes it"
_SHELL = (
    (re.compile(r"\A\w+=\S*(?=\s)"), "`{}` before a program sets a variable only in a shell: write it under `env`"),
    (re.compile(r"\S\s*\n\s*\S"), "these are several lines, and no shell reads a command: write `[sh, -c, '…']`, or a script under `files`"),
    (re.compile(r"\|\||&&|<<<?|>>|[|&;<>()`]"), "`{}` is for a shell, and " + _INSTEAD),
    (re.compile(r"\$(?!\{RANKDECK_)(?:\{\w+|\w+|\()"), "only a shell fills in `{}`, and " + _INSTEAD),
    (re.compile(r"(?:(?<=\s)|\A)~/\S*"), "only a shell makes `{}` a path in the home folder: write the whole path, or `[sh, -c, '…']`"),
    (re.compile(r"(?<!\S)\S*\*\S*"), "only a shell replaces `{}` by the names of files, and " + _INSTEAD),
)  # fmt: skip
"""What stands outside of quotes -> why it is refused; the first that is found counts."""
_STARTERS = {
    Launch.MPI: ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "srun"),
    Launch.TORCHRUN: ("torchrun", "mpirun", "mpiexec", "srun"),
}
"""Launcher -> programs that would start all ranks once more from each rank."""
_BUILT_IN = frozenset({"cd", "source", ".", "exec", "export", "eval", "set", "ulimit", "umask", "module", "alias"})  # fmt: skip
"""Words of a shell (and functions of its login) that are no programs."""


def split_command(text: str) -> tuple[str, ...]:
    """The words of a command; raises ValueError with a sentence.

    Lines that end with a backslash, and lines that begin with an option, continue the one above.
    """
    text = _BREAK.sub(_unbroken, text.strip())
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"cannot be split into words: {error}") from error
    bare = _QUOTED.sub("x", text)
    for pattern, why in _SHELL:
        if found := pattern.search(bare):
            raise ValueError(why.format(found[0].strip()[:60]))
    return words


def _unbroken(found: re.Match[str]) -> str:
    """A blank for a line break that continues the command; quoted text stays as it is."""
    return " " if found[0] == "\\\n" or found[0][0] == "\n" else found[0]


def command_complaint(words: Sequence[str], launch: Launch) -> str:
    """Why these words are no command for this launcher; "" if nothing is wrong."""
    program = words[0] if words else ""
    if any("\0" in word for word in words):
        return "a command cannot hold a NUL character"
    if launch is Launch.MPI and ":" in words:
        return "mpirun takes a lone `:` for the next program; start a script that has it"
    if program.startswith("~/"):
        return f"`{program[:60]}`: only a shell makes `~` the home folder: write the whole path"
    if len(words) == 1 and _is_line(program):
        return f"`{program[:60]}` is one word with blanks: write one word for each, `[python3, a.py]`, or the text without the list"
    if program in _BUILT_IN:
        return f"`{program}` is a word of a shell and no program: write `[sh, -c, '…']`"
    name = PurePosixPath(program).name
    if name in _STARTERS.get(launch, ()):
        return f"`launch: {launch}` starts the ranks itself: leave `{name}` and its arguments out"
    return ""


def _is_line(word: str) -> bool:
    """Whether a word is a whole command line; a path may have blanks, a name of a program not."""
    head, blank, rest = word.partition(" ")
    return bool(blank) and ("/" not in head or rest.startswith("-") or " -" in rest)
