"""YAML text as a tree of nodes, bounded in number and depth while it is read."""

from typing import Any

import yaml
from yaml.composer import Composer

ENTRY_LIMIT = 100_000
"""Entries of a document with its aliases written out: more is a bomb, not a cluster."""
DEPTH_LIMIT = 32
_Parser: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
"""libyaml reads ten times as fast; its own composer overflows the stack, so ours is used."""


class _Bounded(Composer, _Parser):
    """Composes with Python's own composer, over whichever parser there is."""

    def __init__(self, text: str) -> None:
        _Parser.__init__(self, text)
        Composer.__init__(self)
        self._entries = self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401 - as PyYAML has it
        """One node and what is below it; raises MarkedYAMLError where it is too much."""
        self._entries += 1
        if self._entries > ENTRY_LIMIT:
            self._refuse(f"more than {ENTRY_LIMIT} entries")
        if self._depth >= DEPTH_LIMIT:
            self._refuse(f"nested too deeply: more than {DEPTH_LIMIT} levels")
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def _refuse(self, why: str) -> None:
        mark = self.peek_event().start_mark
        raise yaml.MarkedYAMLError(problem=why, problem_mark=mark)


def compose(text: str) -> yaml.Node | None:
    """The root of the one document in `text`; raises YAMLError, with a mark where there is one."""
    loader: Any = _Bounded(text)
    try:
        root: yaml.Node | None = loader.get_single_node()
    finally:
        loader.dispose()
    return root
