"""`simulated-fleet`: plays the agents of many nodes in one process, for demo, teaching and benchmarks.

On standard input come lines `NODE JSON`: what the agent of that node would get on its own standard input, first its
configuration, then `{"samples": true}`; a line `NODE` alone ends it. A line ` JSON` is for the fleet (see `FleetPlan`), or
asks: ` {"ask": true}` is answered by one line of JSON on standard output. The end of standard input ends all.

A made-up node has simulated readings; their judgement and the messages are those of the real agent. Each has an MQTT 3.1.1
connection that only publishes, without a thread: what is published waits in a buffer, and the broker's answers are dropped.
"""

import heapq
import json
import os
import random
import socket
import sys
import time
import zlib
from dataclasses import dataclass, fields, replace
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from typing import Any, Callable, Optional

from rankdeck_agent import __version__
from rankdeck_agent.collectors.base import Reading
from rankdeck_agent.collectors.simulated import SimulatedGpus, SimulatedHost, SimulatedRdma
from rankdeck_agent.config import SIZE_LIMIT, AgentConfigError, Config, from_line
from rankdeck_agent.files import clean
from rankdeck_agent.sampler import HASTE, NodeJudge, Reporter
from rankdeck_agent.telemetry import wanted
from rankdeck_agent.wire import Hello, Message, Sample, encode, topic

SILENT = "silent"
FAULTS = (
    ("host", "full"), ("gpu", "hot"), ("gpu", "ecc"), ("gpu", "lost"), ("gpu", "pcie"), ("gpu", "nvlink"),
    ("gpu", "hang"), ("rdma", "down"), ("rdma", "retx"), ("rdma", "errors"), ("", SILENT),
)  # fmt: skip
"""What may befall a node: which part of it, and the fault as `simulate:` names it."""
WATCHED = 90.0
"""Seconds after a fault in which the node is read every second: what it left behind has to end."""
FIRST = 4.0
"""The same at the start: rates need two readings."""
ODD, KERNEL = 500, "6.5.0-made-up"
"""One of so many nodes has another kernel than its peers."""
UP = 40 * 86400.0
"""Seconds since the boot that never was."""
Publish = Callable[[str, Message], None]
"""Told the kind of a message and the message."""


class SimulatedNode:
    """What the agent of one node does, without its clock: `beat` is called when `due` has come."""

    def __init__(self, config: Config, publish: Publish, now: float, *, installed: bool) -> None:
        self.name, self.cluster = config.node, config.cluster
        self.level = 0
        """The level that was said last."""
        self.wanted = config.samples
        """Whether full samples are sent, once a second."""
        self.due = now
        self._config, self._publish = config, publish
        self._host = SimulatedHost(self.name)
        self._parts = (self._host, SimulatedGpus(self.name), SimulatedRdma(self.name))
        self._judge = NodeJudge(
            config.expect, self._boot, config.heartbeat, brief=config.brief, clock=time.monotonic
        )
        self._reporter = Reporter(config.heartbeat)
        self._seq = 0
        self._fault = ""
        self._until = self._said = float("-inf")
        self._watched = now + FIRST
        self._hello = self._first_word(installed=installed)
        self._read(now)

    @property
    def _boot(self) -> str:
        return f"{zlib.crc32(self.name.encode()):08x}"

    @property
    def silent(self) -> bool:
        """Whether a fault keeps it from saying anything."""
        return self._fault == SILENT

    @property
    def sick(self) -> bool:
        return bool(self._fault)

    def goodbye(self) -> Hello:
        """The last will of its agent."""
        return replace(self._hello, up=False, inventory={})

    def announce(self) -> None:
        """Say who it is, and its health at the next beat: a connection was made."""
        self._publish("hello", replace(self._hello, at=time.time()))
        self._reporter.forget()
        self._said = float("-inf")

    def work_on(self, seconds: float) -> None:
        """The load is another one, as if so much time had passed."""
        for part in self._parts:
            part.skip(seconds)

    def fall_ill(self, fault: str, now: float, seconds: float) -> None:
        """Have this fault for so long."""
        self._fault, self._until = fault, now + seconds
        self._watched = self._until + WATCHED
        self._tell_parts()

    def recover(self, now: float) -> None:
        """Have no fault any more."""
        self._fault, self._watched = "", now + WATCHED
        self._tell_parts()

    def _tell_parts(self) -> None:
        for part in self._parts:
            part.faults = tuple(
                fault for name, fault in FAULTS if name == part.name and fault == self._fault
            )

    def beat(self, now: float) -> None:
        """Read, judge and say what is due; then `due` is when to come again."""
        if self.sick and now >= self._until:
            self.recover(now)
        if not self.silent:
            self._speak(now)
        busy = self.wanted or now < self._watched
        self.due = (
            now + 1.0 if busy else max(self._said + self._config.heartbeat - HASTE, now + 1.0)
        )

    def _speak(self, now: float) -> None:
        sample, reading = self._read(now)
        for event in reading.events:
            self._publish("event", event)
        report = self._judge.judge(sample, tuple(reading.events), self._hello.inventory)
        told = self._reporter.due(report, now)
        if told is not None:
            self._publish("health", told)
            self._reporter.said(told, now)
            self.level, self._said = told.level, now
        if self.wanted:
            self._publish("sample", replace(sample, report=report))

    def _read(self, now: float) -> tuple[Sample, Reading]:
        """All parts in one reading. The load of a node that nobody looks at stands still."""
        joined, absent = Reading(), set[str]()
        joined.put("agent.lag", 0.0)
        for part in self._parts:
            part.pace = 1.0 if self.wanted else 0.0
            reading = part.collect(now)
            joined.values.update(reading.values)
            joined.failed.update(reading.failed)
            joined.events += reading.events
            absent |= reading.absent(part.metrics)
        self._seq += 1
        made = Sample(self._seq, time.time(), joined.values, tuple(sorted(absent)), joined.failed)
        return made, joined

    def _first_word(self, *, installed: bool) -> Hello:
        booted = time.time() - UP
        inventory = {"boot.at": f"{booted:.0f}", "agent.python": "made up"}
        for part in self._parts:
            inventory.update(part.inventory)
        if zlib.crc32(self.name.encode()) % ODD == 0:
            inventory["kernel"] = KERNEL
        return Hello(
            node=self.name,
            up=True,
            boot=self._boot,
            agent=__version__,
            period=self._config.period,
            inventory=inventory,
            simulated=(*self._host.prefixes, "gpu", "rdma"),
            installed=installed,
            heartbeat=self._config.heartbeat,
        )


def any_fault(chance: random.Random) -> str:
    """One of the faults."""
    return chance.choice([fault for _, fault in FAULTS])


MOST_WAITING = 4 << 20
"""Bytes that may wait; what comes then is left out."""
_PING = b"\xc0\x00"
_CONNACK = b"\x20\x02"
_BUSY = (BlockingIOError, InterruptedError)


class LineError(OSError):
    """The connection has ended; the text says why."""


class BrokerLine:
    """Raises LineError from `read` and `flush` where it cannot go on."""

    def __init__(
        self,
        address: tuple[str, int],
        client_id: str,
        *,
        login: tuple[str, str] = ("", ""),
        keepalive: int = 60,
        will: Optional[tuple[str, bytes]] = None,
    ) -> None:
        """`will`: topic and payload that the broker publishes, retained, where we vanish."""
        self.dropped = 0
        self.keepalive = keepalive
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.connect_ex(address)
        self._waiting = bytearray(_connect(client_id, login, keepalive, will))
        self._open = False
        self._answer = b""
        self._number = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def waits(self) -> bool:
        """Whether something is still to be written."""
        return bool(self._waiting)

    def publish(self, topic: str, payload: bytes, *, qos: int = 0, retain: bool = False) -> bool:
        """Send a message, or keep it until there is room; False if it is left out."""
        if len(self._waiting) > MOST_WAITING:
            self.dropped += 1
            return False
        number = b""
        if qos:
            self._number = self._number % 0xFFFF + 1
            number = self._number.to_bytes(2, "big")
        body = _text(topic.encode()) + number + payload
        self._waiting += bytes((0x30 | qos << 1 | retain,)) + _length(len(body)) + body
        if self._open:
            self.flush()
        return True

    def ping(self) -> None:
        """Say that we are there; at least every `keepalive` seconds."""
        if not self._waiting:
            self._waiting += _PING
            self.flush()

    def flush(self) -> None:
        """Write what can be written now."""
        try:
            del self._waiting[: self._socket.send(self._waiting)]
        except _BUSY:
            return
        except OSError as error:
            raise LineError(error.strerror or "the connection is lost") from error
        self._open = True

    def read(self) -> None:
        """Take what the broker says; a refusal is an error."""
        try:
            data = self._socket.recv(1 << 16)
        except _BUSY:
            return
        except OSError as error:
            raise LineError(error.strerror or "the connection is lost") from error
        if not data:
            raise LineError("the broker ended the connection")
        if len(self._answer) < 4:
            self._answer += data[:4]
            if len(self._answer) >= 4 and not _accepted(self._answer):
                raise LineError(f"the broker refuses us: {self._answer[:4].hex()}")

    def close(self) -> None:
        self._socket.close()


def _accepted(answer: bytes) -> bool:
    return answer[:2] == _CONNACK and answer[3] == 0


def _connect(
    client_id: str, login: tuple[str, str], keepalive: int, will: Optional[tuple[str, bytes]]
) -> bytes:
    flags, rest = 0x02, _text(client_id.encode())
    if will:
        flags |= 0x2C  # will, QoS 1, retained
        rest += _text(will[0].encode()) + _text(will[1])
    if login[0]:
        flags |= 0xC0
        rest += _text(login[0].encode()) + _text(login[1].encode())
    body = _text(b"MQTT") + bytes((4, flags)) + keepalive.to_bytes(2, "big") + rest
    return b"\x10" + _length(len(body)) + body


def _text(raw: bytes) -> bytes:
    return len(raw).to_bytes(2, "big") + raw


def _length(number: int) -> bytes:
    encoded = bytearray()
    while True:
        number, low = divmod(number, 128)
        encoded.append(low | (0x80 if number else 0))
        if not number:
            return bytes(encoded)


AGAIN = 2.0
"""Seconds until a lost connection is made again."""
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
class FleetPlan:
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
class GroupFault:
    """Nodes that all fall ill within some seconds."""

    nodes: list[SimulatedNode]
    """Still to come, the first last."""
    every: float
    due: float


class SharedConnection:
    """A connection and the nodes that speak over it."""

    def __init__(self, key: tuple[str, int, str, str], keepalive: int) -> None:
        self.key, self.keepalive = key, keepalive
        self.nodes: list[SimulatedNode] = []
        self.line: Optional[BrokerLine] = None
        self.again = 0.0
        """When to connect, while there is no line."""
        self.spoke = 0.0


class SimulatedFleet:
    """All nodes, their connections, and what happens next. One thread."""

    def __init__(self) -> None:
        self.plan = FleetPlan()
        self.sent = dict.fromkeys(QOS, 0)
        """Kind of message -> how many were sent."""
        self.bytes = dict.fromkeys(QOS, 0)
        self._random = random.Random(self.plan.seed)
        self._selector = DefaultSelector()
        self._nodes: dict[str, SimulatedNode] = {}
        self._names: list[str] = []
        self._of: dict[str, SharedConnection] = {}
        self._connections: dict[tuple[str, int, str, str], list[SharedConnection]] = {}
        self._lost: list[SharedConnection] = []
        self._beats: list[tuple[float, int, SimulatedNode]] = []
        self._order = 0
        self._changed = time.monotonic()
        self._owed = 0.0
        """Changes that should have happened and have not yet."""
        self._wave: Optional[GroupFault] = None
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
        known = {field.name for field in fields(FleetPlan)}
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

    def _connection(self, config: Config) -> SharedConnection:
        key = (config.host, config.port, config.username, config.password)
        many = self._connections.setdefault(key, [])
        if not many or len(many[-1].nodes) >= EACH:
            many.append(SharedConnection(key, config.keepalive))
        return many[-1]

    def _connect(self, connection: SharedConnection, now: float) -> None:
        host, port, *login = connection.key
        first = connection.nodes[0]
        alone = bool(login[0]) and len(connection.nodes) == 1
        cluster = first.cluster
        will = (topic(cluster, first.name, "hello"), encode(first.goodbye())) if alone else None
        connection.line = BrokerLine(
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

    def _serve(self, connection: SharedConnection, mask: int) -> None:
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

    def _lose(self, connection: SharedConnection, why: str) -> None:
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
            self._wave = GroupFault(chosen, seconds / len(chosen), time.monotonic())

    def _next_of_wave(self, wave: GroupFault, now: float) -> None:
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
    except (AgentConfigError, ValueError) as error:
        print(f"rankdeck-agent: {clean(str(error), 500)}", file=sys.stderr)
        return 2
