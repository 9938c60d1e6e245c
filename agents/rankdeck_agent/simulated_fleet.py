"""`simulated-fleet`: plays the agents of many nodes in one process, for demo, teaching and benchmarks.

On standard input come lines `NODE JSON`: what the agent of that node would get on its own standard input, first its
configuration, then `{"samples": true}`; a line `NODE` alone ends it. A line ` JSON` is for the fleet (see `Plan`), or
asks: ` {"ask": true}` is answered by one line of JSON on standard output. The end of standard input ends all.
"""

import heapq
import json
import os
import random
import sys
import time
from dataclasses import dataclass, fields, replace
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from typing import Any, Optional

from rankdeck_agent.config import SIZE_LIMIT, Config, ConfigError, from_line
from rankdeck_agent.files import clean
from rankdeck_agent.mqtt_line import Line, LineError
from rankdeck_agent.simulated_node import SimulatedNode, any_fault
from rankdeck_agent.telemetry import wanted
from rankdeck_agent.wire import Message, encode, topic

AGAIN = 2.0
"""Seconds until a lost connection is made anew."""
EACH = 100
"""Nodes that share a connection, where they have one account together."""
SPREAD = 2.0
"""Seconds over which the first words of nodes that start together are spread."""
QOS = {"hello": 1, "health": 1, "event": 1, "sample": 0}
KEPT = ("hello", "health")
LOOK = 1.0
"""Seconds between two looks for connections that are quiet."""
_LONGEST_PAUSE = 0.5
_TURN = 0.5
"""Seconds of beats after which connections are looked at: a broker ends one that is silent for long."""


@dataclass(frozen=True)
class Plan:
    """How lively the fleet is."""

    seed: int = 1
    change: float = 0.01
    """Share of the nodes whose load changes each second."""
    faults: float = 0.03
    """Share of these that fall ill instead."""
    shortest: float = 20.0
    """Seconds that a fault lasts at least, and below at most."""
    longest: float = 120.0
    installed: bool = False
    """The agents say that they are installed to stay."""


@dataclass
class Wave:
    """Nodes that all fall ill within some seconds."""

    nodes: list[SimulatedNode]
    """Still to come, the first last."""
    every: float
    due: float


class Connection:
    """A connection and the nodes that speak over it."""

    def __init__(self, key: tuple[str, int, str, str], keepalive: int) -> None:
        self.key, self.keepalive = key, keepalive
        self.nodes: list[SimulatedNode] = []
        self.line: Optional[Line] = None
        self.again = 0.0
        """When to connect, while there is no line."""
        self.spoke = 0.0


class SimulatedFleet:
    """All nodes, their connections, and what happens next. One thread."""

    def __init__(self) -> None:
        self.plan = Plan()
        self.sent = dict.fromkeys(QOS, 0)
        """Kind of message -> how many were sent."""
        self.bytes = dict.fromkeys(QOS, 0)
        self._random = random.Random(self.plan.seed)
        self._selector = DefaultSelector()
        self._nodes: dict[str, SimulatedNode] = {}
        self._names: list[str] = []
        self._of: dict[str, Connection] = {}
        self._connections: dict[tuple[str, int, str, str], list[Connection]] = {}
        self._lost: list[Connection] = []
        self._beats: list[tuple[float, int, SimulatedNode]] = []
        self._order = 0
        self._changed = time.monotonic()
        self._owed = 0.0
        """Changes that should have happened and have not yet."""
        self._wave: Optional[Wave] = None
        self._pinged = self._changed
        self._text = b""
        self.trouble = ""
        """Why a connection was lost last."""
        self.late = 0.0
        """Seconds by which the last beat was late."""

    def run(self) -> int:
        """Until the end of standard input; the exit status."""
        self._selector.register(0, EVENT_READ, None)
        while True:
            for key, mask in self._selector.select(self._pause()):
                if key.data is None:
                    if not self._hear():
                        return 0
                else:
                    self._serve(key.data, mask)
            self._step(time.monotonic())

    def _pause(self) -> float:
        """Seconds until something is due."""
        due = self._beats[0][0] if self._beats else float("inf")
        return min(max(due - time.monotonic(), 0.0), _LONGEST_PAUSE, self._next_change())

    def _next_change(self) -> float:
        each = self.plan.change * len(self._names)
        soon = 1.0 / each if each else _LONGEST_PAUSE
        return min(soon, self._wave.every) if self._wave else soon

    # ---- what we are told

    def _hear(self) -> bool:
        """Take what stands on standard input; False at its end."""
        data = os.read(0, 1 << 16)
        *lines, rest = (self._text + data).split(b"\n")
        self._text = rest[-SIZE_LIMIT:]
        for line in lines:
            name, _, told = line.partition(b" ")
            if name:
                self._tell(name.decode("utf-8", "replace"), told)
            elif told:
                self._command(json.loads(told))
        return bool(data)

    def _tell(self, name: str, told: bytes) -> None:
        """What the agent of that node reads."""
        now = time.monotonic()
        node = self._nodes.get(name)
        if not told:
            self._end(name)
        elif node is None:
            self._begin(name, from_line(told), now)
        else:
            node.wanted = wanted(told, node.wanted)
            self._expect(node, now)

    def _command(self, told: dict[str, Any]) -> None:
        """Change the plan, make a wave of faults, end all faults, or answer."""
        known = {field.name for field in fields(Plan)}
        self.plan = replace(self.plan, **{k: v for k, v in told.items() if k in known})
        if "seed" in told:
            self._random = random.Random(self.plan.seed)
        if "ill" in told:
            self._make_wave(told["ill"], told["seconds"])
        if "ask" in told:
            print(json.dumps(self._answer()), flush=True)

    def _answer(self) -> dict[str, Any]:
        levels = [0, 0, 0, 0]
        for node in self._nodes.values():
            levels[1 if node.silent else node.level] += 1
        lines = [one for many in self._connections.values() for one in many]
        return {
            "nodes": len(self._nodes),
            "levels": levels,
            "sent": self.sent,
            "bytes": self.bytes,
            "late": self.late,
            "trouble": self.trouble,
            "waves": len(self._wave.nodes) if self._wave else 0,
            "connected": sum(1 for one in lines if one.line is not None),
            "cpu": time.process_time(),
        }

    # ---- nodes and connections

    def _begin(self, name: str, config: Config, now: float) -> None:
        def say(kind: str, message: Message) -> None:
            self._publish(made, kind, message)

        made = SimulatedNode(replace(config, node=name), say, now, installed=self.plan.installed)
        connection = self._connection(config)
        connection.nodes.append(made)
        self._nodes[name], self._of[name] = made, connection
        self._names.append(name)
        if connection.line is not None:
            made.announce()
        elif connection not in self._lost:
            self._connect(connection, now)
        self._expect(made, now + self._random.uniform(0.25, SPREAD))

    def _connection(self, config: Config) -> Connection:
        key = (config.host, config.port, config.username, config.password)
        many = self._connections.setdefault(key, [])
        if not many or len(many[-1].nodes) >= EACH:
            many.append(Connection(key, config.keepalive))
        return many[-1]

    def _connect(self, connection: Connection, now: float) -> None:
        host, port, *login = connection.key
        first = connection.nodes[0]
        alone = bool(login[0]) and len(connection.nodes) == 1
        cluster = first.cluster
        will = (topic(cluster, first.name, "hello"), encode(first.goodbye())) if alone else None
        connection.line = Line(
            (host, port),
            f"rankdeck-{cluster}-{first.name}",
            login=(login[0], login[1]),
            keepalive=connection.keepalive,
            will=will,
        )
        connection.spoke = now
        self._selector.register(connection.line, EVENT_READ | EVENT_WRITE, connection)
        for node in connection.nodes:
            node.announce()
            self._expect(node, now + self._random.uniform(0.25, SPREAD))

    def _serve(self, connection: Connection, mask: int) -> None:
        line = connection.line
        if line is None:
            return
        try:
            if mask & EVENT_WRITE:
                line.flush()
                if not line.waits:
                    self._selector.modify(line, EVENT_READ, connection)
            if mask & EVENT_READ:
                line.read()
        except LineError as error:
            self._lose(connection, str(error))

    def _lose(self, connection: Connection, why: str) -> None:
        if connection.line is None:
            return
        self.trouble = clean(why, 200)
        self._selector.unregister(connection.line)
        connection.line.close()
        connection.line = None
        connection.again = time.monotonic() + AGAIN * self._random.uniform(0.5, 1.5)
        self._lost.append(connection)

    def _publish(self, node: SimulatedNode, kind: str, message: Message) -> None:
        connection = self._of[node.name]
        line = connection.line
        if line is None:
            return
        payload, waited = encode(message), line.waits
        try:
            line.publish(
                topic(node.cluster, node.name, kind), payload, qos=QOS[kind], retain=kind in KEPT
            )
        except LineError as error:
            self._lose(connection, str(error))
            return
        self.sent[kind] += 1
        self.bytes[kind] += len(payload)
        connection.spoke = time.monotonic()
        if line.waits and not waited:
            self._selector.modify(line, EVENT_READ | EVENT_WRITE, connection)

    def _end(self, name: str) -> None:
        """Its standard input has ended: it says goodbye, unless it is installed to stay."""
        if self.plan.installed:
            return
        node, connection = self._nodes.pop(name, None), self._of.get(name)
        if node is None or connection is None:
            return
        self._publish(node, "hello", node.goodbye())
        connection.nodes.remove(node)
        self._names.remove(name)
        if not connection.nodes and connection.line is not None:
            self._selector.unregister(connection.line)
            connection.line.close()
            connection.line = None
            self._connections[connection.key].remove(connection)

    # ---- what happens

    def _expect(self, node: SimulatedNode, due: float) -> None:
        """Let it beat then."""
        node.due = due
        self._order += 1
        heapq.heappush(self._beats, (due, self._order, node))

    def _step(self, now: float) -> None:
        self._happen(now)
        until = time.monotonic() + _TURN
        while self._beats and self._beats[0][0] <= now and time.monotonic() < until:
            due, _, node = heapq.heappop(self._beats)
            # An entry that is not the newest of its node counts no more.
            if due == node.due and self._nodes.get(node.name) is node:
                self.late = now - due
                node.beat(now)
                self._expect(node, node.due)
        for connection in [one for one in self._lost if now >= one.again]:
            self._lost.remove(connection)
            if connection.nodes:
                self._connect(connection, now)

    def _happen(self, now: float) -> None:
        """Change the load of some nodes, make some ill, keep the connections."""
        passed, self._changed = now - self._changed, now
        self._owed += passed * self.plan.change * len(self._names)
        while self._owed >= 1.0:
            self._owed -= 1.0
            node = self._nodes[self._random.choice(self._names)]
            if self._random.random() < self.plan.faults and not node.sick:
                lasts = self._random.uniform(self.plan.shortest, self.plan.longest)
                node.fall_ill(any_fault(self._random), now, lasts)
            else:
                node.work_on(self._random.uniform(20.0, 200.0))
            self._expect(node, now)
        while self._wave and now >= self._wave.due:
            self._next_of_wave(self._wave, now)
        if now - self._pinged >= LOOK:
            self._pinged = now
            self._keep_alive(now)

    def _keep_alive(self, now: float) -> None:
        """Ping where nothing was said for as long as was agreed, as paho does."""
        for connection in [one for many in self._connections.values() for one in many]:
            if connection.line is None or now - connection.spoke < connection.keepalive:
                continue
            connection.spoke = now
            try:
                connection.line.ping()
            except LineError as error:
                self._lose(connection, str(error))

    def _make_wave(self, share: float, seconds: float) -> None:
        """So large a share of the nodes, taken by chance, falls ill within so many seconds."""
        well = [node for node in self._nodes.values() if not node.sick and node.level == 0]
        chosen = self._random.sample(well, min(int(share * len(self._nodes)), len(well)))
        if chosen:
            self._wave = Wave(chosen, seconds / len(chosen), time.monotonic())

    def _next_of_wave(self, wave: Wave, now: float) -> None:
        node = wave.nodes.pop()
        node.fall_ill("full", now, self.plan.longest)
        self._expect(node, now)
        wave.due += wave.every
        if not wave.nodes:
            self._wave = None


def main() -> int:
    """Play the fleet; the exit status."""
    try:
        return SimulatedFleet().run()
    except (ConfigError, ValueError) as error:
        print(f"rankdeck-agent: {clean(str(error), 500)}", file=sys.stderr)
        return 2
