"""Secrets taken out of what leaves the house: by the name of a variable, then by value. No I/O."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

MASK = "********"
NAMED = re.compile(r"passw|passphrase|token|key|secret|credential", re.IGNORECASE)
"""Names of variables and options whose values nobody else may see."""
_ASSIGNED = re.compile(
    r"(?P<name>[\w.-]*(?:passw(?:or)?d|passphrase|token|secret|credential|api_?key|access_?key)[\w.-]*"
    r"\s*[=:]\s*|--?[\w-]*(?:passw(?:or)?d|token|secret|key)[\w-]*[ =])(?P<value>['\"]?[^\s'\"]+)",
    re.IGNORECASE,
)
_SHORTEST = 4
"""Shorter values would blot out ordinary words."""


class Secrets:
    """What has to be masked in everything that belongs to one job."""

    def __init__(self, tables: Iterable[Mapping[str, str]]) -> None:
        values = {
            value
            for table in tables
            for name, value in table.items()
            if NAMED.search(name) and len(value) >= _SHORTEST
        }
        longest_first = sorted(values, key=len, reverse=True)
        self._values = [value.encode() for value in longest_first]

    def in_bytes(self, data: bytes) -> bytes:
        """Output of a rank without the values."""
        for value in self._values:
            data = data.replace(value, MASK.encode())
        return data

    def in_text(self, text: str) -> str:
        """A command or file without the values, and without what is assigned to such a name."""
        known = self.in_bytes(text.encode("utf-8", "surrogatepass")).decode(
            "utf-8", "replace"
        )
        return _ASSIGNED.sub(lambda match: match["name"] + MASK, known)

    def in_tree(self, value: object, name: str = "") -> Any:  # noqa: ANN401 - JSON
        """Plain JSON without them; `name` is the key that it stands under."""
        if isinstance(value, str):
            return MASK if value and NAMED.search(name) else self.in_text(value)
        if isinstance(value, Mapping):
            table = cast("Mapping[str, Any]", value)
            return {key: self.in_tree(one, key) for key, one in table.items()}
        if isinstance(value, list | tuple):
            return self._in_list(list(cast("Iterable[Any]", value)))
        return value

    def _in_list(self, values: list[Any]) -> list[Any]:
        """A list; in a command the word after `--token` goes."""
        found: list[Any] = []
        for at, one in enumerate(values):
            before = values[at - 1] if at else ""
            option = (
                isinstance(before, str) and before.startswith("-") and "=" not in before
            )
            follows = option and bool(NAMED.search(before)) and isinstance(one, str)
            found.append(MASK if follows else self.in_tree(one))
        return found
