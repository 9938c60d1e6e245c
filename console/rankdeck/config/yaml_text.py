"""Objects as YAML documents for people to read and for kubectl to apply."""

from collections.abc import Iterable
from typing import Any

import yaml

_WIDTH = 100


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as literal blocks, and no part by reference to another."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401 - the base class's own signature
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # With a space at the end of a line PyYAML itself falls back to quotes.
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)  # pyright: ignore[reportUnknownMemberType]


_Dumper.add_representer(str, _text)


def documents(objects: Iterable[object]) -> str:
    """One YAML document for each object, keys in their order."""
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)
