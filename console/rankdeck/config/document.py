"""YAML documents: read into entries that know their line and collect every
mistake; and written for people and kubectl.

Names, addresses and paths are checked here, because they become parts of command lines.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from yaml.composer import Composer

from rankdeck.config.files import read_regular
from rankdeck.config.yaml_mistakes import DEPTH_LIMIT, TOO_DEEP, explain_mistake, typed_quotes
from rankdeck.errors import (
    ConfigError,
    HostileFileError,
    Problem,
    suggest_or_list,
    suggest_word,
)
from rankdeck.model.json_tables import Table, read_table
from rankdeck.model.nodeset import expand_nodes
from rankdeck.values import replace

ENTRY_LIMIT = 100_000
"""Most entries of a document with its aliases expanded; a document with more is an attack."""
_Parser: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
"""libyaml's parser is ten times as fast; its composer overflows the
stack, so `_Bounded` uses PyYAML's.
"""


class _Bounded(Composer, _Parser):
    """PyYAML's composer on top of the chosen parser, with limits on entries and depth."""

    def __init__(self, text: str) -> None:
        _Parser.__init__(self, text)
        Composer.__init__(self)
        self._entries = self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401 - as PyYAML has it
        """One node and all below it; raises MarkedYAMLError beyond the limits."""
        self._entries += 1
        if self._entries > ENTRY_LIMIT:
            self._refuse(f"more than {ENTRY_LIMIT} entries")
        if self._depth >= DEPTH_LIMIT:
            self._refuse(TOO_DEEP)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def _refuse(self, why: str) -> None:
        raise _LimitReachedError(problem=why, problem_mark=self.peek_event().start_mark)


class _LimitReachedError(yaml.MarkedYAMLError):
    pass


def compose_document(text: str) -> yaml.Node | None:
    """The root of the only document in `text`, None if it is empty; raises
    YAMLError, with a position if known.
    """
    loader: Any = _Bounded(text)
    try:
        root: yaml.Node | None = loader.get_single_node()
    finally:
        loader.dispose()
    return root


def compose_all(text: str) -> list[yaml.Node]:
    """The roots of all documents in `text` that are not empty; raises
    YAMLError, with a position if known.
    """
    loader: Any = _Bounded(text)
    roots: list[yaml.Node] = []
    try:
        while loader.check_node():
            roots.append(loader.get_node())
    finally:
        loader.dispose()
    return [root for root in roots if not str(root.tag).endswith(":null")]


SIZE_LIMIT = 1 << 20
MOST_PROBLEMS = 100
"""Most mistakes of one file that are reported: more do not help, and finding them takes time."""
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_WORDS = {
    "str": "text",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "timestamp": "a date",
    "map": "a table",
    "seq": "a list",
}


@dataclass(frozen=True)
class Entry:
    """One value of a document: its node, its place, and the list that
    collects the mistakes of the document.
    """

    file: str
    node: yaml.Node
    path: str
    problems: list[Problem] = field(repr=False)

    def report(self, text: str) -> None:
        """Add a mistake at this place; raises ConfigError with all of
        them once there are MOST_PROBLEMS.
        """
        mark = self.node.start_mark
        place = self.path or "file"
        self.problems.append(
            Problem(self.file, mark.line + 1, mark.column + 1, place, replace_unprintable(text))
        )
        if len(self.problems) >= MOST_PROBLEMS:
            finish_document(self)

    @property
    def kind(self) -> str:
        """The YAML type without its prefix: str, int, float, bool, null, map, seq."""
        return str(self.node.tag).rpartition(":")[2]

    @property
    def found(self) -> str:
        """This value in words, for a message."""
        word = _WORDS.get(self.kind, f"`{self.node.tag}`")
        if isinstance(self.node, yaml.ScalarNode) and self.kind != "null":
            return f"{word} `{str(self.node.value)[:60]}`"
        return word

    @property
    def raw(self) -> str:
        """The text of a scalar as written; "" for a list or table."""
        return str(self.node.value) if isinstance(self.node, yaml.ScalarNode) else ""

    def expected(self, what: str) -> None:
        """Report that something else than `what` was found."""
        self.report(f"expected {what}, found {self.found}")

    # ---- scalars: the value, or the default after a report --------------------------

    def text(self, default: str = "") -> str:
        """A text; a bare number is refused, because YAML would not
        keep the spelling of 007 or 1e3.
        """
        if self.kind != "str" or not isinstance(self.node, yaml.ScalarNode):
            hint = "; put it in quotes" if isinstance(self.node, yaml.ScalarNode) else ""
            self.report(f"expected text, found {self.found}{hint}")
            return default
        return self._straight()

    def word(self, default: str = "") -> str:
        """A text as written, bare numbers included; for arguments and variables."""
        if isinstance(self.node, yaml.ScalarNode) and self.kind in ("str", "int", "float"):
            return self._straight()
        if self.kind == "timestamp" and isinstance(self.node, yaml.ScalarNode):
            return self.raw
        if self.kind in ("bool", "null"):
            self.report(f"`{self.raw}` means {self.found} in YAML; put it in quotes")
            return default
        self.expected("text")
        return default

    def _straight(self) -> str:
        """This text; a mistake if it begins or ends with the quotes of a word processor."""
        plain = isinstance(self.node, yaml.ScalarNode) and not self.node.style
        if plain and typed_quotes(self.raw):
            self.report(f"`{self.raw[:60]}` has curved quotes: write straight ones (\" or ')")
        return self.raw

    def integer(self, default: int = 0, *, least: int = 0, most: int = 1_000_000) -> int:
        """A whole number from `least` to `most`."""
        value = self._number(int) if self.kind == "int" else None
        if value is None or not least <= value <= most:
            self.expected(f"a whole number from {least} to {most}")
            return default
        return int(value)

    def number(self, default: float = 0.0, *, least: float = 0, most: float = 1e9) -> float:
        """A number from `least` to `most`."""
        value = self._number(float) if self.kind in ("int", "float") else None
        if value is None or not least <= value <= most:
            self.expected(f"a number from {least:g} to {most:g}")
            return default
        return value

    def _number(self, make: type[int] | type[float]) -> float | None:
        try:
            value = make(self.raw.replace("_", ""))
            return value if math.isfinite(value) else None
        except (ValueError, OverflowError):  # OverflowError: an integer too large for a float
            return None

    def truth(self, *, default: bool = False) -> bool:
        """True or false."""
        if self.kind != "bool":
            self.expected("true or false")
            return default
        return self.raw.lower() in ("true", "yes", "on")

    def choice(self, known: Collection[str], default: str = "") -> str:
        """One of the known words."""
        word = self.text()
        if word in known:
            return word
        if self.kind == "str":
            hint = suggest_or_list(word, known)
            self.report(f"no such value `{word[:60]}`{hint}")
        return default

    # ---- lists and tables -----------------------------------------------------------

    def items(self) -> Iterator["Entry"]:
        """The elements of a list."""
        if not isinstance(self.node, yaml.SequenceNode):
            self.expected("a list")
            return
        for index, node in enumerate(self.node.value):
            yield Entry(self.file, node, f"{self.path}[{index}]", self.problems)

    def words(self) -> tuple[str, ...]:
        """A list of words, as written."""
        return tuple(item.word() for item in self.items())

    def fields(self) -> dict[str, "Entry"]:
        """A table's entries by key, in order; a key that is given twice is reported."""
        table: dict[str, Entry] = {}
        if not isinstance(self.node, yaml.MappingNode):
            self.expected("a table (key: value)")
            return table
        for key_node, value in self.node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                replace(self, node=key_node).report("a key must be a word")
                continue
            key = str(key_node.value)
            if str(key_node.tag).endswith(":merge"):
                replace(self, node=key_node).report("`<<` is not read: write the keys out")
                continue
            path = f"{self.path}.{key}" if self.path else key
            if key in table:
                first = table[key].node.start_mark.line + 1
                again = f"`{key[:60]}` is given twice; first on line {first}"
                replace(self, node=key_node).report(again)
                continue
            table[key] = Entry(self.file, value, path, self.problems)
        return table

    def section(
        self,
        known: Collection[str],
        required: Collection[str] | Mapping[str, str] = (),
        refused: Mapping[str, str] | None = None,
    ) -> dict[str, "Entry"]:
        """A table with known keys; unknown and missing keys are reported.

        `required` may tell what each key is for; `refused` is key -> why it is not allowed.
        """
        table = self.fields()
        for key in (key for key in table if key not in known):
            hint = suggest_or_list(key, known)
            why = (refused or {}).get(key, f"unknown key `{key[:60]}`{hint}")
            self._key(key).report(why)
        if isinstance(self.node, yaml.MappingNode):
            for key in required:
                if key not in table:
                    what = f": {required[key]}" if isinstance(required, Mapping) else ""
                    self.report(f"`{key}` is missing{what}")
        return {key: entry for key, entry in table.items() if key in known}

    def _key(self, name: str) -> "Entry":
        for key_node, _ in self.node.value:
            if str(key_node.value) == name:
                return replace(self, node=key_node)
        return self

    def table(self) -> dict[str, str]:
        """A table of words."""
        return {key: entry.word() for key, entry in self.fields().items()}


_CONSTRUCTOR: Any = yaml.constructor.SafeConstructor()


def raw_value(entry: Entry) -> Any:  # noqa: ANN401 - whatever JSON has
    """The value with all below it as JSON has it; what JSON does not have (a date) is reported."""
    if entry.kind == "map":
        return {key: raw_value(value) for key, value in entry.fields().items()}
    if entry.kind == "seq":
        return [raw_value(item) for item in entry.items()]
    if entry.kind not in ("str", "int", "float", "bool", "null"):
        entry.report(f"{entry.found} is no value that JSON has; put it in quotes")
        return None
    try:
        value: Any = _CONSTRUCTOR.construct_object(entry.node)
    except (ValueError, OverflowError) as error:
        entry.report(f"`{entry.raw[:60]}` cannot be read: {error}")
        return None
    if isinstance(value, float) and not math.isfinite(value):
        entry.report(f"`{entry.raw[:60]}` is no number that JSON has; put it in quotes")
        return None
    return value


def replace_unprintable(text: str) -> str:
    """`text` with unprintable characters replaced: a file may come from anyone."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def load_document(path: Path) -> Entry:
    """The root of the document in `path`, with an empty list of problems; raises ConfigError."""
    return parse_document(path, read_text(path))


def parse_document(path: Path, text: str) -> Entry:
    """The root of the document in `text`, which was read from `path`; as `load`."""
    try:
        root = compose_document(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        what, where = explain_mistake(error, text, where)
        told = _single(path, f"not YAML: {what}", where)
        if isinstance(error, _LimitReachedError):
            raise HostileFileError(told.problems) from error
        raise told from error
    except yaml.YAMLError as error:
        raise _single(path, f"not YAML: {str(error).splitlines()[0]}") from error
    if root is None:
        raise _single(path, "the file is empty")
    _check_size(path, root)
    return Entry(str(path), root, "", [])


def load_json(path: Path) -> Table:
    """The JSON object in `path`; raises ConfigError."""
    text = read_text(path)
    try:
        return read_table(text.encode())
    except json.JSONDecodeError as error:
        raise _single(path, f"not JSON: {error.msg}", (error.lineno, error.colno)) from error
    except ValueError as error:
        raise _single(path, f"not JSON: {error}") from error


def finish_document(entry: Entry) -> None:
    """Raise one ConfigError with all reported mistakes, in the order of
    the file; no effect if there are none.
    """
    if entry.problems:
        # A part that is read twice reports its mistakes twice.
        problems = dict.fromkeys(entry.problems)
        raise ConfigError(sorted(problems, key=lambda p: (p.line, p.column)))


def read_text(path: Path, limit: int = SIZE_LIMIT) -> str:
    """The UTF-8 text of a file of at most `limit` bytes; raises ConfigError."""
    try:
        raw = read_regular(path, limit)
    except FileNotFoundError as error:
        raise _single(path, "no such file") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", "") or error
        raise _single(path, f"cannot be read: {why}") from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = _place(raw[: error.start].decode("utf-8", "replace"))
        kind = "UTF-16" if raw.startswith(_UTF16) else f"byte 0x{raw[error.start]:02x}"
        raise _single(path, f"not UTF-8: {kind}; save it as UTF-8", where) from error
    if "\0" in text:
        where = _place(text[: text.index("\0")])
        raise _single(path, "not text: a NUL character; save it as UTF-8, not UTF-16", where)
    return text


def _place(before: str) -> tuple[int, int]:
    """(line, column) after this text."""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _single(path: Path, text: str, where: tuple[int, int] = (1, 1)) -> ConfigError:
    return ConfigError([Problem(str(path), *where, "file", replace_unprintable(text))])


def _check_size(path: Path, root: yaml.Node) -> None:
    if _size(root, {}) > ENTRY_LIMIT:
        what = f"more than {ENTRY_LIMIT} entries with its aliases written out"
        raise HostileFileError(_single(path, what).problems)


def _size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Number of entries in `node`, each alias counted; a loop counts as too many."""
    known = sizes.get(id(node))
    if known is not None:
        return known
    sizes[id(node)] = ENTRY_LIMIT + 1
    total = 1
    if isinstance(node, yaml.SequenceNode):
        total += sum(_size(child, sizes) for child in node.value)
    elif isinstance(node, yaml.MappingNode):
        total += sum(_size(k, sizes) + _size(v, sizes) for k, v in node.value)
    sizes[id(node)] = total
    return total


def take_text(table: Mapping[str, Entry], key: str, default: str = "") -> str:
    """The text under `key`, or the default if it is not given."""
    return table[key].text(default) if key in table else default


_WIDTH = 100
_UNFOLDED = 10_000


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as literal blocks, and never uses aliases."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401 - the base class's own signature
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # If a line ends with a space, PyYAML uses quotes by itself.
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)  # pyright: ignore[reportUnknownMemberType]


_Dumper.add_representer(str, _text)


_untyped: Any = yaml
"""Without its stubs: their releases differ in what they know of `dump_all`."""
_dump_all: Callable[..., str] = _untyped.dump_all


def write_documents(objects: Iterable[object]) -> str:
    """One YAML document for each object; keys keep their order."""
    return _dump_all(objects, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)


def write_on_one_line(value: object) -> str:
    """A value as it stands behind `key: ` in a YAML file."""
    text = _dump_all([value], Dumper=yaml.SafeDumper, default_flow_style=True, width=_UNFOLDED)
    return text.removesuffix("...\n").strip()


NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""A name of a node, a host, a cluster or a job."""
_ADDRESS = re.compile(r"[A-Za-z0-9_:\[][A-Za-z0-9._:%\[\]-]{0,252}")
_WITH_PORT = re.compile(r"(?:[^:\[]+|\[[^\]]*\]):\d{1,5}")
_WITH_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*@[A-Za-z0-9]")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@\\+-]{0,63}")
_INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@:-]{0,14}")
_USED = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_OF_LOGIN = ("HOME", "USER", "PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PWD", "HOSTNAME", "TMPDIR", "SCRATCH")  # fmt: skip
"""Variables that people use in the value of another, as a shell would allow."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_name(entry: Entry) -> str:
    """A name of a node, cluster or job: letters, digits, `.`, `_`, `-`."""
    return _matching(entry, NODE_NAME, "letters, digits, `.`, `_` and `-`, 63 at most")


def read_user_name(entry: Entry) -> str:
    """A login name."""
    return _matching(entry, _USER, "a login name")


def read_interface(entry: Entry) -> str:
    """A network interface."""
    return _matching(entry, _INTERFACE, "the name of a network interface")


def read_address(entry: Entry) -> str:
    """A host name or IP address."""
    return _matching(entry, _ADDRESS, "a host name or IP address")


def read_node_names(entry: Entry) -> tuple[str, ...]:
    """The node names of a node set."""
    found = _expanded(entry)
    return tuple(n for n in found if _fits(entry, n, NODE_NAME, "a node name"))


def read_addresses(entry: Entry) -> tuple[str, ...]:
    """The addresses of a node set; an IPv6 address is one address, not a set."""
    text = entry.text()
    if _WITH_PORT.fullmatch(text):
        entry.report(f"`{text[:60]}`: the port stands in a key of its own, `port:`")
        return ()
    found = (text,) if ":" in text else _expanded(entry)
    return tuple(a for a in found if _fits(entry, a, _ADDRESS, "a host name or IP address"))


def read_variables(entry: Entry) -> dict[str, str]:
    """Environment variables: NAME -> value."""
    table = entry.fields()
    for key, value in table.items():
        if not _VARIABLE.fullmatch(key):
            value.report(f"`{key[:60]}` cannot be the name of a variable")
        shell = [one for one in _USED.findall(value.raw) if one == key or one in _OF_LOGIN]
        if shell:
            value.report(f"no shell fills in `${shell[0]}`: write out its value")
    return {key: _no_nul(value) for key, value in table.items() if _VARIABLE.fullmatch(key)}


def _no_nul(entry: Entry) -> str:
    word = entry.word()
    if "\0" in word:
        entry.report("a variable cannot hold a NUL character")
        return ""
    return word


def _expanded(entry: Entry) -> tuple[str, ...]:
    text = entry.text()
    if not text:
        return ()
    if _WITH_USER.match(text):
        entry.report(f"`{text[:60]}`: the user stands in `ssh: {{user: …}}`")
        return ()
    try:
        return expand_nodes(text)
    except ValueError as error:
        entry.report(str(error))
        return ()


def _matching(entry: Entry, shape: re.Pattern[str], what: str) -> str:
    text = entry.text()
    if text and _fits(entry, text, shape, what):
        return text
    if entry.kind == "str" and not text:
        entry.report("is empty")
    return ""


def _fits(entry: Entry, text: str, shape: re.Pattern[str], what: str) -> bool:
    if shape.fullmatch(text):
        return True
    entry.report(f"`{text[:60]}` is not {what}")
    return False


def read_url(
    entry: Entry, schemes: Mapping[str, tuple[bool, int]], instead: str
) -> tuple[str, int, bool, str]:
    """(host, port, whether TLS is used, path) of a URL; `schemes` is
    scheme -> (whether TLS, default port).

    `instead` says where to put a password, which the URL must not contain.
    """
    text = entry.text()
    try:
        parts = urlsplit(text)
        host, port, secret = parts.hostname or "", parts.port, parts.password
    except ValueError:
        parts, host, port, secret = urlsplit(""), "", None, None
    if secret is not None:
        entry.report(f"the address holds a password; {instead}")
    if parts.scheme not in schemes or not host:
        hint = suggest_word(parts.scheme, tuple(schemes)) if parts.scheme else ""
        shown = "" if secret is not None else f"; found `{text[:60]}`"
        shapes = " or ".join(f"{scheme}://host:port" for scheme in schemes)
        entry.report(f"expected {shapes}{shown}{hint}")
        return host, next(iter(schemes.values()))[1], False, ""
    tls, usual = schemes[parts.scheme]
    return host, port or usual, tls, parts.path
