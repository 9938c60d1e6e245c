"""Ranks that raised an exception and have not ended. No I/O."""

import re
from collections.abc import Sequence

from rankdeck.model.safe_text import clean_line
from rankdeck.model.stall import Stall
from rankdeck.rules.messages import explain_end, is_warning, replace_numbers
from rankdeck.rules.rank_signs import KnownOfJob, RankSigns, name_ranks, rank_numbers

PATIENCE = 10.0
"""Seconds of silence after which an exception was not handled."""
_LONGEST = 160
_PREFIX = re.compile(r"(?:\s*\[(?:rank)?\d+\]:? ?)?")
"""torch and mpirun put the rank before each line."""
_RAISED = re.compile(
    r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Timeout|Expired|Exit)(?::\s.*)?\Z"
)
"""The last line of a Python traceback."""
_NAMED = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?::\s.*)?\Z")
"""The same for an exception of any name; valid only after a traceback."""
_ABORTED = re.compile(
    r"Abort\(\d+\)|.*: Assertion .* failed|terminate called (?:after|without)|\s*what\(\):  |Fatal Python error"
    r"|.*\bCaught signal \d+ \(|Program received signal SIG|panic: |thread '.{1,80}' panicked at |forrtl: severe"
    r"|Fortran runtime error: |Error termination|ERROR: (?:LoadError|\w+(?:Error|Exception))\b"
    r"|Exception in thread |Unhandled [Ee]xception[.:]|Uncaught \w*(?:[Ee]rror|[Ee]xception)|Error in .{1,200}\) : "
)
"""How programs in C, C++, Fortran, Go, Rust, Julia, Java, .NET, JavaScript and R tell of it."""
_TRACEBACK = "Traceback (most recent call last):"
_GOES_ON = re.compile(
    r"(?i)\b(?:retry|retries|retrying|try(?:ing)? again|continu\w*|(?<!exception )ignor\w+|skip\w*|fall(?:ing|s)? ?back|handled"
    r"|resum\w+|recover\w*|reconnect\w*|restor\w+|instead)\b"
)
"""Words of programs that have handled an exception."""


def raised_ranks(signs: Sequence[RankSigns], known: KnownOfJob) -> Stall | None:
    """Ranks that raised an exception and have not ended, while no rank writes anything."""
    found = {
        sign.rank.rank: exception
        for sign in signs
        if sign.silent >= PATIENCE and (exception := exception_at_end(sign, known))
    }
    if not found or not _all_wait(signs, found):
        return None
    these = [sign for sign in signs if sign.rank.rank in found]
    first = min(these, key=lambda sign: sign.since)
    also = [sign.rank for sign in these if sign is not first]
    verb = "has" if len(also) == 1 else "have"
    more = f"; {name_ranks(also)} {verb} raised as well" if also else ""
    exception = found[first.rank.rank]
    return Stall(
        kind="raised",
        ranks=rank_numbers(these),
        since=first.since,
        text=f"{name_ranks([first.rank])} {_verb(exception)} {exception} and has not ended{more}",
        first=(first.rank.rank,),
        explained=explain_end((exception,)),
    )


def exception_at_end(sign: RankSigns, known: KnownOfJob) -> str:
    """The exception at the end of a rank's output; "" if there is none."""
    words = [line for line in known.words(sign.rank.rank) if not is_warning(line)]
    # What libraries warn of afterwards, as they wait or end, takes nothing back.
    warns = words and is_warning(sign.rank.last_line)
    last = _bare(words[-1] if warns else sign.rank.last_line).strip()
    if _RAISED.match(last) or _ABORTED.match(last):
        return clean_line(last, _LONGEST)
    return clean_line(_unhandled([*map(_bare, words)]), _LONGEST)


def _unhandled(lines: Sequence[str]) -> str:
    """The exception of the first traceback, or the first line of an abort, after which the program
    wrote only more about its end: nothing like what it wrote before, and not that it goes on.
    """
    for at, line in enumerate(lines):
        if line != _TRACEBACK and not _ABORTED.match(line):
            continue
        usual, after = {*map(replace_numbers, lines[:at])}, lines[at + 1 :]
        if not any(_GOES_ON.search(one) or replace_numbers(one) in usual for one in after):
            return _exception_of(after) if line == _TRACEBACK else line
    return ""


def _exception_of(after: Sequence[str]) -> str:
    """The exception of a traceback, by the lines after its first; "" if it is cut."""
    ends = next((one for one in after if not one.startswith((" ", "File "))), "")
    return ends if _NAMED.match(ends) else ""


def _bare(line: str) -> str:
    """The line without the rank before it."""
    return _PREFIX.sub("", line, count=1).rstrip()


def _verb(exception: str) -> str:
    return "says" if _ABORTED.match(exception) else "raised"


def _all_wait(signs: Sequence[RankSigns], found: dict[int, str]) -> bool:
    """Whether the other ranks fell silent at about the same time; if
    not, the exception was handled.
    """
    since = min(sign.since for sign in signs if sign.rank.rank in found)
    others = [sign for sign in signs if sign.rank.rank not in found]
    return all(sign.silent >= PATIENCE and sign.since <= since + PATIENCE for sign in others)
