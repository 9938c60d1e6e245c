"""Text and JSON from nodes, made safe (no control characters, limited nesting); checks of fields; users' patterns."""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeGuard, cast

_ESCAPE = (
    r"(?P<colour>\x1b\[[0-9;:]*m)"
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\|\x1b|$)"
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\|\x1b|$)"
    r"|\x1b[ -/]*[0-~]?"
)
_ESCAPES = re.compile(_ESCAPE)
_STEERING = re.compile(
    _ESCAPE
    + r"|[\x00-\x08\x0a-\x1a\x1c-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
_HARMLESS = re.compile(r"[\t\x20-\x7e]*\Z")
TAB = 8
LIMIT = 16_384
"""Characters of a line that are used; the rest is cut off."""


def clean(text: object, limit: int = 200) -> str:
    """`text` on one line, cut to `limit` characters, with `·` for each unprintable character: controls,
    text direction marks, invisible characters, half surrogate pairs. A number becomes text, anything else ""."""
    words = (
        text
        if isinstance(text, str)
        else str(text)[: limit + 1]
        if isinstance(text, int | float)
        else ""
    )
    safe = words[: limit + 1]
    if not safe.isprintable():
        safe = "".join(c if c.isprintable() else "·" for c in safe)
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def strip_controls(text: str, *, colour: bool = False) -> str:
    """`text` without escape sequences and control characters; keeps tabs, and SGR colours if `colour`."""
    if _HARMLESS.match(text):
        return text
    return _STEERING.sub(_keep_colour if colour else "", text)


def _keep_colour(match: re.Match[str]) -> str:
    return match["colour"] or ""


def printable(text: str, limit: int = LIMIT) -> str:
    """`text` as one line for the screen: no escape sequences, tabs as spaces, other unprintable characters as `?`.

    Of a line that was rewritten with carriage returns, only the last version.
    """
    text = text[:limit]
    if text.isprintable():
        return text
    text = text.rstrip("\r\n").rpartition("\r")[2]
    text = _ESCAPES.sub("", text).expandtabs(TAB)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "?" for c in text)


LONGEST = 8 << 20
"""Most bytes of one line of JSON."""
DEEPEST = 24
"""Deepest nesting of brackets in JSON."""
LATEST = 2.5e11
"""Epoch seconds from this on are not a valid time; calendars still support this year."""
_MOST_LINES = 1000
_INTEGER = 1 << 53
_DIGITS = 20
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)
Table = dict[str, Any]
Check = Callable[[object], bool]


def _never(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > _DIGITS:
        raise ValueError("a number of too many digits")
    return int(digits)


def _decimal(digits: str) -> float:
    number = float(digits)
    if number - number != 0:
        raise ValueError("a number out of range")
    return number


_READ = json.JSONDecoder(parse_int=_whole, parse_float=_decimal, parse_constant=_never).decode


def table(line: bytes, longest: int = LONGEST) -> Table | None:
    """The JSON object in these bytes; None if they hold no valid object, or one too long or too deeply nested.

    Numbers are finite, integers have at most 20 digits, and text can be encoded as UTF-8.
    """
    if len(line) > longest or line.lstrip()[:1] != b"{" or _deep(line):
        return None
    try:
        found = _READ(line.decode())
        if b"\\u" in line:
            # Half a surrogate pair, as in odd file names, cannot be encoded as UTF-8.
            whole = json.dumps(found, ensure_ascii=False).encode("utf-8", "replace")
            found = json.loads(whole)
    except (ValueError, RecursionError):
        return None
    return cast("Table", found) if isinstance(found, dict) else None


def tables(out: bytes) -> Iterator[Table]:
    """The JSON objects in the last 1000 lines, the last one first.

    The other lines are ignored: start-up files of a login shell may print some.
    """
    return filter(None, map(table, reversed(out[-LONGEST:].splitlines()[-_MOST_LINES:])))


def is_table(found: object) -> TypeGuard[Table]:
    """A JSON object."""
    return isinstance(found, dict)


def is_list(found: object) -> TypeGuard[list[Any]]:
    """A JSON array."""
    return isinstance(found, list)


def as_table(found: object) -> Table:
    """`found` if it is a JSON object, else an empty one."""
    return found if is_table(found) else {}


def as_list(found: object, most: int | None = None) -> list[Any]:
    """The first `most` items of a list (None: all); [] for anything else."""
    return found[:most] if is_list(found) else []


def as_tables(found: object, most: int | None = None) -> list[Table]:
    """The JSON objects among the first `most` items of a list; [] for anything else."""
    return list(filter(is_table, as_list(found, most)))


def _deep(line: bytes) -> bool:
    """Whether brackets are nested more deeply than DEEPEST."""
    if line.count(b"[") + line.count(b"{") <= DEEPEST:
        return False
    depth = 0
    for found in _BRACKETS.finditer(line):
        mark = found.group()
        depth += (mark in b"[{") - (mark in b"]}")
        if depth > DEEPEST:
            return True
    return False


# ---- fields --------------------------------------------------------------------------------


def figures(value: float, digits: int = 4) -> str:
    """A number with `digits` significant digits, or rounded to an integer: `9.573`, `12346`, not `1.235e+04`."""
    return f"{value:.0f}" if abs(value) >= 10**digits - 0.5 else f"{value:.{digits}g}"


def listed(names: Sequence[str], most: int = 6) -> str:
    """`n1, n2 and 4 more`: at most `most` of these names."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def day_time(at: float) -> str:
    """Epoch seconds as `2026-11-22 14:03` in this machine's time zone; "" if they are not a valid time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at)) if 0 < at < LATEST else ""


def integer(value: object) -> TypeGuard[int]:
    """An integer (not a bool) below 2^53 in size: SQLite, and programs that use doubles, can hold it."""
    return type(value) is int and abs(value) < _INTEGER


def natural(value: object) -> int:
    """`value` if it is an integer above 0, else 0."""
    return max(value, 0) if integer(value) else 0


def number(value: object) -> TypeGuard[int | float]:
    """A number (not a bool) below 1e300 in size, so that calculations do not overflow."""
    return type(value) in (int, float) and abs(cast("float", value)) < 1e300


def stamp(value: object) -> TypeGuard[int | float]:
    """Epoch seconds that are a valid time: from 0 to below LATEST."""
    return type(value) in (int, float) and 0 <= cast("float", value) < LATEST


def flag(value: object) -> bool:
    """A boolean, not a number."""
    return type(value) is bool


def text(longest: int) -> Check:
    """A check for text of at most `longest` characters."""
    return lambda value: isinstance(value, str) and len(value) <= longest


def rows(each: Check, most: int) -> Check:
    """A check for a list of at most `most` items that all pass `each`."""

    def check(value: object) -> bool:
        if not isinstance(value, list):
            return False
        found = cast("list[object]", value)
        return len(found) <= most and all(map(each, found))

    return check


def or_null(check: Check) -> Check:
    """A check for None, or what passes `check`."""
    return lambda value: value is None or check(value)


def fitting(found: Mapping[str, Any], shape: Mapping[str, Check]) -> Table:
    """The fields that are in `shape` and valid; the others are left out."""
    return {key: found[key] for key, check in shape.items() if key in found and check(found[key])}


def cleaned(found: Mapping[str, Any], shape: Mapping[str, Check]) -> Table:
    """The fields of `fitting`, with texts made printable and lists made tuples; `shape` must limit their length."""
    return {key: _cleaned(value) for key, value in fitting(found, shape).items()}


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return clean(value, LIMIT)
    return tuple(map(_cleaned, value)) if is_list(value) else value


LONGEST_PATTERN = 500
"""Most characters of a pattern."""
_MEMORY = 1 << 16
"""Most bytes of a compiled pattern."""
_STEPS = 500
"""Most instructions of a compiled pattern; they determine the time per line, then at most half a millisecond."""
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
    """A pattern that cannot be used; the text continues a sentence whose subject is the pattern: `is too large …`."""


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
        """The text of the first group that is not empty, "" if all are; None if the line does not match."""
        found = self.compiled.search(line.encode("utf-8", "replace"))
        if found is None:
            return None
        text = next((group for group in found.groups() if group), b"")
        return text.decode("utf-8", "replace")


def _characters(data: bytes, end: int) -> int:
    return len(data[:end].decode("utf-8", "replace"))


def compiled(text: str) -> Pattern:
    """Compile a pattern in RE2's syntax (no backreferences, no look-around). Raises BadPatternError."""
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


def searched(text: str) -> str:
    """The pattern (RE2's syntax) to use for a text typed into a search; "" if it is searched as plain text.

    It is plain text if it has no special character, or is not a valid pattern (`loss=(`). Upper case makes
    the pattern case-sensitive, except in escapes (`\\S`).
    """
    if _SIGNS.isdisjoint(text):
        return ""
    exact = any(map(str.isupper, _RE2_ESCAPE.sub("", text)))
    pattern = text if exact else f"(?i){text}"
    try:
        compiled(pattern)
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
