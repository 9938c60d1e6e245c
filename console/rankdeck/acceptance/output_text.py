"""Reads the output of a recipe's program, after removing what terminals, launchers,
log collectors and mails add to its lines.
"""

import codecs
import html
import math
import quopri
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from io import StringIO
from itertools import islice, pairwise

from rankdeck import plugins
from rankdeck.acceptance.recipe import (
    Endpoints,
    HardwareFacts,
    OutputReading,
    Recipe,
    explain_reading,
    not_measured,
)
from rankdeck.acceptance.values import Outcome
from rankdeck.model.job_spec import Launch
from rankdeck.model.json_tables import Table, as_table, as_tables, parse_table
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.safe_text import LIMIT, clean_line
from rankdeck.values import Value, replace

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_STEERING = re.compile(
    r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,400}(?:\x07|\x1b\\)|[()][0-9A-B]|[=>78Mc])|\x1a\Z"
)
"""Colours, titles and cursor moves from `script`, `tee` or a
terminal; the end-of-file character of DOS.
"""
_RETURNS = re.compile(r"\r+\n?")
_BLANKS: dict[int, str] = dict.fromkeys((0xA0, 0x2007, 0x202F), " ")
"""Other blanks, from web pages and word processors."""
_HOLE = re.compile(r"\0{16,}")
"""NUL bytes: the log was rotated while it was written, or the machine stopped."""
_LONG = re.compile(rf"^(.{{{LIMIT}}}).+$", re.MULTILINE)
_TRAILING = re.compile(r"(?<=\S)[ \t]+$", re.MULTILINE)
_Rows = tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...]
"""(characters without which the pattern cannot match, which are found a
hundred times faster; pattern; replacement).
"""
_PAGE = re.compile(r"<(?:pre|code|br)\b", re.IGNORECASE)
_JIRA = re.compile(r"^\{(?:code|noformat|quote)\b[^{}\n]{0,100}\}$", re.MULTILINE)
_AROUND: _Rows = (
    (("\0" * 16,), _HOLE, "\n"),
    (("\x1b", "\x1a"), _STEERING, ""),
    (("\r",), _RETURNS, "\n"),
    (("\n" * 16,), re.compile(r"\n{16,}"), "\n" * 16),
)
_BEHIND: _Rows = (
    (("{code", "{noformat", "{quote"), _JIRA, ""),
    ((" \n", "\t\n"), _TRAILING, ""),
)
_LINE_END = re.compile(r"<br\b[^<>]{0,100}>", re.IGNORECASE)
_ELEMENT = re.compile(
    r"</?(?:html|head|body|pre|code|p|div|span|table|t[rdh])\b[^<>]{0,300}>", re.IGNORECASE
)
_LOGGED = ("log", "message", "msg", "MESSAGE", "line")
"""Keys under which Docker, log collectors and the journal keep the line in a JSON object."""
_BLOCK = re.compile(
    r"^(?:(?P<rule>-{8,80})\n(?P<nodes>[\w.,\[\]-]{1,300})(?: \(\d{1,7}\))?\n(?P=rule)"
    r"|(?P<host>[\w.-]{1,80}) \| [A-Z!]{1,20} \| rc=-?\d{1,3} >>)$",
    re.MULTILINE,
)
"""The heading above the lines of a node, as dshbak, `clush -b` and ansible print it."""
_CLOCK = re.compile(
    r"\d{1,2}[:h]\d\d[:m]\d\d(?:[.,]\d{1,9})?|\d{8}[T_-]\d{6}|\d{9,20}|(?<![\d.])\d{1,12}\.\d{3,9}(?![\d.])"
)
_FEWEST_LINES = 5
"""Prefixes are told apart only if one of them has at least this many lines."""
_LONGEST, _MOST_PREFIXES = 200, 64
"""Most characters of a prefix; most different prefixes to look at."""
_JSON = re.compile(r'\{\s*(?:"|$)|"\s*:')
_STRICT = re.compile(r"(?P<number>[ \t]*\d+)|(?P<room>[ \t]+)|[^\d \t]+")
_LOOSE = re.compile(r"(?P<word>[ \t]*[\w.@/-]+)|(?P<room>[ \t]+)|[^\w.@/ \t-]+")
_LIKE = {
    "number": r"[ \t]{0,40}\d{1,20}",
    "word": r"[ \t]{0,40}[\w.@/-]{1,120}",
    "room": r"[ \t]{1,40}",
}
_WORD = re.compile(r"[\w.@/-]+")


_NARROWEST, _WRAPS = 60, 3
"""Columns that a terminal has at least; lines as wide as the terminal from
which on its lines count as wrapped.
"""


def decode_output(raw: bytes, *, unwrapped: bool = False) -> str:
    """The lines of an output, decoded, without colours, each at most 16,384 characters long.

    With `unwrapped`, lines are joined that a terminal wrapped; "" if
    the output does not look like that.
    """
    text = _mailed(_without(_AROUND, _decoded(raw)))
    if unwrapped:
        text = _unwrapped(text)
    text = _LONG.sub(r"\1", text.translate(_BLANKS))
    text = _without(_BEHIND, f"{text}\n")[:-1]
    if _PAGE.search(text):
        text = html.unescape(_ELEMENT.sub("", _LINE_END.sub("\n", text)))
    return _logged(_unnumbered(text))


def _unwrapped(text: str) -> str:
    """The text as it was before a terminal of limited width cut its lines,
    whose widest lines are then equally wide.

    Rows of a table are as wide as each other, too, but a cut line is seldom followed by another;
    and a rule (`-----`) as wide as these shows that the program itself is so wide.
    """
    lines = list(lines_of(text))
    widest = max(map(len, lines), default=0)
    cut = [len(line) == widest for line in lines]
    twice = sum(one and other for one, other in pairwise(cut))
    ruled = any(len({*line}) == 1 for line, one in zip(lines, cut, strict=True) if one)
    if widest < _NARROWEST or sum(cut) < _WRAPS or 2 * twice > sum(cut) or ruled:
        return ""
    return "".join(line if one else f"{line}\n" for line, one in zip(lines, cut, strict=True))


def _without(rows: _Rows, text: str) -> str:
    for signs, pattern, instead in rows:
        if any(sign in text for sign in signs):
            text = pattern.sub(instead, text)
    return text


_QUOTED = re.compile(r"^Content-Transfer-Encoding: quoted-printable$", re.MULTILINE | re.IGNORECASE)
_SOFT_END = re.compile(r"^.{60,76}=$|=3D|=[C-F][0-9A-F]=[89AB][0-9A-F]", re.MULTILINE)
_UNQUOTED = re.compile(r"=(?![0-9A-F]{2}|$)", re.MULTILINE)


def _mailed(text: str) -> str:
    """The text without the quoted-printable encoding of mails."""
    quoted = "=" in text and not _UNQUOTED.search(text) and _SOFT_END.search(text)
    named = "quoted-printable" in text.casefold() and _QUOTED.search(text)
    if not quoted and not named:
        return text
    return quopri.decodestring(text.encode("utf-8", "replace")).decode("utf-8", "replace")


_NUMBERED = re.compile(r" {0,8}(\d{1,9})(?:\t|:| {2}|$)")


def _unnumbered(text: str) -> str:
    """The text without the line numbers of `cat -n`, `nl` or `grep -n`; unchanged
    if not all lines are numbered in order.
    """
    rest: list[str] = []
    first = count = 0
    for line in StringIO(text):
        found = _NUMBERED.match(line)
        if found:
            first, count = first if count else int(found[1]), count + 1
        if not ((found and int(found[1]) == first + count - 1) or line.isspace()):
            return text
        rest.append(line[found.end() :] if found else line)
    return "".join(rest) if count >= _FEWEST_LINES else text


def _decoded(raw: bytes) -> str:
    for mark, coding in _BOMS:
        if raw.startswith(mark):
            return raw[len(mark) :].decode(coding, "replace")
    odd, even = (raw[begin:4096:2] for begin in (1, 0))
    for coding, zeros, letters in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        if zeros.count(0) * 10 > 9 * len(zeros) and letters.count(0) * 10 < len(letters):
            return raw.decode(coding, "replace")
    return raw.decode("utf-8", "replace")


def _logged(text: str) -> str:
    """The lines inside a log with one JSON object per line; unchanged if it is not such a log."""
    first = text.lstrip().partition("\n")[0]
    if _logged_message(first) is None:
        return text
    return "".join(
        line if (message := _logged_message(line)) is None else message for line in StringIO(text)
    )


def _logged_message(line: str) -> str | None:
    found = parse_table(line.encode("utf-8", "replace")) if line.lstrip().startswith("{") else None
    message = (
        next((found[key] for key in _LOGGED if isinstance(found.get(key), str)), None)
        if found
        else None
    )
    # Docker keeps the line end, others remove it.
    return message if message is None or (found and message is found.get("log")) else f"{message}\n"


def prefix_of(text: str, mark: str) -> re.Pattern[str] | None:
    """The prefix of a program's lines, found before the line that only this
    program prints; None if there is none.

    Numbers in the prefix may differ from line to line; words too, if
    every line of the text has the prefix.
    """
    heads: dict[str, None] = {}
    begin = -1
    for found in re.finditer(mark, text) if mark else ():
        last, begin = begin, text.rfind("\n", 0, found.start()) + 1
        head = text[begin : found.start()] if begin != last else ""
        # Numbers alone may be the first column of a table; those of `cat -n` are followed by a tab.
        numbers = bool(head.strip()) and not head.strip(" \t0123456789")
        if (
            0 < len(head) <= _LONGEST
            and (not numbers or head.endswith("\t"))
            and not _JSON.search(head)
        ):
            heads.setdefault(head)
        if len(heads) > 100 * _MOST_PREFIXES:
            break
    if not heads:
        return None
    loose = _like(heads, _LOOSE)
    if all(loose.match(line) or line.isspace() for line in StringIO(text)):
        return loose
    return _like(heads, _STRICT)


def _like(heads: dict[str, None], tokens: re.Pattern[str]) -> re.Pattern[str]:
    """A pattern that matches these prefixes with any numbers or words in them."""
    kinds = {_mask(head, tokens): head for head in heads}
    some = dict(islice(kinds.items(), _MOST_PREFIXES))
    known = [mask for mask, head in some.items() if not any(_goes_on(one, head) for one in some)]
    return re.compile(f"^(?:{'|'.join(sorted(known, key=len, reverse=True))})", re.MULTILINE)


def _goes_on(mask: str, head: str) -> bool:
    """Whether the prefix is followed by words of the program itself,
    because other lines have a shorter prefix.
    """
    found = re.match(mask, head)
    return bool(found and _WORD.search(head, found.end()))


def _mask(head: str, tokens: re.Pattern[str]) -> str:
    bare = head.rstrip(" \t")
    if not bare:
        return re.escape(head)
    end = f"(?:{re.escape(head[len(bare) :])}|$)" if bare != head else ""
    return (
        "".join(_LIKE.get(one.lastgroup or "", re.escape(one[0])) for one in tokens.finditer(bare))
        + end
    )


def parts_of(text: str, prefix: re.Pattern[str] | None) -> list[tuple[str, str]]:
    """(node or task, its lines) in an output that several wrote; one part
    without a name if they cannot be told apart.

    Parts by prefix end with one without a name, for the lines whose writer is not known.
    """
    heads = list(_BLOCK.finditer(text))
    if heads:
        ends = (*(head.start() for head in heads[1:]), len(text))
        return [
            (head["nodes"] or head["host"], strip_line_prefix(text[head.end() : end], prefix))
            for head, end in zip(heads, ends, strict=True)
        ]
    if prefix is None:
        return [("", text)]
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    rest: list[str] = []
    for line in StringIO(text):
        found = prefix.match(line)
        lines = by_name[" ".join(_CLOCK.sub("", found[0]).split())] if found else rest
        lines.append(line[found.end() :] or "\n" if found else line)
    if len(by_name) < 2 or max(map(len, by_name.values())) < _FEWEST_LINES:
        return [("", strip_line_prefix(text, prefix))]
    return [
        *zip(_names(list(by_name)), map("".join, by_name.values()), strict=True),
        ("", "".join(rest)),
    ]


def strip_line_prefix(text: str, prefix: re.Pattern[str] | None) -> str:
    """The text without the prefix of each line."""
    return prefix.sub("", text) if prefix else text


def _names(prefixes: list[str]) -> Iterator[str]:
    """For each prefix, its first word that the others do not have."""
    words = [_WORD.findall(prefix) for prefix in prefixes]
    for mine in words:
        others = [other for other in words if other is not mine]
        yield next(
            (
                word
                for place, word in enumerate(mine)
                if any(place >= len(other) or other[place] != word for other in others)
            ),
            "",
        )


_DIGITS = 25
"""Most characters of a number; a longer word is not read as a number."""


def split_runs(text: str, begins: str, done: str = "") -> Iterator[str]:
    """Each run in an output with several, one after the other.

    A line that matches `begins` starts a run, unless the run before has no line that matches `done`
    yet: copies of a program that run side by side start side by side.
    """
    start, begun, ready = 0, False, not done
    for found in re.finditer(f"(?P<done>{done or '(?!)'})|{begins}", text, re.MULTILINE):
        if found["done"] is not None:
            ready = True
        elif begun and ready:
            yield text[start : found.start()]
            start, ready = found.start(), not done
        begun = True
    yield text[start:]


def lines_of(text: str) -> Iterator[str]:
    """The lines of a text, one at a time, because hostile output may have millions."""
    for line in StringIO(text):
        yield line.rstrip("\n")


def parse_cell_number(word: str) -> float | None:
    """The finite number in a cell; None for `N/A`, `nan` and anything else."""
    if len(word) > _DIGITS:
        return None
    try:
        found = float(word)
    except ValueError:
        return None
    return found if math.isfinite(found) and "_" not in word else None


def parse_cell_integer(word: str) -> int | None:
    """The whole number in a cell, 0 or more; None for anything else."""
    return int(word) if word.isascii() and word.isdigit() and len(word) <= _DIGITS else None


@lru_cache(64)
def _places(header: tuple[str, ...]) -> Mapping[str, list[int]]:
    """Name of a column -> its positions in the header."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(header):
        found[name].append(place)
    return dict(found)


class Row(Value):
    """A row of a table."""

    header: tuple[str, ...]
    cells: tuple[str, ...]

    def cell(self, column: str, which: int = 0) -> str:
        """The cell under the first (`which` 0), second, … column of
        that name; "" if there is none.
        """
        places = _places(self.header).get(column, ())
        if which >= len(places) or places[which] >= len(self.cells):
            return ""
        return self.cells[places[which]]

    def number(self, column: str, which: int = 0) -> float | None:
        return parse_cell_number(self.cell(column, which))


class Layout(Value):
    """The format of a program's tables."""

    first: str
    """Name of the first column, by which a header is recognized; it has whole numbers."""
    also: str
    """A part of another word in the header."""
    names: re.Pattern[str]
    """Pattern for one name in the header."""
    cells: re.Pattern[str] = re.compile(r"\S+")


def table_rows(text: str, layout: Layout) -> Iterator[Row]:
    """Every line under a header with a whole number in the `first` column."""
    header: tuple[str, ...] = ()
    for line in lines_of(text):
        if layout.first in line and layout.also in line:
            header = tuple(layout.names.findall(line.lstrip().removeprefix("# ")))
        elif header:
            cells = tuple(layout.cells.findall(line))
            place = header.index(layout.first) if layout.first in header else len(cells)
            if place < len(cells) and parse_cell_integer(cells[place]) is not None:
                yield Row(header, cells)


_OBJECT = re.compile(r'^[ \t]*\{(?=\s*")', re.MULTILINE)


def object_in(text: str) -> Table | None:
    """The JSON object in an output, with any lines before and after it; None if it is not valid."""
    first = _OBJECT.search(text)
    begin = first.start() if first else text.find("{")
    ends = (text.rfind("}"), text.rfind("\n}") + 1)
    found = (
        parse_table(text[begin : end + 1].encode("utf-8", "replace")) for end in ends if end > begin
    )
    return next((one for one in found if one is not None), None) if begin >= 0 else None


def first_line(text: str, *parts: str) -> str:
    """The first line that contains one of these parts, stripped; "" if none does."""
    places = [place for part in parts if (place := text.find(part)) >= 0]
    if not places:
        return ""
    return line_at(text, min(places))


def line_at(text: str, place: int) -> str:
    """The line at this position in the text, stripped."""
    begin, end = text.rfind("\n", 0, place) + 1, text.find("\n", place)
    return text[begin : end if end >= 0 else None].strip()


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names without duplicates, in order."""
    return tuple(dict.fromkeys(names))


def object_tables(parent: object, key: str) -> list[Table]:
    """The JSON objects, without empty ones, in the list under this key."""
    return [one for one in as_tables(as_table(parent).get(key)) if one]


LARGEST = 32 << 20
"""Most bytes of an output to read; NCCL_DEBUG=INFO of 1,000 ranks stays below."""
_GLANCE = 1 << 18
"""Characters that are searched for another recipe."""
MOST = 1000
"""Most results of one output."""
_ABSURD = 10.0
"""A value above this many times the ceiling is not a measurement."""
_BOUND = 1e12
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"PK\x03\x04", b"BZh")
"""The first bytes of files of gzip, zstd, xz, zip and bzip2."""
_TWO = Endpoints(nodes=("a", "b"))
_CITED = ": `"
NOT_STARTED = re.compile(
    r"command not found|rank \d{1,9} cannot start: |No such file or directory|error while loading shared libraries|cannot execute|not found \(required by"
    r"|\b(?:[Ii]nvalid|unrecognized|unknown) option\b|No executable was specified|Missing Required Argument|option requires an argument|parameter error -|-method must be one of:"
)
CRASHED = re.compile(
    r"exited on signal|BAD TERMINATION|Segmentation fault|MPI_ABORT was invoked|Bus error|Node failure on|DUE TO NODE FAILURE|oom[-_]kill event"
)
"""Messages of a launcher or scheduler that a rank or a node broke."""
STOPPED = re.compile(r"CANCELLED AT|DUE TO TIME LIMIT|DeadlineExceeded")
_KILLED = re.compile(r"^srun: error: .{0,300}: (?:Killed|Aborted|Terminated)", re.MULTILINE)
_STARTS = (
    "command not found", "cannot start: ", "No such file or directory", "error while loading shared libraries", "cannot execute", "not found (required by",
    "option", "No executable was specified", "Missing Required Argument", "parameter error -", "-method must be one of:",
)  # fmt: skip
"""Words without which the first pattern cannot match."""
_ENDS = (
    (Outcome.NOT_MEASURED, "it did not run", _STARTS, NOT_STARTED),
    (Outcome.FAILED, "it broke", ("",), CRASHED),
    (Outcome.NOT_MEASURED, "it was stopped", ("",), STOPPED),
    (Outcome.FAILED, "it broke", ("srun: error: ",), _KILLED),
)
"""(status, text of the reading, words in the output, part of the line to
show); the first that is found counts.
"""
_COMPLAINTS = (
    b"error: ", b"[error]", b"fatal: ", b"unable to ", b"lost communication", b"couldn't ", b"failed to ", b"not found",
    b"not enough", b"refused", b"denied", b"timed out", b"is down", b"do not match",
)  # fmt: skip
"""In lower case."""


class Asked(Value, kw_only=True):
    """What the run should measure; empty and None if somebody else started it."""

    hosts: tuple[str, ...] = ()
    ranks: int = 0
    exit_code: int | None = None


NOBODY = Asked()


def read_output(
    recipe: Recipe, raw: bytes, asked: Asked = NOBODY, known: HardwareFacts | None = None
) -> tuple[OutputReading, ...]:
    """Each result with its sentence, at least one.

    A result that is incomplete, invalid or not of `asked` says why.
    """
    text = decode_output(raw[:LARGEST])
    if not text.strip():
        return (not_measured("the output is empty"),)
    if "\0" in text:
        packed = raw.startswith(_PACKED)
        return (not_measured("it is packed: unpack it first" if packed else "this is no text"),)
    readings = list(islice(_readings(recipe, text, alone=asked != NOBODY), MOST))
    if asked == NOBODY and all(one.status is Outcome.NOT_MEASURED for _, one in readings):
        wide = decode_output(raw[:LARGEST], unwrapped=True)
        joined = list(islice(_readings(recipe, wide, alone=False), MOST))
        if _has_result(joined):
            readings = joined
        elif other := _finder(recipe.name, text[:_GLANCE]):
            hint = f"; `--read {other}` finds a result in it"
            readings = [(who, replace(one, text=one.text + hint)) for who, one in readings]
    return tuple(
        _named(_checked(recipe, one, asked, known or HardwareFacts()), who) for who, one in readings
    )


def _finder(name: str, text: str) -> str:
    """The first other recipe that finds a result in the text; "" if none does."""

    @cache  # recipes of the same program share a mark
    def has(mark: str) -> bool:
        return re.search(mark, text) is not None

    others = (plugins.find_plugin("recipes", one)() for one in plugins.RECIPES if one != name)
    return next(
        (
            other.name
            for other in others
            if has(other.traits.mark) and _has_result(_readings(other, text, alone=False))
        ),
        "",
    )


def _has_result(readings: Iterable[tuple[str, OutputReading]]) -> bool:
    return any(one.status is Outcome.MEASURED for _, one in readings)


def _readings(recipe: Recipe, text: str, *, alone: bool) -> Iterator[tuple[str, OutputReading]]:
    """(node, result) for each run of each node; the node is "" if the output is of one run of all.

    For an MPI program, the lines of a node are a run of their own only if the node is the only host
    named in them: then somebody ran the program on each node separately.
    """
    prefix = prefix_of(text, recipe.traits.mark)
    whole = [("", strip_line_prefix(text, prefix))]
    parts = whole if alone else parts_of(text, prefix)
    if parts == whole or recipe.commands(_TWO).launch is Launch.PLAIN:
        return _of_parts(recipe, parts)
    names = {who for who, _ in parts if who}
    if len(names) > 1 and not any(map(str.isdigit, names)):
        each = list(islice(_of_parts(recipe, parts), MOST))
        if each and all(
            any(_are_same(one.hosts, (word,)) for word in who.split("/")) for who, one in each
        ):
            return iter(each)
    return _of_parts(recipe, whole)


def _of_parts(recipe: Recipe, parts: list[tuple[str, str]]) -> Iterator[tuple[str, OutputReading]]:
    traits = recipe.traits
    for who, part in parts:
        lines = part.replace("\t", " ")
        for run in split_runs(lines, traits.begins, traits.done) if traits.begins else (lines,):
            cause = cache(partial(_cause, run))
            for one in recipe.read(run):
                if one.status is Outcome.NOT_MEASURED and _CITED not in one.text:
                    one = _with_cause(one, cause)
                if who or len(parts) == 1 or _CITED in one.text:
                    yield who, one


def _named(reading: OutputReading, who: str) -> OutputReading:
    """The reading with its node in the text, if there are several."""
    if not who:
        return reading
    return replace(reading, hosts=reading.hosts or (who,), text=f"{who}: {reading.text}")


_Cause = tuple[Outcome | None, str]
"""(outcome of the run, None if the recipe's own reading stands; the line that says so)."""


def _cause(text: str, ran: bool) -> _Cause:
    """Why there is no result, from the first line of the system, the
    launcher or the scheduler that says so.
    """
    for status, what, signs, pattern in _ENDS[ran:]:
        found = pattern.search(text) if any(sign in text for sign in signs) else None
        if found:
            return status, f"{what}{_CITED}{line_at(text, found.start())[:160]}`"
    line = "" if ran else _complaint_of(text)
    return None, f"; it says{_CITED}{line[:160]}`" if line else ""


def _complaint_of(text: str) -> str:
    """The first line with a complaint.

    It is searched as bytes, because lower case does not change their positions.
    """
    raw = text.encode("utf-8", "replace")
    small = raw.lower()
    places = [place for word in _COMPLAINTS if (place := small.find(word)) >= 0]
    if not places:
        return ""
    begin, end = raw.rfind(b"\n", 0, min(places)) + 1, raw.find(b"\n", min(places))
    return raw[begin : end if end >= 0 else None].decode("utf-8", "replace").strip()


def _with_cause(reading: OutputReading, cause: Callable[[bool], _Cause]) -> OutputReading:
    """The reading of a run without a result, with the cause added."""
    ran = bool(reading.hosts or reading.ranks or reading.size is not None)
    status, why = cause(ran)
    if status is None:
        return replace(reading, text=reading.text + why)
    return replace(reading, status=status, text=why)


def _checked(
    recipe: Recipe, reading: OutputReading, asked: Asked, known: HardwareFacts
) -> OutputReading:
    reading = _sane(reading)
    if reading.status is Outcome.MEASURED:
        expected = recipe.expect(reading, known)
        ceiling = expected.ceiling if expected else 0.0
        reading = _complaint(reading, asked, ceiling, recipe.traits.names_hosts) or explain_reading(
            reading, expected
        )
    if reading.status is not Outcome.MEASURED:
        return replace(reading, value=None)
    return reading


def _sane(reading: OutputReading) -> OutputReading:
    """The reading with all foreign text made printable."""
    return replace(
        reading,
        text=clean_line(reading.text, 400),
        hosts=tuple(clean_line(host, 100) for host in reading.hosts[:10_000]),
    )


def _complaint(
    reading: OutputReading, asked: Asked, ceiling: float, names_hosts: bool
) -> OutputReading | None:
    """A reading that says why the value may not be used; None if it may."""
    value = reading.value
    if asked.exit_code:
        why = f"it printed a result and ended with {asked.exit_code}"
        return replace(reading, status=Outcome.FAILED, text=why)
    if asked.hosts and reading.hosts and not _are_same(reading.hosts, asked.hosts):
        why = f"it ran on {fold_nodes(reading.hosts)}, not on {fold_nodes(asked.hosts)}"
        return replace(reading, status=Outcome.REFUSED, text=why)
    if asked.hosts and names_hosts and not reading.hosts:
        why = "it does not say on which hosts it ran"
        return replace(reading, status=Outcome.REFUSED, text=why)
    if asked.ranks and reading.ranks not in (None, asked.ranks):
        why = f"it ran with {reading.ranks} ranks, not with {asked.ranks}"
        return replace(reading, status=Outcome.REFUSED, text=why)
    if value is None or not 0 < value < (_ABSURD * ceiling or _BOUND):
        why = f"the value {value:g} cannot be" if value is not None else "no value"
        return replace(reading, status=Outcome.NOT_MEASURED, text=why)
    return None


def _are_same(hosts: Collection[str], asked: Collection[str]) -> bool:
    """Whether these are the same machines; nccl-tests cuts domains off,
    which the machines' own names may have.
    """
    return all(any(_is_same(one, other) for other in asked) for one in hosts) and all(
        any(_is_same(one, other) for one in hosts) for other in asked
    )


def _is_same(one: str, other: str) -> bool:
    """Whether two names mean the same machine: `n1` is `n1.example.org`, but
    different domains are different machines.
    """
    one, other = one.casefold(), other.casefold()
    short = "." not in one or "." not in other
    return one == other or (short and one.partition(".")[0] == other.partition(".")[0])
