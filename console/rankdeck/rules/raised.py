"""Ranks whose last words are an exception, though they run on. No I/O."""

import re
from collections.abc import Sequence

from rankdeck.model.insight import Stall
from rankdeck.model.text import clean
from rankdeck.rules.decode import explain
from rankdeck.rules.voices import Known, Voice, named, numbers

PATIENCE = 10.0
"""Seconds of silence after which an exception was not handled."""
_LONGEST = 160
_PREFIX = re.compile(r"\s*(?:\[(?:rank)?\d+\]:?\s*)?")
"""torch and mpirun put the rank before each line."""
_RAISED = re.compile(
    r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Timeout|Expired|Exit)(?::\s.*)?\Z"
)
"""The last line of a Python traceback."""
_NAMED = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?::\s.*)?\Z")
"""The same of an exception by any name: only after a traceback."""
_ABORTED = re.compile(
    r"Abort\(\d+\)|.*: Assertion .* failed|terminate called (?:after|without)|Fatal Python error"
)
_TRACEBACK = "Traceback (most recent call last):"


def raised(voices: Sequence[Voice], known: Known) -> Stall | None:
    """Ranks that raised and have not ended, while nobody says anything any more."""
    found = {
        voice.rank.rank: said
        for voice in voices
        if voice.silent >= PATIENCE and (said := last_words(voice, known))
    }
    if not found or not _all_wait(voices, found):
        return None
    these = [voice for voice in voices if voice.rank.rank in found]
    first = min(these, key=lambda voice: voice.since)
    also = [voice.rank for voice in these if voice is not first]
    verb = "has" if len(also) == 1 else "have"
    more = f"; {named(also)} {verb} raised as well" if also else ""
    said = found[first.rank.rank]
    return Stall(
        kind="raised",
        ranks=numbers(these),
        since=first.since,
        text=f"{named([first.rank])} {_verb(said)} {said} and has not ended{more}",
        first=(first.rank.rank,),
        explained=explain((said,)),
    )


def last_words(voice: Voice, known: Known) -> str:
    """The exception that a rank ended its output with; "" where it did not."""
    last = _bare(voice.rank.last_line)
    if _RAISED.match(last) or _ABORTED.match(last):
        return clean(last, _LONGEST)
    if not _NAMED.match(last):
        return ""
    lines = [_bare(line) for line in known.words(voice.rank.rank)]
    return clean(last, _LONGEST) if _ends_traceback(lines) else ""


def _ends_traceback(lines: Sequence[str]) -> bool:
    """Whether the last line is the first one after a traceback that is not indented."""
    if _TRACEBACK not in lines[:-1]:
        return False
    begin = len(lines) - 1 - list(reversed(lines)).index(_TRACEBACK)
    return all(line.startswith(("  ", "File ")) for line in lines[begin + 1 : -1])


def _bare(line: str) -> str:
    return _PREFIX.sub("", line, count=1).rstrip()


def _verb(said: str) -> str:
    return "says" if _ABORTED.match(said) else "raised"


def _all_wait(voices: Sequence[Voice], found: dict[int, str]) -> bool:
    """Whether the others fell silent with those: else the exception was taken care of."""
    since = min(voice.since for voice in voices if voice.rank.rank in found)
    others = [voice for voice in voices if voice.rank.rank not in found]
    return all(voice.silent >= PATIENCE and voice.since <= since + PATIENCE for voice in others)
