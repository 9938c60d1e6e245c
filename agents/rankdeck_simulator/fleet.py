"""Simulates the agents of many nodes in one process, for demo, teaching and benchmarks.

Standard input has lines `NODE JSON`: what the agent of that node would get on its own standard
input, first its configuration, then lines like `{"samples": true}`; a line with only `NODE` ends
that agent. A line ` JSON` (with a leading blank) changes the fleet (see `FleetPlan`); ` {"ask":
true}` is answered by one line of JSON on standard output. The end of standard input ends
everything.

The readings are simulated; judgement and messages are those of the real agent. Connections speak
MQTT 3.1.1, only publish and need no threads: messages wait in a buffer, and the broker's answers
are dropped. Nodes with one account share them.
"""

import heapq
import json
import os
import random
import socket
import time
import zlib
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from typing import Any, Callable, Optional

from rankdeck_agent import __version__
from rankdeck_agent.collectors.base import Reading
from rankdeck_agent.config import SIZE_LIMIT, AgentConfigError, Config, from_line
from rankdeck_agent.sampler import HASTE, NodeJudge, Reporter
from rankdeck_agent.seen_devices import SeenDevices
from rankdeck_agent.telemetry import samples_wanted
from rankdeck_agent.text import clean_text, parse_json_table, print_complaint
from rankdeck_agent.values import Record, Value, list_fields, replace
from rankdeck_agent.wire import Hello, Message, Sample, encode_message, message_topic
from rankdeck_simulator.devices import SimulatedGpus, SimulatedHost, SimulatedRdma

SILENT = "silent"
FAULTS = (
    ("host", "full"), ("gpu", "hot"), ("gpu", "ecc"), ("gpu", "lost"), ("gpu", "pcie"), ("gpu", "nvlink"),
    ("gpu", "hang"), ("rdma", "down"), ("rdma", "retx"), ("rdma", "errors"), ("", SILENT),
)  # fmt: skip
"""(part of the node, fault as in `simulate:`) of each possible fault."""
WATCHED = 90.0
"""Seconds after a fault in which the node is read every second, so
that the end of its reasons is seen.
"""
FIRST = 4.0
"""Seconds after the start in which the node is read every second: rates need two readings."""
ODD, KERNEL = 500, "6.5.0-made-up"
"""One node in this many has another kernel than its peers: this one."""
UP = 40 * 86400.0
"""Simulated seconds since boot."""
Publish = Callable[[str, Message], None]
"""Called with the kind of a message and the message."""


class SimulatedNode:
    """The simulated agent of one node; the fleet calls `beat` at the time `due`
    (monotonic seconds, as all times here).
    """

    def __init__(self, config: Config, publish: Publish, now: float, *, installed: bool) -> None:
        self.name, self.cluster = config.node, config.cluster
        self.level = 0
        """The health level that was sent last."""
        self.wanted = config.samples
        """Whether full samples are sent, once a second."""
        self.due = now
        self._config, self._publish = config, publish
        self._host = SimulatedHost(self.name)
        self._parts = (self._host, SimulatedGpus(self.name), SimulatedRdma(self.name))
        self._judge = NodeJudge(
            config.expect,
            SeenDevices(self._boot),
            config.heartbeat,
            brief=config.brief,
            clock=time.monotonic,
        )
        self._reporter = Reporter(config.heartbeat)
        self._seq = 0
        self._fault = ""
        self._until = self._sent = float("-inf")
        self._watched = now + FIRST
        self._hello = self._first_word(installed=installed)
        self._read(now)

    @property
    def _boot(self) -> str:
        return f"{zlib.crc32(self.name.encode()):08x}"

    @property
    def silent(self) -> bool:
        """Whether a fault keeps it from sending anything."""
        return self._fault == SILENT

    @property
    def sick(self) -> bool:
        """Whether it has a fault."""
        return bool(self._fault)

    def goodbye(self) -> Hello:
        """The message that says that its agent has ended."""
        return replace(self._hello, up=False, inventory={})

    def announce(self) -> None:
        """Send the hello now and the health at the next beat, because the connection is new."""
        self._publish("hello", replace(self._hello, at=time.time()))
        self._reporter.forget()
        self._sent = float("-inf")

    def work_on(self, seconds: float) -> None:
        """Change the load, as if `seconds` had passed."""
        for part in self._parts:
            part.skip(seconds)

    def fall_ill(self, fault: str, now: float, seconds: float) -> None:
        """Have this fault for `seconds`."""
        self._fault, self._until = fault, now + seconds
        self._watched = self._until + WATCHED
        self._tell_parts()

    def recover(self, now: float) -> None:
        """End the fault."""
        self._fault, self._watched = "", now + WATCHED
        self._tell_parts()

    def _tell_parts(self) -> None:
        for part in self._parts:
            part.faults = tuple(
                fault for name, fault in FAULTS if name == part.name and fault == self._fault
            )

    def beat(self, now: float) -> None:
        """Read, judge and send what is due, and set `due` to the time of the next beat."""
        if self.sick and now >= self._until:
            self.recover(now)
        if not self.silent:
            self._speak(now)
        busy = self.wanted or now < self._watched
        self.due = (
            now + 1.0 if busy else max(self._sent + self._config.heartbeat - HASTE, now + 1.0)
        )

    def _speak(self, now: float) -> None:
        sample, reading = self._read(now)
        for event in reading.events:
            self._publish("event", event)
        report = self._judge.judge(sample, tuple(reading.events), self._hello.inventory)
        due = self._reporter.due(report, now)
        if due is not None:
            self._publish("health", due)
            self._reporter.sent(due, now)
            self.level, self._sent = due.level, now
        if self.wanted:
            self._publish("sample", replace(sample, report=report))

    def _read(self, now: float) -> tuple[Sample, Reading]:
        """Read all parts. The load is constant while full samples are not wanted."""
        joined, absent = Reading(), set[str]()
        joined.put("agent.lag", 0.0)
        for part in self._parts:
            part.pace = 1.0 if self.wanted else 0.0
            reading = part.collect(now)
            joined.values.update(reading.values)
            joined.take_failures(reading)
            joined.events += reading.events
            absent |= reading.absent(part.metrics)
        self._seq += 1
        return joined.as_sample(self._seq, time.time(), absent), joined

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
    """A random fault."""
    return chance.choice([fault for _, fault in FAULTS])


MOST_WAITING = 4 << 20
"""Most bytes that may wait to be written; further messages are dropped."""
_PING = b"\xc0\x00"
_CONNACK = b"\x20\x02"
_BUSY = (BlockingIOError, InterruptedError)


class LineError(OSError):
    """The connection has ended; the text says why."""


class BrokerLine:
    """A connection to the broker that only publishes and never blocks.

    `read`, `flush`, `ping` and `publish` raise LineError when it is lost.
    """

    def __init__(
        self,
        address: tuple[str, int],
        client_id: str,
        *,
        login: tuple[str, str] = ("", ""),
        keepalive: int = 60,
        will: Optional[tuple[str, bytes]] = None,
    ) -> None:
        """`will`: (topic, payload) that the broker publishes, retained, if we disappear.

        `keepalive` in seconds.
        """
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

    def publish(self, topic: str, payload: bytes, *, qos: int = 0, retain: bool = False) -> None:
        """Send a message, or keep it until it can be sent; drops it if too much waits."""
        if len(self._waiting) > MOST_WAITING:
            return
        number = b""
        if qos:
            self._number = self._number % 0xFFFF + 1
            number = self._number.to_bytes(2, "big")
        body = _text(topic.encode()) + number + payload
        self._waiting += bytes((0x30 | qos << 1 | retain,)) + _length(len(body)) + body
        if self._open:
            self.flush()

    def ping(self) -> None:
        """Send a ping; call it if nothing was sent for `keepalive` seconds."""
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
        """Read and drop what the broker sends; raises LineError if it refuses the connection."""
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
"""Most nodes that share a connection; they must have the same account."""
SPREAD = 2.0
"""Seconds over which the first beats of nodes that start together are spread."""
QOS = {"hello": 1, "health": 1, "event": 1, "sample": 0}
KEPT = ("hello", "health")
LOOK = 1.0
"""Seconds between two checks for connections that need a ping."""
_LONGEST_PAUSE = 0.5
_TURN = 0.5
"""Most seconds of beats before connections are served again: a broker ends
a connection that is silent for long.
"""


class FleetPlan(Value):
    """How often loads change and faults happen in the fleet."""

    seed: int = 1
    change: float = 0.01
    """Share of the nodes whose load changes each second."""
    faults: float = 0.03
    """Share of these nodes that get a fault instead."""
    shortest: float = 20.0
    """Least seconds that a fault lasts."""
    longest: float = 120.0
    """Most seconds that a fault lasts."""
    installed: bool = False
    """Whether the agents say that they are installed as a service."""


class GroupFault(Record):
    """A wave of faults: many nodes get one within some seconds."""

    nodes: list[SimulatedNode]
    """The nodes that do not have it yet; the last in the list is next."""
    every: float
    """Seconds from one node to the next."""
    due: float
    """When the next node gets it."""


class SharedConnection:
    """A connection and the nodes that use it; `key` is (host, port, user name, password)."""

    def __init__(self, key: tuple[str, int, str, str], keepalive: int) -> None:
        self.key, self.keepalive = key, keepalive
        self.nodes: list[SimulatedNode] = []
        self.line: Optional[BrokerLine] = None
        self.again = 0.0
        """When to connect again, while there is no line."""
        self.spoke = 0.0
        """When something was sent last."""


class SimulatedFleet:
    """All nodes and their connections. Runs in one thread."""

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
        """Changes of load that are due, as a fraction."""
        self._wave: Optional[GroupFault] = None
        self._pinged = self._changed
        self._text = b""
        self.trouble = ""
        """Why a connection was lost last."""
        self.late = 0.0
        """Seconds by which the last beat was late."""

    def run(self) -> int:
        """Run until standard input ends; returns the exit code."""
        self._selector.register(0, EVENT_READ, None)
        while True:
            for key, mask in self._selector.select(self._pause()):
                if key.data is None:
                    if not self._read_input():
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

    # ---- standard input

    def _read_input(self) -> bool:
        """Handle what is available on standard input; False at its end."""
        data = os.read(0, 1 << 16)
        *lines, rest = (self._text + data).split(b"\n")
        self._text = rest[-SIZE_LIMIT:]
        for line in lines:
            name, _, payload = line.partition(b" ")
            if name:
                self._agent_line(name.decode("utf-8", "replace"), payload)
            elif payload:
                self._command(json.loads(payload))
        return bool(data)

    def _agent_line(self, name: str, payload: bytes) -> None:
        """Handle a line for the agent of one node."""
        now = time.monotonic()
        node = self._nodes.get(name)
        if not payload:
            self._end(name)
        elif node is None:
            self._begin(name, from_line(payload), now)
        else:
            node.wanted = samples_wanted(
                parse_json_table(payload.decode("utf-8", "replace")) or {}, node.wanted
            )
            self._expect(node, now)

    def _command(self, request: dict[str, Any]) -> None:
        """Handle a line for the fleet: change the plan, start a wave of faults, or answer."""
        known = list_fields(FleetPlan)
        self.plan = replace(self.plan, **{k: v for k, v in request.items() if k in known})
        if "seed" in request:
            self._random = random.Random(self.plan.seed)
        if "ill" in request:
            self._make_wave(request["ill"], request["seconds"])
        if "ask" in request:
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
        will = (
            (message_topic(cluster, first.name, "hello"), encode_message(first.goodbye()))
            if alone
            else None
        )
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
        self.trouble = clean_text(why, 200)
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
        payload, waited = encode_message(message), line.waits
        try:
            line.publish(
                message_topic(node.cluster, node.name, kind),
                payload,
                qos=QOS[kind],
                retain=kind in KEPT,
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
        """End the agent of a node, with a goodbye; does nothing if the
        agents are installed as services.
        """
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

    # ---- time

    def _expect(self, node: SimulatedNode, due: float) -> None:
        """Schedule the next beat of a node."""
        node.due = due
        self._order += 1
        heapq.heappush(self._beats, (due, self._order, node))

    def _step(self, now: float) -> None:
        self._happen(now)
        until = time.monotonic() + _TURN
        while self._beats and self._beats[0][0] <= now and time.monotonic() < until:
            due, _, node = heapq.heappop(self._beats)
            # Ignore an entry that is not the newest of its node.
            if due == node.due and self._nodes.get(node.name) is node:
                self.late = now - due
                node.beat(now)
                self._expect(node, node.due)
        for connection in [one for one in self._lost if now >= one.again]:
            self._lost.remove(connection)
            if connection.nodes:
                self._connect(connection, now)

    def _happen(self, now: float) -> None:
        """Change the load of some nodes, give faults to some, send pings."""
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
        """Send a ping on connections where nothing was sent for
        `keepalive` seconds, as paho does.
        """
        for connection in [one for many in self._connections.values() for one in many]:
            if connection.line is None or now - connection.spoke < connection.keepalive:
                continue
            connection.spoke = now
            try:
                connection.line.ping()
            except LineError as error:
                self._lose(connection, str(error))

    def _make_wave(self, share: float, seconds: float) -> None:
        """Start a wave: a random `share` (0 to 1) of the nodes gets a fault within `seconds`."""
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
    """Run the simulated fleet; returns the exit code."""
    try:
        return SimulatedFleet().run()
    except (AgentConfigError, ValueError) as error:
        return print_complaint(f"rankdeck-simulator: {clean_text(str(error), 500)}", 2)
