"""Patterns of users: compiled with RE2, so that no pattern and no
line takes long; what a search means.
"""

import re
from typing import Any, NamedTuple

LONGEST_PATTERN = 500
"""Most characters of a pattern."""
_MEMORY = 1 << 16
"""Most bytes of a compiled pattern."""
_STEPS = 500
"""Most instructions of a compiled pattern; they determine the time per
line, then at most half a millisecond.
"""
_TOO_LARGE = "pattern too large"
_ADVICE = (
    ("invalid perl operator: (?P", "refers back to a group; write the text out instead"),
    ("invalid perl operator: (?", "looks around (`(?=`, `(?!`, `(?<`) or is atomic; match the text beside the number and put only the number in brackets"),
    ("invalid escape sequence: \\Z", "has `\\Z`; write `$`"),
    ("invalid escape sequence", "refers back to a group, or has an escape that does not exist; write the text out instead"),
    ("bad repetition operator", "repeats a repetition (`a++`, `a**`); repeat once"),
    ("invalid repetition size", "repeats more than 1,000 times; write `*` or `+`"),
    (_TOO_LARGE, "is too large once its repetitions are written out; write `*` or `+` instead of counts"),
)  # fmt: skip
"""Beginning of RE2's error message -> what is wrong with the pattern, and what to do."""


class BadPatternError(ValueError):
    """A pattern that cannot be used; the text continues a sentence whose
    subject is the pattern: `is too large …`.
    """


class Pattern(NamedTuple):
    """A compiled pattern; search time depends only on the length of the line."""

    compiled: Any
    groups: int

    def spans(self, line: str) -> list[tuple[int, int]]:
        """(start, end) of each match in characters, end exclusive; without empty matches."""
        data = line.encode("utf-8", "replace")
        found = (match.span() for match in self.compiled.finditer(data))
        return [(_characters(data, a), _characters(data, b)) for a, b in found if a < b]

    def within(self, line: str) -> bool:
        """Whether the pattern matches anywhere in this line."""
        return self.compiled.search(line.encode("utf-8", "replace")) is not None

    def first_group(self, line: str) -> str | None:
        """The text of the first group that is not empty, "" if all are;
        None if the line does not match.
        """
        found = self.compiled.search(line.encode("utf-8", "replace"))
        if found is None:
            return None
        text = next((group for group in found.groups() if group), b"")
        return text.decode("utf-8", "replace")


def _characters(data: bytes, end: int) -> int:
    return len(data[:end].decode("utf-8", "replace"))


def compile_pattern(text: str) -> Pattern:
    """Compile a pattern in RE2's syntax (no backreferences, no look-around).

    Raises BadPatternError.
    """
    if len(text) > LONGEST_PATTERN:
        raise BadPatternError(f"is a pattern of more than {LONGEST_PATTERN} characters")
    re2 = _re2()
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    try:
        made = re2.compile(text, options)
    except re2.error as error:
        raise BadPatternError(_in_words(error.args[0])) from error
    except UnicodeEncodeError as error:
        raise BadPatternError("is not Unicode text") from error
    if made.programsize > _STEPS:
        raise BadPatternError(_in_words(_TOO_LARGE))
    return Pattern(made, int(made.groups))


_SIGNS = frozenset("\\^$.|?*+()[]{}")
_RE2_ESCAPE = re.compile(r"\\.")


def search_pattern(text: str) -> str:
    """The pattern (RE2's syntax) to use for a text typed into a search;
    "" if it is searched as plain text.

    It is plain text if it has no special character, or is not a valid pattern (`loss=(`). Upper
    case makes the pattern case-sensitive, except in escapes (`\\S`).
    """
    if _SIGNS.isdisjoint(text):
        return ""
    exact = any(map(str.isupper, _RE2_ESCAPE.sub("", text)))
    pattern = text if exact else f"(?i){text}"
    try:
        compile_pattern(pattern)
    except BadPatternError:
        return ""
    return pattern


def _re2() -> Any:  # noqa: ANN401 - its binding has no types
    """The RE2 library, imported at first use: few jobs have a pattern."""
    import re2

    return re2


def _in_words(why: bytes | str) -> str:
    text = why.decode("utf-8", "replace") if isinstance(why, bytes) else why
    for begin, advice in _ADVICE:
        if text.startswith(begin):
            return advice
    return f"is not a regular expression: {text}"
