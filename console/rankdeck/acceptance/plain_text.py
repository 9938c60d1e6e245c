"""The output of a program as plain text: decoded, without what terminals, launchers, loggers and mails put around its lines."""

import codecs
import html
import re
from collections import defaultdict
from collections.abc import Iterator
from io import StringIO
from itertools import islice

from rankdeck.model.text import LIMIT, table

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_STEERING = re.compile(
    r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,400}(?:\x07|\x1b\\)|[()][0-9A-B]|[=>78Mc])|\x1a\Z"
)
"""Colours, titles and cursor moves in what went through `script`, `tee` or a terminal; the end of a file on DOS."""
_RETURNS = re.compile(r"\r+\n?")
_BLANKS: dict[int, str] = dict.fromkeys((0xA0, 0x2007, 0x202F), " ")
"""What web pages and word processors make of a blank."""
_HOLE = re.compile(r"\0{16,}")
"""Of a log that was rotated while it was written, or of a machine that stopped meanwhile."""
_LONG = re.compile(rf"^(.{{{LIMIT}}}).+$", re.MULTILINE)
_PAGE = re.compile(r"<(?:pre|code|br)\b", re.IGNORECASE)
_JIRA = re.compile(r"^\{(?:code|noformat|quote)\b[^{}\n]{0,100}\}$", re.MULTILINE)
_LINE_END = re.compile(r"<br\b[^<>]{0,100}>", re.IGNORECASE)
_ELEMENT = re.compile(
    r"</?(?:html|head|body|pre|code|p|div|span|table|t[rdh])\b[^<>]{0,300}>", re.IGNORECASE
)
_LOGGED = ("log", "message", "msg", "MESSAGE", "line")
"""Where Docker, log collectors and the journal keep the line in its JSON object."""
_BLOCK = re.compile(
    r"^(?:(?P<rule>-{8,80})\n(?P<nodes>[\w.,\[\]-]{1,300})(?: \(\d{1,7}\))?\n(?P=rule)"
    r"|(?P<host>[\w.-]{1,80}) \| [A-Z!]{1,20} \| rc=-?\d{1,3} >>)$",
    re.MULTILINE,
)
"""The line above what a node said: of dshbak, `clush -b` and ansible."""
_CLOCK = re.compile(
    r"\d{1,2}[:h]\d\d[:m]\d\d(?:[.,]\d{1,9})?|\d{8}[T_-]\d{6}|\d{9,20}|(?<![\d.])\d{1,12}\.\d{3,9}(?![\d.])"
)
_FEWEST_LINES = 5
"""Lines behind one prefix from which on it is told apart from others."""
_LONGEST, _MOST_PREFIXES = 200, 64
"""Characters of a prefix; how many different ones are looked at."""
_JSON = re.compile(r'\{\s*(?:"|$)|"\s*:')
_STRICT = re.compile(r"(?P<number>[ \t]*\d+)|(?P<room>[ \t]+)|[^\d \t]+")
_LOOSE = re.compile(r"(?P<word>[ \t]*[\w.@/-]+)|(?P<room>[ \t]+)|[^\w.@/ \t-]+")
_LIKE = {
    "number": r"[ \t]{0,40}\d{1,20}",
    "word": r"[ \t]{0,40}[\w.@/-]{1,120}",
    "room": r"[ \t]{1,40}",
}
_WORD = re.compile(r"[\w.@/-]+")


def text_of(raw: bytes) -> str:
    """The lines of an output: decoded, without colours, each at most 16,384 characters long."""
    text = _RETURNS.sub("\n", _STEERING.sub("", _HOLE.sub("\n", _decoded(raw))))
    text = _JIRA.sub("", _LONG.sub(r"\1", text.translate(_BLANKS)))
    if _PAGE.search(text):
        text = html.unescape(_ELEMENT.sub("", _LINE_END.sub("\n", text)))
    return _logged(text)


def _decoded(raw: bytes) -> str:
    for mark, coding in _BOMS:
        if raw.startswith(mark):
            return raw[len(mark) :].decode(coding, "replace")
    odd, even = (raw[begin:4096:2] for begin in (1, 0))
    for coding, zeros, letters in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        if zeros.count(0) * 10 > 9 * len(zeros) and letters.count(0) * 10 < len(letters):
            return raw.decode(coding, "replace")
    return raw.decode("utf-8", "replace")


def is_binary(text: str) -> bool:
    """Whether this is no text at all."""
    return "\0" in text


def _logged(text: str) -> str:
    """The lines in the objects of a log that has one a line; the text itself if it is none."""
    first = text.lstrip().partition("\n")[0]
    if _said(first) is None:
        return text
    return "".join(line if (said := _said(line)) is None else said for line in StringIO(text))


def _said(line: str) -> str | None:
    found = table(line.encode("utf-8", "replace")) if line.lstrip().startswith("{") else None
    said = next((found[key] for key in _LOGGED if isinstance(found.get(key), str)), None) if found else None  # fmt: skip
    # Docker keeps the line end, others cut it off.
    return said if said is None or (found and said is found.get("log")) else f"{said}\n"


def prefix_of(text: str, mark: str) -> re.Pattern[str] | None:
    """What stands before the lines of a program, by what stands before the line that only it prints; None if nothing does.

    Numbers in it may differ from line to line; words too, where every line of the text has it.
    """
    heads: dict[str, None] = {}
    begin = -1
    for found in re.finditer(mark, text) if mark else ():
        last, begin = begin, text.rfind("\n", 0, found.start()) + 1
        head = text[begin : found.start()] if begin != last else ""
        # Numbers alone may be the first column of a table, those of `cat -n` have a tab behind them.
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
    """A pattern of these prefixes, with other numbers or words in them."""
    some = islice(dict.fromkeys(_mask(head, tokens) for head in heads), _MOST_PREFIXES)
    return re.compile(f"^(?:{'|'.join(sorted(some, key=len, reverse=True))})", re.MULTILINE)


def _mask(head: str, tokens: re.Pattern[str]) -> str:
    bare = head.rstrip(" \t")
    if not bare:
        return re.escape(head)
    end = f"(?:{re.escape(head[len(bare) :])}|$)" if bare != head else ""
    return "".join(_LIKE.get(one.lastgroup or "", re.escape(one[0])) for one in tokens.finditer(bare)) + end  # fmt: skip


def parts_of(text: str, prefix: re.Pattern[str] | None) -> list[tuple[str, str]]:
    """(who, what it said) of an output to which several nodes or tasks wrote; one without a name where nobody can be told.

    The last has no name where there are several: lines of which nobody can be told.
    """
    heads = list(_BLOCK.finditer(text))
    if heads:
        ends = (*(head.start() for head in heads[1:]), len(text))
        return [
            (head["nodes"] or head["host"], text[head.end() : end])
            for head, end in zip(heads, ends, strict=True)
        ]
    if prefix is None:
        return [("", text)]
    said: defaultdict[str, list[str]] = defaultdict(list)
    rest: list[str] = []
    for line in StringIO(text):
        found = prefix.match(line)
        lines = said[" ".join(_CLOCK.sub("", found[0]).split())] if found else rest
        lines.append(line[found.end() :] or "\n" if found else line)
    if len(said) < 2 or max(map(len, said.values())) < _FEWEST_LINES:
        return [("", bare(text, prefix))]
    return [*zip(_names(list(said)), map("".join, said.values()), strict=True), ("", "".join(rest))]


def bare(text: str, prefix: re.Pattern[str] | None) -> str:
    """The text without the prefix of its lines."""
    return prefix.sub("", text) if prefix else text


def _names(prefixes: list[str]) -> Iterator[str]:
    """The first word of each that the others have not."""
    words = [_WORD.findall(prefix) for prefix in prefixes]
    for mine in words:
        others = [other for other in words if other is not mine]
        yield next(
            (word for place, word in enumerate(mine) if any(place >= len(other) or other[place] != word for other in others)),
            "",
        )  # fmt: skip
