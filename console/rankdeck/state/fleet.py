"""The open cluster: nodes, switch ports, and all users' jobs in the scheduler.

Telemetry is stored only here.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING
from weakref import ref

from msgspec import field

from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.deadlines import Deadlines
from rankdeck.model.health import Ack
from rankdeck.model.safe_text import clean_line
from rankdeck.rules.head_clock import REMEDY, describe_head_clock, seconds_behind
from rankdeck.state.fleet_history import EventLog, FleetPictures, Past
from rankdeck.state.node import EPOCH, NodeState
from rankdeck.values import Value
from rankdeck_agent.rules.levels import Expected, Health, Level, Reason, growth_rates
from rankdeck_agent.wire import Event, HealthReport, Hello, Message, Sample

if TYPE_CHECKING:
    from rankdeck.model.scheduler_node import SchedulerNode
    from rankdeck.rules.peers import Peers

log = logging.getLogger(__name__)
SWEEP = 5.0
"""Seconds between two searches for metrics that are no longer sent."""
SILENCE = 0.5
"""Seconds between two searches for nodes that fell silent."""
MOVES = 1.0
"""Seconds between two judgements of a node whose health may change without a new message."""
LEAST = 16
"""Nodes that each call handles, even if its time is over."""
_MOVED = 0.5
"""Seconds by which the error of the console's clock must have changed."""
MOST_FOUND = 20_000
"""Most nodes that are added without being named in the cluster file."""
SENTENCE = 300


class Changes:
    """The nodes that changed since the last `take`; each reader has its own object."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names: set[str] = set(names)

    def add(self, names: Iterable[str]) -> None:
        """Note that these nodes changed."""
        self._names.update(names)

    def take(self) -> frozenset[str]:
        """The names added since the last call."""
        names = frozenset(self._names)
        self._names.clear()
        return names


SETTLES = 30.0
"""Seconds in which an agent that has started finds all devices of its
node: a cold GPU driver takes ten.
"""


def _is_listed(node: NodeState) -> bool:
    """Whether a scheduler has told of the node."""
    return node.in_scheduler is not None


class Fleet:
    """The state of every node. Only the session's timer calls
    `take_changes`; others read, or `follow`.

    `clock` gives monotonic seconds, `wall` epoch seconds.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.trouble = ""
        """What is wrong with the broker, one sentence; "" if nothing."""
        self.busy: frozenset[str] = frozenset()
        """The nodes on which jobs of this user run."""
        self.open = not cluster.nodes
        """Whether the cluster file names no nodes, so that they are discovered."""
        self._cluster = cluster
        self._clock = clock
        self._wall = wall
        self._nodes = {
            node.name: NodeState(node.name, _expected(cluster, node), clock, wall)
            for node in cluster.nodes
        }
        self._places = {name: place for place, name in enumerate(self._nodes)}
        self.event_log = EventLog()
        self._pictures = FleetPictures(len(self._nodes))
        self._reasons: dict[str, tuple[Reason, ...]] = {}
        self._moved_in = set[str]()
        self._introduced, self._odd = set[str](), frozenset[str]()
        self._sweeping = self._awaited = False
        self._silence = Deadlines(dict.fromkeys(self._nodes, clock()))
        """Node -> when it becomes silent; a node without an entry is silent now."""
        self._changed = dict.fromkeys(self._nodes)
        """Nodes to judge, the oldest change first."""
        self._moving = set[str]()
        """Nodes to judge every MOVES seconds: their health may change without a new message."""
        self._followers: tuple[ref[Changes], ...] = ()
        self._swept = self._looked = self._moved = self._compared = clock()
        # By how much each node's clock is ahead, as the present round has seen it.
        self._head_behind, self._aheads = 0.0, list[float | None]()
        self._round: Iterator[NodeState] = iter(())
        """The nodes that are left of a round over all nodes."""
        self._wanted: frozenset[str] | None = frozenset()

    @property
    def past(self) -> Past:
        """Some hours, for looking back."""
        return self._pictures.past

    @property
    def recent(self) -> Past:
        """The last minutes, a picture a second, if there are few nodes."""
        return self._pictures.recent

    def node(self, name: str) -> NodeState:
        """The node of that name; raises KeyError."""
        return self._nodes[name]

    def nodes(self) -> tuple[NodeState, ...]:
        return tuple(self._nodes.values())

    def healths(self) -> dict[str, Health]:
        """Node -> health, for nodes that were heard at least once."""
        return {n.name: n.health for n in self._nodes.values() if n.heard_s() is not None}

    @property
    def bad(self) -> frozenset[str]:
        """The nodes whose health is BAD: a known problem that makes jobs fail."""
        known = self._nodes.values()
        return frozenset(node.name for node in known if node.health.level is Level.BAD)

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self._nodes)

    def place(self, name: str) -> int:
        """Position of the node in the cluster file, or in order of
        discovery, from 0; raises KeyError.
        """
        return self._places[name]

    def wall(self) -> float:
        """Epoch seconds on the console's clock."""
        return self._wall()

    def settled(self) -> bool:
        """Whether every node has sent telemetry, has failed, or is not expected to send any."""
        return not self._awaited and all(map(self._has_answered, self._nodes.values()))

    def all_heard(self) -> bool:
        """The same, but a node that has failed is waited for: it may come back, unless a
        scheduler tells of it.
        """
        told = (node for node in self._nodes.values() if not _is_listed(node))
        failed = any(node.failed_to_attach and not self._was_heard(node) for node in told)
        return self.settled() and not failed

    def _has_answered(self, node: NodeState) -> bool:
        return node.failed_to_attach or self._was_heard(node)

    def _was_heard(self, node: NodeState) -> bool:
        # If full samples are wanted, a health message alone is not enough.
        if node.samples > 0 if self.is_wanted(node.name) else node.was_heard:
            return True
        # A node that a scheduler lists can only be heard if its agent
        # publishes to the site's broker.
        return self.open and self._cluster.broker is None and _is_listed(node)

    @property
    def awaited(self) -> bool:
        """Whether the scheduler still has to list the nodes."""
        return self._awaited

    def await_nodes(self, *, awaited: bool) -> None:
        """Note whether the scheduler still has to list the nodes and their
        state, or to say that it cannot.
        """
        self._awaited = awaited

    def find(self, name: str) -> bool:
        """Add a discovered node.

        True if it is known now; False if the file names all nodes, or there are too many.
        """
        if name in self._nodes:
            return True
        if not self.open or len(self._nodes) >= MOST_FOUND:
            return False
        expected = _expected(self._cluster, Node(name=name))
        self._nodes[name] = NodeState(name, expected, self._clock, self._wall)
        self._places[name] = len(self._places)
        self._silence.set(name, self._clock())
        self._nodes[name].want(wanted=self.is_wanted(name))
        self._changed[name] = None
        return True

    def scheduler_says(self, name: str, view: "SchedulerNode") -> None:
        """Take what the scheduler reports about a node; adds the node if
        nodes are discovered, else ignores it.
        """
        if self.find(name):
            self._nodes[name].in_scheduler = view
            self._changed[name] = None

    def knows(self, name: str) -> bool:
        return name in self._nodes

    def follow(self) -> Changes:
        """Collects the nodes that change from now on, until the caller drops
        it; at first contains every node.
        """
        changes = Changes(self._nodes)
        self._followers = (*(one for one in self._followers if one()), ref(changes))
        return changes

    def _notify(self, names: Iterable[str]) -> None:
        """Tell all followers that these nodes changed."""
        for one in self._followers:
            if changes := one():
                changes.add(names)

    def want(self, names: frozenset[str] | None) -> None:
        """Note from which nodes full samples are requested; None: from all."""
        if names == self._wanted:
            return
        before, self._wanted = self._wanted, names
        known = self._nodes.keys()
        changed = known if before is None or names is None else known & (names ^ before)
        for name in changed:
            state = self._nodes[name]
            state.want(wanted=self.is_wanted(name))
            self._expect(state)

    @property
    def wanted(self) -> frozenset[str] | None:
        """The nodes from which full samples are requested; None: all nodes."""
        return self._wanted

    def is_wanted(self, name: str) -> bool:
        """Whether full samples are requested from this node."""
        return self._wanted is None or name in self._wanted

    def take_installations(self) -> frozenset[str]:
        """Nodes on which an agent may have been installed or removed since the last call."""
        taken = frozenset(self._moved_in)
        self._moved_in.clear()
        return taken

    def apply(self, node: str, message: Message, *, retained: bool = False) -> None:
        """Apply a message from a node; messages from unknown nodes are ignored.

        `retained`: the broker had stored it, so it is no sign of life.
        """
        state = self._nodes.get(node)
        if state is None:
            return
        if isinstance(message, Sample):
            news = state.take_sample(message)
        elif isinstance(message, HealthReport):
            news = state.take_report(message, retained=retained)
        else:
            self._note(state, message)
            news = True
        self._take_in(state, news=news)

    def heartbeat(self, node: str, stamp: float) -> bool:
        """Note that a node reports the same health as before, at
        `stamp` (epoch seconds on its clock).

        The node is judged again only if its clock has moved. False if the
        caller must `apply` the message instead.
        """
        state = self._nodes.get(node)
        if state is None or not state.take_heartbeat(stamp):
            return False
        self._take_in(state, news=state.skew_moved)
        return True

    def _take_in(self, state: NodeState, *, news: bool) -> None:
        """Queue the node for judgement if its health may have changed;
        otherwise only show its new numbers.
        """
        if news:
            self._changed[state.name] = None
        else:
            self._notify((state.name,))
        self._expect(state)

    def _expect(self, state: NodeState) -> None:
        """Note when the node will be silent if no more messages arrive."""
        due = self._silence.at(state.name)
        # A later moment need not be stored: when due, `_note_silence` sets
        # it again if the node is still heard.
        if state.silent_from < due if due is not None else not state.silent:
            self._silence.set(state.name, state.silent_from)

    def _note(self, state: NodeState, message: Hello | Event) -> None:
        if isinstance(message, Hello):
            event = state.take_hello(message)
            if state.hello and self._peers.take(state.name, state.hello.inventory, self._clock()):
                self._introduced.add(state.name)
            self._moved_in.add(state.name)
        else:
            event = state.take_event(message)
        if event is not None:
            self.event_log.event(state.name, event, self._time_of(event, state.ahead))

    def _time_of(self, event: Event, ahead: float | None) -> float:
        """When an event happened, on the console's clock; now, if the node's
        time stamp is invalid or in the future.

        An event in the future would stay in the history longer than all others.
        """
        now = self._wall()
        at = event.at - (ahead or 0.0)
        return at if event.at > EPOCH and EPOCH < at <= now else now

    def uninstalled(self, node: str) -> None:
        """Note that the installed agent of a node was removed."""
        if node in self._nodes:
            self._nodes[node].installed = False
            self._moved_in.add(node)

    def attached(self, node: str, text: str = "attached") -> None:
        """Note that the agent of a node runs."""
        self._attach(node, text, failed=False)

    def troubled(self, node: str, text: str) -> None:
        """Note why the agent of a node does not run (one sentence)."""
        self._attach(node, text, failed=True)

    def _attach(self, node: str, text: str, *, failed: bool) -> None:
        if state := self._nodes.get(node):
            state.attach, state.failed_to_attach = clean_line(text, SENTENCE), failed
            self._changed[node] = None

    def reasons_of(self, name: str) -> tuple[Reason, ...]:
        """Why this node is not OK, according to the last judgement; does not judge again."""
        return self._reasons.get(name, ())

    def recall(self) -> None:
        """Show problems that began in an earlier console, until each node
        has been judged for long enough.
        """
        for name, reasons in self.event_log.recall().items():
            if name in self._nodes:
                self._nodes[name].recall(reasons)
                self._changed[name] = None

    def set_acks(self, acks: Iterable[Ack]) -> None:
        """Replace the acknowledgements of all nodes."""
        by_node: dict[str, list[Ack]] = {}
        for ack in acks:
            by_node.setdefault(ack.node, []).append(ack)
        for name, state in self._nodes.items():
            if state.set_notes(acks=tuple(by_node.get(name, ()))):
                self._changed[name] = None

    def set_busy(self, names: frozenset[str]) -> None:
        """Note the nodes on which jobs of this user run."""
        for name in filter(self.knows, names ^ self.busy):
            self._nodes[name].set_notes(busy=name in names)
            self._changed[name] = None
        self.busy = names

    @cached_property
    def _peers(self) -> "Peers":
        """Imported at first use, so that the first screen does not wait for the rules."""
        from rankdeck.rules.peers import Peers

        return Peers()

    def compare_peers(self, settles: float = SETTLES) -> None:
        """Find nodes that differ from most others, in driver or firmware for
        example, or that lack what others have.

        `settles`: seconds in which an agent finds all devices of its node.
        """
        if not self._peers.enough:
            return
        settled = self._clock() - settles
        odd, before = self._peers.drift(settled), self._odd
        for name in self._introduced.union(odd, before):
            known = name in self._peers
            if known and self._nodes[name].set_notes(drift=odd.get(name, ())):
                self._changed[name] = None
        # Those that may lack something are compared again once they have settled.
        self._introduced = {name for name in self._introduced if self._peers.changed(name, settled)}
        self._odd = frozenset(odd)

    def take_as_lasting(self) -> None:
        """Judge a clock that was wrong in two samples as wrong for long;
        for commands that take only two.
        """
        self._note_head_clock(state.ahead for state in self._nodes.values())
        for name, state in self._nodes.items():
            state.take_as_lasting()
            self._changed[name] = None

    def take_changes(self, seconds: float = inf) -> frozenset[str]:
        """Judge the nodes that changed and tell all followers; returns their
        names. Only for the session's timer.

        It stops after `seconds` of work, so that keys are not delayed; the next call goes on.
        """
        until = time.perf_counter() + seconds
        self._note_time()
        judged: set[str] = set()
        wall = self._wall()
        while self._changed and (len(judged) < LEAST or time.perf_counter() < until):
            name = next(iter(self._changed))
            del self._changed[name]
            state = self._nodes[name]
            state.judge()
            (self._moving.add if state.moves else self._moving.discard)(name)
            self._note_reasons(state, wall)
            judged.add(name)
        self._go_round(until)
        self._notify(judged)
        return frozenset(judged)

    @property
    def behind(self) -> bool:
        """Whether nodes are still waiting to be judged."""
        return bool(self._changed)

    def _note_time(self) -> None:
        """Queue nodes that fell silent, and nodes whose health may change without a new message."""
        now = self._clock()
        if now - self._looked >= SILENCE or now < self._looked:
            self._looked = now
            self._note_silence(now)
        if now - self._moved >= MOVES:
            self._moved = now
            self._changed.update(dict.fromkeys(self._moving))
            if self._introduced and now - self._compared >= SWEEP:
                self._compared = now
                self.compare_peers()

    def _note_head_clock(self, aheads: Iterable[float | None]) -> None:
        """Find out from what the nodes show whether the console's own clock is
        wrong; if so, they are not blamed for it.
        """
        behind = seconds_behind(ahead for ahead in aheads if ahead is not None)
        if abs(behind - self._head_behind) < _MOVED:
            return
        if bool(behind) != bool(self._head_behind):
            log.warning(
                "%s", describe_head_clock(behind) or "the clock of this machine is right again"
            )
        self._head_behind = behind
        for state in self._nodes.values():
            state.head_behind = behind
            if state.skew_moved:
                self._changed[state.name] = None

    @property
    def clock_trouble(self) -> str:
        """What is wrong with the clock of the console's machine, one sentence; "" if nothing."""
        return f"{describe_head_clock(self._head_behind)} · {REMEDY}" if self._head_behind else ""

    def _note_silence(self, now: float) -> None:
        for name in self._silence.due(now):
            state = self._nodes[name]
            if state.silent:
                self._changed[name] = None
            else:
                self._silence.set(name, state.silent_from)

    def _go_round(self, until: float) -> None:
        """Continue the round over all nodes: drop numbers that are no longer
        sent, compare clocks, take a picture.
        """
        state = next(self._round, None)
        if state is None:
            state = self._begin_round()
        done = 0
        while state is not None:
            self._visit(state)
            done += 1
            if done >= LEAST and time.perf_counter() > until:
                return
            state = next(self._round, None)
        if self._sweeping and done:
            self._note_head_clock(self._aheads)
        if done:
            self._pictures.finish()

    def _visit(self, state: NodeState) -> None:
        """Do for one node what the present round is for."""
        if self._sweeping:
            self._aheads.append(state.ahead)
            if state.drop_stale():
                self._changed[state.name] = None
        self._pictures.add(state)

    def _begin_round(self) -> NodeState | None:
        """Begin a round if one is due; returns its first node."""
        now, wall = self._clock(), self._wall()
        self._sweeping = now - self._swept >= SWEEP
        taking = self._pictures.begin(wall, len(self._nodes))
        if not (self._sweeping or taking):
            return None
        if self._sweeping:
            self._swept, self._aheads = now, []
        self._round = iter(tuple(self._nodes.values()))
        return next(self._round, None)

    def _note_reasons(self, state: NodeState, wall: float) -> None:
        """Log which reasons began and ended."""
        name, reasons = state.name, state.health.reasons
        before = self._reasons.get(name, self.event_log.stood(name))
        known = state.was_heard or state.in_scheduler is not None
        if reasons is before or (not reasons and not before) or not known:
            return
        self._reasons[name] = reasons
        self.event_log.judged(name, before, reasons, wall)


def _expected(cluster: Cluster, node: Node) -> Expected:
    return Expected(node.gpus, node.rdma, node.interface, cluster.expect)


PATIENCE = 45.0
"""A report is old after this many seconds; the gNMI subscription asks for one every 10 seconds."""
COUNTERS = (
    "in-octets", "out-octets", "in-pkts", "out-pkts", "in-errors", "out-errors",
    "in-discards", "out-discards", "in-fcs-errors", "carrier-transitions",
)  # fmt: skip
"""Counters of openconfig-interfaces; `in` is what the switch receives and the node sends."""


class SwitchPort(Value):
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
    """When the counters arrived, monotonic seconds of the console."""


def _unheard(switch: str, port: str, serves: str) -> SwitchPort:
    node, _, device = serves.partition(":")
    return SwitchPort(switch, port, node, device)


class Switches:
    """The state of all switch ports that the cluster file names."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self.troubles: dict[str, str] = {}
        """Switch -> why it sends nothing, one sentence."""
        self._clock = clock
        self._ports = {
            (switch.name, port): _unheard(switch.name, port, serves)
            for switch in cluster.switches
            for port, serves in switch.ports.items()
        }

    def ports(self) -> tuple[SwitchPort, ...]:
        """Every port; a port without a recent report has neither state nor numbers."""
        return tuple(map(self._current, self._ports.values()))

    def of_node(self, node: str) -> tuple[SwitchPort, ...]:
        return tuple(port for port in self.ports() if port.node == node)

    def _current(self, port: SwitchPort) -> SwitchPort:
        if port.at is not None and self._clock() - port.at <= PATIENCE:
            return port
        return SwitchPort(port.switch, port.port, port.node, port.device)

    def apply(self, switch: str, port: str, up: bool | None, values: Mapping[str, int]) -> None:
        """Apply a switch's report about a port: its state, its counters, or both.

        Unknown ports are ignored.
        """
        old = self._ports.get((switch, port))
        if old is None:
            return
        now = self._clock()
        self.troubles.pop(switch, None)
        fresh = {**old.values, **values}
        per_second = old.rates
        if "in-octets" in values and old.values and old.at is not None:
            per_second = growth_rates(old.values, fresh, now - old.at)
        self._ports[switch, port] = SwitchPort(
            switch, port, old.node, old.device,
            old.up if up is None else up, fresh, per_second, now if values or old.at is None else old.at,
        )  # fmt: skip
