"""All nodes of the open cluster: the one place that telemetry is written to."""

import time
from collections.abc import Callable

from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.text import clean
from rankdeck.rules.health import Expected
from rankdeck.state.node import NodeState
from rankdeck_agent.wire import Event, Hello, Message, Sample

SWEEP = 5.0
SENTENCE = 300


class Fleet:
    """State of every node; front ends read it and ask which nodes changed."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.trouble = ""
        """What is wrong with the broker, one sentence; "" if nothing."""
        self._clock = clock
        self._wall = wall
        self._nodes = {
            node.name: NodeState(node.name, _expected(cluster, node), clock)
            for node in cluster.nodes
        }
        self._changed = set(self._nodes)
        self._swept = clock()

    def node(self, name: str) -> NodeState:
        """The node of that name; raises KeyError."""
        return self._nodes[name]

    def nodes(self) -> tuple[NodeState, ...]:
        return tuple(self._nodes.values())

    def knows(self, name: str) -> bool:
        return name in self._nodes

    def apply(self, node: str, message: Message) -> None:
        """Take in what a node sent; an unknown node is ignored."""
        state = self._nodes.get(node)
        if state is None:
            return
        if isinstance(message, Sample):
            state.take_sample(message, self._wall())
        elif isinstance(message, Hello):
            state.take_hello(message)
        else:
            assert isinstance(message, Event)
            state.take_event(message)
        self._changed.add(node)

    def attached(self, node: str, text: str = "attached") -> None:
        """Note that the agent of a node runs."""
        self._attach(node, text, failed=False)

    def troubled(self, node: str, text: str) -> None:
        """Note why the agent of a node does not run, one sentence."""
        self._attach(node, text, failed=True)

    def _attach(self, node: str, text: str, *, failed: bool) -> None:
        if node in self._nodes:
            self._nodes[node].set_attach(clean(text, SENTENCE), failed=failed)
            self._changed.add(node)

    def take_changes(self) -> frozenset[str]:
        """Nodes that changed since the last call, those that fell silent included."""
        self._sweep()
        for name, state in self._nodes.items():
            if state.newly_silent():
                self._changed.add(name)
        changed, self._changed = frozenset(self._changed), set[str]()
        for name in changed:
            # Rules that must hold for a while are judged at every change, seen or not.
            _ = self._nodes[name].health
        return changed

    def _sweep(self) -> None:
        now = self._clock()
        if now - self._swept < SWEEP:
            return
        self._swept = now
        self._changed.update(
            n for n, state in self._nodes.items() if state.drop_stale()
        )


def _expected(cluster: Cluster, node: Node) -> Expected:
    return Expected(node.gpus, node.rdma, node.interface, cluster.expect)
