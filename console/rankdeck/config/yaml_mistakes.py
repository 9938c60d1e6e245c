"""What a file that is not YAML does wrong, in the words of people who do not know YAML's."""

import re
from collections.abc import Mapping

import yaml

DEPTH_LIMIT = 32
TOO_DEEP = f"nested too deeply: more than {DEPTH_LIMIT} levels"
_QUOTES = "put the whole text in quotes"
_SENTENCES: Mapping[str, str] = {
    "nesting depth": TOO_DEEP,
    "mapping values are not allowed": f"a colon and a blank (`: `) within a text: {_QUOTES}",
    "cannot start any token": f"`{{sign}}` cannot begin a text: {_QUOTES}",
    "expected alphabetic or numeric": f"`{{sign}}` begins an alias or an anchor: {_QUOTES}",
    "found undefined alias": f"`*` begins an alias, and there is none of this name: {_QUOTES}",
    "expected key": f"text behind a closing quote, or a line that is indented unlike those above it: {_QUOTES}, or align the line",
    "expected ',' or ']'": "a list in brackets has no `]`, or a word in it has brackets or quotes of its own: put such a word in quotes",
    "expected ',' or '}'": "a table in braces has no `}`, or a text in it has braces, commas or quotes of its own: put such a text in quotes",
    "found unexpected end of stream": "a quote is opened and never closed",
    "found unknown escape character": "a backslash in double quotes: write single quotes",
    "found another document": "a second document begins here (`---`): a file has one",
    "sequence entries are not allowed": "a `- ` where no list can begin: write it on a line of its own below the key, indented",
    "could not find expected ':'": "a line without `key: value`, or one that is indented unlike those above it",
    "expected <document start>": "a line that is not `key: value`",
}  # fmt: skip
"""Part of PyYAML's or libyaml's message -> what to say; `sign` is the character there."""
_NO_BREAK = re.compile(r"[\u00a0\u2007\u202f\u3000]")
_TYPED = re.compile(r"\A[\u2018-\u201f\u00ab]|[\u2018-\u201f\u00bb]\Z")


def explain_mistake(
    error: yaml.MarkedYAMLError, text: str, where: tuple[int, int]
) -> tuple[str, tuple[int, int]]:
    """(what is wrong, (line, column), from 1 on) for a text that cannot be read at `where`."""
    rows = text.split("\n", where[0])[: where[0]]
    sign = rows[where[0] - 1][where[1] - 1 :][:1] if len(rows) >= where[0] else ""
    if sign == "\t":
        return "a tab; indent with spaces", where
    for line in range(len(rows), max(0, len(rows) - 2), -1):
        if found := _NO_BREAK.search(rows[line - 1]):
            why = "a no-break space, as web pages have it: write an ordinary blank"
            return why, (line, found.start() + 1)
    what = " ".join(part for part in (error.context, error.problem) if part)
    known = next((words for part, words in _SENTENCES.items() if part in what), what)
    return known.replace("{sign}", sign), where


def typed_quotes(text: str) -> bool:
    """Whether a text begins or ends with the curved quotes of a word processor."""
    return _TYPED.search(text) is not None
