"""Nodes as the lists of a site name them; what all readers of such lists have in common."""

from collections.abc import Iterator
from pathlib import Path

from rankdeck.errors import ConfigError, Problem
from rankdeck.values import Value


class ListedNode(Value):
    """A node as its list has it; what the list does not say is "" or 0."""

    name: str
    address: str = ""
    port: int = 0
    slots: int = 0
    user: str = ""
    identity: str = ""
    """The file of the key to log in with."""
    lost: str = ""
    """What the list says that cannot be taken over, as a sentence without its node."""


class ListRow(Value):
    """One line of a list: a node set and what is said of its nodes."""

    line: int
    nodes: str
    said: ListedNode = ListedNode("")


ListRows = Iterator[ListRow]


def list_mistake(file: Path, line: int, text: str) -> ConfigError:
    """The error for what is wrong in a line of a list."""
    return ConfigError([Problem(str(file), line, 1, "list", text)])


def read_count(text: str) -> int:
    """A number of slots, or of a port; 0 if the text is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0
