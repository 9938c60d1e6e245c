"""All nodes of the open cluster, and its switch ports; telemetry is written here and nowhere else."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil

from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.health import Ack, Reason
from rankdeck.model.kubernetes import KubernetesNode
from rankdeck.model.text import clean
from rankdeck.rules.expectations import Peer, drift
from rankdeck.state.fleet_history import EventLog, Past, Picture
from rankdeck.state.node import EPOCH, NodeState
from rankdeck.state.series import rates
from rankdeck_agent.rules.facts import Expected
from rankdeck_agent.wire import Event, Hello, Message, Sample

SWEEP = 5.0
MOST_FOUND = 20_000
"""Nodes that a fleet takes which no file names."""
SENTENCE = 300


class Fleet:
    """The state of every node; front ends read it and ask which nodes changed."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.trouble = ""
        """What is wrong with the broker, one sentence; "" if nothing."""
        self.open = not cluster.nodes
        """No file names its nodes: they are found."""
        self._cluster = cluster
        self._awaited = False
        """Whether nodes are still looked for."""
        self._clock = clock
        self._wall = wall
        self._nodes = {
            node.name: NodeState(node.name, _expected(cluster, node), clock, wall)
            for node in cluster.nodes
        }
        self._places = {name: place for place, name in enumerate(self._nodes)}
        self.event_log = EventLog()
        self.past = Past(len(self._nodes))
        self._reasons: dict[str, tuple[Reason, ...]] = {}
        self._peers_changed = False
        self._silent: set[str] = set()
        self._changed = set(self._nodes)
        self._swept = clock()
        self._order = tuple(self._nodes.values())
        self._turn = 0
        """Index of the node at which the next call of `take_changes` continues."""
        self._sweeping = False
        self._picture: Picture | None = None

    def node(self, name: str) -> NodeState:
        """The node of that name; raises KeyError."""
        return self._nodes[name]

    def nodes(self) -> tuple[NodeState, ...]:
        return tuple(self._nodes.values())

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return len(self._nodes)

    def place(self, name: str) -> int:
        """Where the node stands in the cluster file, from 0."""
        return self._places[name]

    def wall(self) -> float:
        """Epoch seconds on the console's clock."""
        return self._wall()

    def settled(self) -> bool:
        """Whether every node has sent telemetry, or has failed, or is all that can be known of it."""
        return not self._awaited and all(map(self._is_told, self._nodes.values()))

    def _is_told(self, node: NodeState) -> bool:
        if node.was_heard or node.failed_to_attach:
            return True
        # No agent of ours can be heard there unless one publishes to the site's broker.
        return self.open and self._cluster.broker is None and node.kubernetes is not None

    def await_nodes(self, *, awaited: bool) -> None:
        """Note whether the API server has still to say what nodes there are."""
        self._awaited = awaited

    def find(self, name: str) -> bool:
        """Add a node that no file names; False where the file names all, or there are too many."""
        if name in self._nodes:
            return True
        if not self.open or len(self._nodes) >= MOST_FOUND:
            return False
        expected = _expected(self._cluster, Node(name=name))
        self._nodes[name] = NodeState(name, expected, self._clock, self._wall)
        self._places[name] = len(self._places)
        self._changed.add(name)
        return True

    def kubernetes_says(self, name: str, view: KubernetesNode) -> None:
        """Take what the API server says of a node; a node that is not of this fleet is ignored."""
        if self.find(name):
            self._nodes[name].set_kubernetes(view)
            self._changed.add(name)

    def knows(self, name: str) -> bool:
        return name in self._nodes

    def apply(self, node: str, message: Message) -> None:
        """Apply a message of a node; an unknown node is ignored."""
        state = self._nodes.get(node)
        if state is None:
            return
        if isinstance(message, Sample):
            state.take_sample(message)
        else:
            self._note(state, message)
        self._changed.add(node)

    def _note(self, state: NodeState, message: Hello | Event) -> None:
        if isinstance(message, Hello):
            event = state.take_hello(message)
            self._peers_changed = True
        else:
            event = state.take_event(message)
        if event is not None:
            self.event_log.event(state.name, event, self._time_of(event, state.skew))

    def _time_of(self, event: Event, ahead: float | None) -> float:
        """When it happened, on our clock; now, where the node's stamp is no time of the past.

        A stamp of the future would outlive every other line of the history.
        """
        now = self._wall()
        at = event.at - (ahead or 0.0)
        return at if event.at > EPOCH and at <= now else now

    def uninstalled(self, node: str) -> None:
        """Note that the installed agent of a node was removed."""
        if node in self._nodes:
            self._nodes[node].installed = False

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

    def reasons_of(self, name: str) -> tuple[Reason, ...]:
        """Why this node is not OK, as judged last; does not judge again."""
        return self._reasons.get(name, ())

    def set_acks(self, acks: Iterable[Ack]) -> None:
        """Replace the acknowledgements of all nodes."""
        by_node: dict[str, list[Ack]] = {}
        for ack in acks:
            by_node.setdefault(ack.node, []).append(ack)
        for name, state in self._nodes.items():
            if state.set_notes(acks=tuple(by_node.get(name, ()))):
                self._changed.add(name)

    def set_busy(self, names: frozenset[str]) -> None:
        """The nodes on which jobs of ours run."""
        for name, state in self._nodes.items():
            if state.set_notes(busy=name in names):
                self._changed.add(name)

    def compare_peers(self) -> None:
        """Find nodes that differ from most others, in driver or firmware for example."""
        self._peers_changed = False
        told = tuple(
            Peer(name, state.hello.inventory) for name, state in self._nodes.items() if state.hello
        )
        for name, reasons in drift(told).items():
            if self._nodes[name].set_notes(drift=reasons):
                self._changed.add(name)

    def take_as_lasting(self) -> None:
        """Judge what was wrong at two looks as lasting; for commands that look only twice."""
        for name, state in self._nodes.items():
            state.take_as_lasting()
            self._changed.add(name)

    def take_changes(self, share: float = 1.0) -> frozenset[str]:
        """Judge what changed and return the names of those nodes, including nodes that fell silent.

        Below 1, `share` is the part of all nodes that this call looks at; the next call takes the next part.
        """
        wall = self._wall()
        if self._turn == 0:
            self._begin_round(wall)
        end = self._turn + max(ceil(len(self._order) * share), 1)
        part = self._order[self._turn : end]
        # Every change is judged, because some rules must hold for a while.
        changed = [state for state in part if self._has_changed(state)]
        for state in changed:
            self._write_down(state, wall)
        if self._picture:
            for state in part:
                self._picture.add(state)
        self._turn = end if end < len(self._order) else 0
        if self._turn == 0:
            self._end_round()
        return frozenset(state.name for state in changed)

    def _begin_round(self, wall: float) -> None:
        """Begin a round over all nodes: decide whether to sweep, compare peers and take a picture."""
        now = self._clock()
        if len(self._order) != len(self._nodes):
            self._order = tuple(self._nodes.values())
            self.past.fit(len(self._order))
        self._sweeping = now - self._swept >= SWEEP
        self._picture = Picture(wall) if self.past.due(wall) else None
        if self._sweeping:
            self._swept = now
            if self._peers_changed:
                self.compare_peers()

    def _end_round(self) -> None:
        if self._picture:
            self.past.keep(self._picture)
        self._picture = None

    def _has_changed(self, state: NodeState) -> bool:
        """Whether a node has changed since it was last reported; marks it as reported."""
        name = state.name
        stale = self._sweeping and state.drop_stale()
        # `silent` changes with time: compare with what was reported.
        turned = state.silent != (name in self._silent)
        if turned:
            self._silent ^= {name}
        told = name in self._changed
        self._changed.discard(name)
        return stale or turned or told

    def _write_down(self, state: NodeState, wall: float) -> None:
        """Judge, and log which reasons came and went."""
        reasons, before = state.health.reasons, self._reasons.get(state.name, ())
        known = state.was_heard or state.kubernetes is not None
        if reasons is before or (not reasons and not before) or not known:
            return
        self._reasons[state.name] = reasons
        self.event_log.judged(state.name, before, reasons, wall)


def _expected(cluster: Cluster, node: Node) -> Expected:
    return Expected(node.gpus, node.rdma, node.interface, cluster.expect)


PATIENCE = 45.0
"""Seconds after which a report is old: a switch is asked for one every 10 seconds."""
COUNTERS = (
    "in-octets", "out-octets", "in-pkts", "out-pkts", "in-errors", "out-errors",
    "in-discards", "out-discards", "in-fcs-errors", "carrier-transitions",
)  # fmt: skip
"""Counters of openconfig-interfaces; `in` is what the switch receives and the node sends."""


@dataclass(frozen=True, slots=True)
class SwitchPort:
    """One switch port, and the RDMA port at the other end of its cable."""

    switch: str
    port: str
    node: str
    device: str
    """RDMA device and port, as in the metrics rdma.*: mlx5_0/1."""
    up: bool | None = None
    values: Mapping[str, int] = field(default_factory=dict[str, int])
    rates: Mapping[str, float] = field(default_factory=dict[str, float])
    at: float | None = None
    """When the counters came in, on the console's monotonic clock."""


def _unheard(switch: str, port: str, serves: str) -> SwitchPort:
    node, _, device = serves.partition(":")
    return SwitchPort(switch, port, node, device)


class Switches:
    """The state of all switch ports that the cluster file names."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self.troubles: dict[str, str] = {}
        """Switch -> why nothing comes from it, one sentence."""
        self._clock = clock
        self._ports = {
            (switch.name, port): _unheard(switch.name, port, serves)
            for switch in cluster.switches
            for port, serves in switch.ports.items()
        }

    def ports(self) -> tuple[SwitchPort, ...]:
        """Every port; one without a recent report has neither state nor numbers."""
        return tuple(map(self._current, self._ports.values()))

    def of_node(self, node: str) -> tuple[SwitchPort, ...]:
        return tuple(port for port in self.ports() if port.node == node)

    def _current(self, port: SwitchPort) -> SwitchPort:
        if port.at is not None and self._clock() - port.at <= PATIENCE:
            return port
        return SwitchPort(port.switch, port.port, port.node, port.device)

    def apply(self, switch: str, port: str, up: bool | None, values: Mapping[str, int]) -> None:
        """Apply a report of a switch about a port: its state, its counters, or both."""
        old = self._ports.get((switch, port))
        if old is None:
            return
        now = self._clock()
        self.troubles.pop(switch, None)
        fresh = {**old.values, **values}
        per_second = old.rates
        if "in-octets" in values and old.values and old.at is not None:
            per_second = rates(old.values, fresh, now - old.at)
        self._ports[switch, port] = SwitchPort(
            switch, port, old.node, old.device,
            old.up if up is None else up, fresh, per_second, now if values or old.at is None else old.at,
        )  # fmt: skip
