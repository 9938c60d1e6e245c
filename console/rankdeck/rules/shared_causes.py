"""What many nodes have in common that are not well: a server, a switch, the air."""

import re
from collections import Counter

from rankdeck.values import Value
from rankdeck_agent.rules.levels import Health, Level, Reason, by_cause

LEAST = 3
"""Nodes that have a cause in common before it is called shared."""
_NUMBER = re.compile(r"(?<![\w./:-])\d+(?:\.\d+)?(?![./:-]*\w)|(?<![\w./:-])\d+(?:\.\d+)?(?=%)")
"""A number that only says how much; not one in an address, a path or a name."""


class SharedCause(Value):
    """A cause of several nodes that are not well; texts are as the nodes sent them."""

    level: Level
    """The worst of these nodes."""
    check: str
    seen: str
    """What most of them say of it."""
    action: str
    nodes: tuple[str, ...]


class NodeCauses:
    """The worst cause of each node that is not well, kept up to date node by node."""

    def __init__(self) -> None:
        self._of_node: dict[str, tuple[str, str]] = {}
        self._nodes: dict[tuple[str, str], dict[str, Reason]] = {}

    @property
    def ill(self) -> int:
        """How many nodes are not well."""
        return len(self._of_node)

    def judge(self, node: str, health: Health) -> None:
        """Take the newest health of a node."""
        if (before := self._of_node.pop(node, None)) is not None:
            del self._nodes[before][node]
            if not self._nodes[before]:
                del self._nodes[before]
        if (cause := _worst_cause(health)) is not None:
            key = cause.check, _NUMBER.sub("#", cause.sentence.seen)
            self._of_node[node] = key
            self._nodes.setdefault(key, {})[node] = cause

    def shared(self, most: int) -> list[SharedCause]:
        """At most `most` causes that LEAST nodes or more have, those of most nodes first."""
        many = [found for found in self._nodes.values() if len(found) >= LEAST]
        largest = sorted(many, key=lambda found: -len(found))[:most]
        return [_share_cause(found) for found in largest]


def _worst_cause(health: Health) -> Reason | None:
    """The worst cause that is not acknowledged; None if the node is well."""
    if health.level is Level.OK:
        return None
    causes = (cause for cause, _ in by_cause(health.reasons))
    return next((cause for cause in causes if cause.acknowledged_until is None), None)


def _share_cause(found: dict[str, Reason]) -> SharedCause:
    level = max(reason.level for reason in found.values())
    text, _ = Counter(reason.text for reason in found.values()).most_common(1)[0]
    typical = next(reason for reason in found.values() if reason.text == text)
    sentence = typical.sentence
    return SharedCause(level, typical.check, sentence.seen, sentence.action, tuple(found))
