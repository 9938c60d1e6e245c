"""Decodes the messages of agents and applies them to the fleet."""

import logging
import re

from rankdeck.state.fleet import Fleet
from rankdeck_agent.wire import WireError, decode_message, split_time, split_topic

log = logging.getLogger(__name__)


_NAME = re.compile(r"[a-z0-9][-a-z0-9.]{0,252}")
"""Node names that Kubernetes allows."""
KEPT = frozenset({"hello", "health"})
"""Kinds of retained messages that are still useful."""


class FleetUpdater:
    """Decodes messages and applies them to the fleet; invalid ones are
    counted, and reported once per node.
    """

    def __init__(self, cluster: str, fleet: Fleet) -> None:
        self.refused: dict[str, int] = {}
        """Node -> number of messages that could not be used."""
        self._health: dict[str, int] = {}
        """Node -> hash of its last health message without the time."""
        self._cluster = cluster
        self._fleet = fleet

    def take(self, topic: str, payload: bytes, retained: bool = False) -> None:
        """Apply one message; never raises. `retained`: the broker had stored it."""
        parts = split_topic(topic)
        if parts is None or parts[0] != self._cluster:
            self._refuse(
                "another cluster", f"message on {topic[:120]!r} is not for cluster {self._cluster}"
            )
            return
        _, node, kind = parts
        if not payload or (retained and kind not in KEPT):
            # A deleted retained message, or an old event or sample: not a sign of life.
            if kind == "hello":
                self._fleet.uninstalled(node)
            return
        if not (self._fleet.knows(node) or self._found(node)):
            self._refuse("unknown nodes", f"node {node[:80]!r} is not in the cluster file")
            return
        if kind == "health" and self._is_heartbeat(node, payload, retained=retained):
            return
        try:
            self._fleet.apply(node, decode_message(kind, payload), retained=retained)
        except WireError as error:
            self._health.pop(node, None)
            self._refuse(node, f"unusable message: {str(error)[:200]!r}")

    def _is_heartbeat(self, node: str, payload: bytes, *, retained: bool) -> bool:
        """Whether the fleet took a health message as a heartbeat, because the
        node's health is the same as before.
        """
        stamp, rest = split_time(payload)
        if retained or stamp is None:
            return False
        before, self._health[node] = self._health.get(node), hash(rest)
        return before == self._health[node] and self._fleet.heartbeat(node, stamp)

    def _found(self, node: str) -> bool:
        """Whether a fleet that discovers its nodes adds this one: agents may be
        heard before the server lists them.
        """
        return bool(_NAME.fullmatch(node)) and self._fleet.find(node)

    def too_long(self, topic: str, size: int) -> None:
        """Note a message of `size` bytes that was left out because of its length."""
        _, node, kind = split_topic(topic) or ("", "", "")
        known = node if self._fleet.knows(node) else "unknown nodes"
        self._refuse(
            known, f"{kind[:20] or 'message'} of {size >> 20} MB on {topic[:120]!r}: left out"
        )

    def _refuse(self, who: str, why: str) -> None:
        if who not in self.refused:
            log.warning("%s", why, extra={"source": who})
        self.refused[who] = self.refused.get(who, 0) + 1
