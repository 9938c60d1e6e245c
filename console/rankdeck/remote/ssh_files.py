"""The files of an ssh_config: which hosts their Host and Match lines
tell apart, and when a file has changed.

It decides nothing about a setting: OpenSSH does (`ssh_config.py`). Hosts with equal `alike` get
equal answers of `ssh -G`, but for their HostName, so that one call answers for all of them. In
doubt `alike` is None.
"""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from pathlib import Path

from msgspec import field

from rankdeck.config.files import read_regular
from rankdeck.values import Value

Stamp = tuple[int, int, int]
"""(time of change in ns, size, inode) of a file; zeros if it cannot be read."""
_MOST = 16 << 20
"""Most bytes of one file."""
_DEEPEST = 16
"""Levels of Include, as in OpenSSH."""
_MOST_FILES = 1000
_LINE = re.compile(r"([A-Za-z0-9]+)(?:\s*=\s*|\s+)(.*)")
_CRITERION = re.compile(r'\s*(!?)([a-z]+)(?:[\s=]+("[^"]*"|[^\s"]+))?', re.IGNORECASE)
_PLAIN = re.compile(r"[^\"'\\#]*")
_HOST_NAME = re.compile(r"(?:[A-Za-z0-9._:-]|%[h%])+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OF_HOST = re.compile(r"%[hnkCpr]")
"""Tokens that stand for something of one host."""
_ALONE = ("all", "canonical", "final")
"""Criteria of Match that have no argument."""
_LATER = frozenset(
    [
        "proxycommand",
        "identityfile",
        "certificatefile",
        "controlpath",
        "remotecommand",
        "localcommand",
        "localforward",
        "remoteforward",
        "dynamicforward",
        "knownhostscommand",
    ]
)
"""Options whose tokens `ssh -G` does not fill in, or that nobody reads here."""


class Line(Value):
    """One option: its keyword in lower case, and the rest of the line."""

    keyword: str
    rest: str


class Block(Value):
    """A Host or Match line (or neither: the start of a file), and the lines until the next."""

    head: Line
    lines: list["Line | list[Section]"] = field(default_factory=list["Line | list[Section]"])
    """An Include line is the list of the files that it names."""


class Section:
    """The blocks of one file; a host looks only at those that may be meant for it."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = blocks
        self._named: dict[str, list[int]] = {}
        """Host -> the blocks whose patterns are names, this one among them."""
        self._others: list[int] = []
        for number, block in enumerate(blocks):
            words = block.head.rest.split()
            if block.head.keyword == "host" and not any(map(_is_pattern, words)):
                for word in set(words):
                    self._named.setdefault(word, []).append(number)
            else:
                self._others.append(number)

    def blocks(self, host: str) -> Iterator[Block]:
        """The blocks that may be meant for a host, in order."""
        named = self._named.get(host, [])
        numbers = sorted((*self._others, *named)) if named else self._others
        return (self._blocks[number] for number in numbers)


@dataclass
class _Walk:
    """The lines that one host gets so far."""

    host: str
    lines: list[object] = dataclasses.field(default_factory=list[object])
    name: str = ""
    """The value of HostName; "" if there is none so far."""


class _AskError(Exception):
    """OpenSSH must be asked about this host alone."""


@dataclass(frozen=True, slots=True)
class Alike:
    """What OpenSSH's answer for a host depends on, and the value of its
    HostName ("%h": the name itself).
    """

    lines: tuple[object, ...]
    name: str = dataclasses.field(compare=False)

    def host_name(self, host: str) -> str:
        """The HostName of a host among these."""
        return self.name.replace("%%", "\0").replace("%h", host).replace("\0", "%")


class SshFiles:
    """The files of one ssh_config, as they are now; `base` is where
    relative names of Include begin.
    """

    def __init__(self, tops: Sequence[tuple[Path, Path]]) -> None:
        """`tops` has (file, base) in the order in which OpenSSH reads them."""
        self.stamps: dict[Path, Stamp] = {}
        """File that was read, or folder that was searched -> its stamp."""
        self.lasting = True
        """Whether answers stay valid while no file changes: no program,
        network or unknown file decides.
        """
        self._sharing = True
        self._tops = [self._read(path, base, 0) for path, base in tops]

    @property
    def changed(self) -> bool:
        """Whether a file is not as it was."""
        return any(file_stamp(path) != seen for path, seen in self.stamps.items())

    def alike(self, host: str) -> Alike | None:
        """Equal for hosts that OpenSSH treats alike; None if it must
        be asked about this host alone.
        """
        if not self._sharing or not _NAME.fullmatch(host):
            return None
        walk = _Walk(host)
        try:
            for section in self._tops:
                _follow(walk, section)
        except _AskError:
            return None
        return Alike(tuple(walk.lines), walk.name or "%h")

    def covers(self, read: Sequence[str]) -> bool:
        """Whether all files that OpenSSH says it read are known here."""
        return all(Path(path) in self.stamps for path in read)

    def _read(self, path: Path, base: Path, depth: int) -> Section:
        self.stamps[path] = file_stamp(path)
        if depth > _DEEPEST or len(self.stamps) > _MOST_FILES:
            self._sharing = False
            return Section(())
        try:
            text = read_regular(path, _MOST).decode("utf-8", "surrogateescape")
        except (OSError, ValueError):
            return Section(())
        blocks = [Block(Line("", ""))]
        for line in _lines(text):
            self._note(line)
            if line.keyword in ("host", "match"):
                blocks.append(Block(line))
            elif line.keyword == "include":
                paths = [path for word in line.rest.split() for path in self._glob(word, base)]
                blocks[-1].lines.append([self._read(path, base, depth + 1) for path in paths])
            else:
                blocks[-1].lines.append(line)
        return Section(blocks)

    def _note(self, line: Line) -> None:
        """Note what forbids to share an answer, or to keep it."""
        tokens = line.keyword == "include" and ("$" in line.rest or "%" in line.rest)
        if tokens or (line.keyword in ("host", "include") and not _PLAIN.fullmatch(line.rest)):
            self._sharing = self.lasting = False
        outside = line.keyword == "match" and _outside(line.rest)
        if outside or line.keyword == "canonicalizehostname":
            self.lasting = False

    def _glob(self, word: str, base: Path) -> list[Path]:
        try:
            pattern = base / Path(word).expanduser()
            parts = pattern.relative_to("/").parts
            fixed = next((n for n, part in enumerate(parts) if re.search(r"[*?\[]", part)), None)
            if fixed is None:
                return [pattern]
            folder = Path("/", *parts[:fixed])
            self.stamps[folder] = file_stamp(folder)
            return sorted(folder.glob("/".join(parts[fixed:])))
        except (OSError, RuntimeError, ValueError):
            self._sharing = self.lasting = False
            return []


def file_stamp(path: Path) -> Stamp:
    """The stamp of a file or folder."""
    try:
        found = path.stat()
    except (OSError, ValueError):  # ValueError: a NUL character in its path
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino


def _lines(text: str) -> Iterator[Line]:
    for row in text.split("\n"):
        bare = row.strip()
        if not bare or bare.startswith("#"):
            continue
        if found := _LINE.fullmatch(bare):
            yield Line(found[1].lower(), found[2].strip())
        else:
            yield Line("", bare)


def _outside(criteria: str) -> bool:
    words = {found[2].lower() for found in _CRITERION.finditer(criteria)}
    return bool(words & {"exec", "localnetwork", "final", "canonical"})


def _follow(walk: _Walk, section: Section) -> None:
    for block in section.blocks(walk.host):
        applies = _applies(walk, block.head)
        if applies is None:
            walk.lines.append(block.head)
        if applies is not False:
            _take_all(walk, block, sure=applies is True)
        if applies is None:
            walk.lines.append("end")


def _take_all(walk: _Walk, block: Block, *, sure: bool) -> None:
    for line in block.lines:
        if isinstance(line, Line):
            _take(walk, line, sure=sure)
            continue
        if not sure:
            raise _AskError
        for inner in line:
            _follow(walk, inner)


def _applies(walk: _Walk, head: Line) -> bool | None:
    """Whether a block is meant for the host; None if something else than the host decides."""
    if head.keyword == "host":
        return _any_of(head.rest.split(), walk.host)
    applies, end = True, 0
    for found in _CRITERION.finditer(head.rest):
        if found.start() != end:
            raise _AskError
        end = found.end()
        word = found[2].lower()
        if word in _ALONE and found[3]:
            raise _AskError
        told = _told(walk, bool(found[1]), word, (found[3] or "").strip('"'))
        if told is False:
            return False
        applies = None if told is None else applies
    if end != len(head.rest):
        raise _AskError
    return applies


def _told(walk: _Walk, negated: bool, word: str, argument: str) -> bool | None:
    """Whether one criterion is met; None if that does not depend on
    the host but on something else.
    """
    if word in ("final", "canonical"):
        raise _AskError
    if word == "all":
        return not negated
    if word == "originalhost":
        return _any_of(argument.lower().split(","), walk.host.lower()) is not negated
    if word == "host":
        name = Alike((), walk.name or "%h").host_name(walk.host).lower()
        return _any_of(argument.lower().split(","), name) is not negated
    if _OF_HOST.search(argument.replace("%%", "")):
        raise _AskError
    return None


def _take(walk: _Walk, line: Line, *, sure: bool) -> None:
    if line.keyword == "hostname":
        if not sure or not _HOST_NAME.fullmatch(line.rest):
            raise _AskError
        walk.name = walk.name or line.rest
        return
    if line.keyword == "canonicalizehostname" and line.rest.lower() not in ("no", "false"):
        raise _AskError
    if line.keyword not in _LATER and _OF_HOST.search(line.rest.replace("%%", "")):
        raise _AskError
    if line.keyword == "proxyjump":
        walk.lines.append(walk.host in re.split(r"[@:,\s/]+", line.rest))
    walk.lines.append((line.keyword, line.rest))


def _any_of(patterns: Sequence[str], host: str) -> bool:
    """Whether a host matches a list of patterns, where a negated one that matches refuses it."""
    found = False
    for pattern in patterns:
        bare = pattern.removeprefix("!")
        if bare == host or (_is_pattern(bare) and _matcher(bare).fullmatch(host)):
            if bare != pattern:
                return False
            found = True
    return found


def _is_pattern(word: str) -> bool:
    return "*" in word or "?" in word or word.startswith("!")


@lru_cache(4096)
def _matcher(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern.replace("[", "[[]")))
