"""`telemetry`: publishes health, samples and events of this node over MQTT
until stdin is closed or the service stops.
"""

import base64
import contextlib
import json
import os
import random
import signal
import sys
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Optional

from rankdeck_agent import __version__
from rankdeck_agent.collectors import choose_simulated, make_collectors
from rankdeck_agent.collectors.gpu import GpuCollector
from rankdeck_agent.config import SIZE_LIMIT, AgentConfigError, Config, from_file, from_line
from rankdeck_agent.descriptors import wait_readable
from rankdeck_agent.gpu_release import SIGNALS
from rankdeck_agent.machine import describe_machine
from rankdeck_agent.private_files import leave_no_core
from rankdeck_agent.relay import BrokerRelay
from rankdeck_agent.sampler import LATE_SHARE, NodeJudge, Reporter, Sampler
from rankdeck_agent.seen_devices import SeenDevices, memory_of_this_boot
from rankdeck_agent.system_files import Tree
from rankdeck_agent.text import clean_text, failure_reason, parse_json_table, print_complaint
from rankdeck_agent.values import replace
from rankdeck_agent.wire import Event, Hello, Message, Sample, encode_message, message_topic

if TYPE_CHECKING:
    from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Lease:
    """How long the agent runs: until a signal (SIGTERM, SIGINT, SIGHUP), or
    with `stdin` until standard input ends.

    A line `{"samples": true}` or `{"samples": false}` on standard input turns full samples on or
    off, a line with `relay` is for the relay, and the SIGNALS of `gpu_release` turn the reading of
    GPUs on or off.
    """

    def __init__(
        self, *, stdin: bool, samples: bool = True, relay: Optional[BrokerRelay] = None
    ) -> None:
        self.samples = samples
        self.gpus = True
        """Whether GPUs are to be read."""
        self._relay = relay
        self._line = b""
        self._bell, ring = os.pipe()
        self._watched = [self._bell] + ([0] if stdin else [])
        os.set_blocking(ring, False)
        for number in _ENDING:
            signal.signal(number, lambda _number, _frame: _ring(ring))
        for command, number in SIGNALS.items():
            signal.signal(number, partial(self._turn, command == "gpu-start"))

    def _turn(self, gpus: bool, _number: int, _frame: object) -> None:
        self.gpus = gpus

    def wait(self, seconds: float) -> bool:
        """Sleep at most `seconds`, reading standard input meanwhile;
        True at once if the lease has ended.
        """
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            ready = wait_readable(self._watched, left)
            if not ready:
                return False
            if self._bell in ready or not self._read():
                return True

    def _read(self) -> bool:
        """Read what is available on standard input; False at its end."""
        data = os.read(0, 65536)
        *lines, rest = (self._line + data).split(b"\n")
        self._line = rest[-SIZE_LIMIT:]
        for line in lines:
            request = parse_json_table(line.decode("utf-8", "replace")) or {}
            self.samples = samples_wanted(request, self.samples)
            if self._relay is not None and isinstance(request.get("relay"), dict):
                self._relay.take(request["relay"])
        return bool(data)


def samples_wanted(request: Mapping[str, Any], before: bool) -> bool:
    """Whether full samples are wanted after this request; `before` if it does not say."""
    found = request.get("samples")
    return found if isinstance(found, bool) else before


def _ring(handle: int) -> None:
    # If the pipe is full, the lease has been woken already.
    with contextlib.suppress(BlockingIOError):
        os.write(handle, b".")


def run_telemetry() -> int:
    """Publish until standard input ends; its first line is the configuration.

    Returns the exit code.
    """
    leave_no_core()
    try:
        config = from_line(read_line(0))
    except AgentConfigError as error:
        return _refuse(str(error))
    relay = None
    if config.relay:
        relay = BrokerRelay()
        relay.start()
        config = replace(config, host="127.0.0.1", port=relay.port)
    return publish_until_end(config, Lease(stdin=True, samples=config.samples, relay=relay))


def run_headless(path: str) -> int:
    """Publish until a signal, with the configuration file `path`, as the installed service.

    Returns the exit code.
    """
    leave_no_core()
    try:
        config = from_file(path)
    except AgentConfigError as error:
        return _refuse(str(error))
    return publish_until_end(config, Lease(stdin=False, samples=config.samples), installed=True)


def erase_retained(path: str) -> int:
    """Erase what the broker retains of this node, with the configuration file `path`.

    Returns the exit code.
    """
    try:
        config = from_file(path)
        why = forget_retained(config)
    except AgentConfigError as error:
        return _refuse(str(error))
    return _refuse(why) if why else 0


def publish_until_end(config: Config, lease: Lease, *, installed: bool = False) -> int:
    """Publish until the lease ends. Returns the exit code."""
    try:
        publisher = Publisher(config, make_hello(config, installed=installed))
    except ImportError as error:
        return _refuse(f"paho-mqtt 2 is needed to publish: {error}")
    except (OSError, ValueError) as error:
        # Before a connection is made, only reading the certificates can fail like this.
        where = f"ca_file {config.ca_file!r}" if config.ca_file else "ca"
        return _refuse(f"{where}: {failure_reason(error)}")
    publisher.start()
    publish_samples(config, lease, publisher)
    publisher.stop()
    return 0


class Destination(ABC):
    """Takes the messages of a node, and keeps what the node has announced.

    No method waits for the network.
    """

    def __init__(self, hello: Hello) -> None:
        self._hello = hello
        self._machine = hello.inventory

    @property
    def boot(self) -> str:
        """The boot id of this node."""
        return self._hello.boot

    @property
    def inventory(self) -> Mapping[str, str]:
        """The hardware of this node, as announced last."""
        return self._hello.inventory

    def describe(self, inventory: Mapping[str, str]) -> None:
        """Announce the hardware that the collectors found, added to the
        machine's own, if it has changed.
        """
        known = {**self._machine, **inventory}
        if known != self._hello.inventory:
            self._hello = replace(self._hello, inventory=known)
            self.announce()

    @abstractmethod
    def announce(self) -> None:
        """Send the hello, if there is a connection."""

    @abstractmethod
    def publish(self, reporter: Reporter, judged: Sample, now: float, *, whole: bool) -> None:
        """Send the report of a judged sample if `reporter` says that it is due, and the sample
        itself if `whole`; `now` in seconds of a monotonic clock.
        """

    @abstractmethod
    def event(self, event: Event) -> None:
        """Send an event."""

    def _farewell(self) -> Hello:
        return replace(self._hello, up=False, inventory={})


EARLY = 0.05
"""A sample is due up to this many seconds early."""


def publish_samples(config: Config, lease: Lease, publisher: Destination) -> None:
    """Read, judge and publish once a period until the lease ends."""
    # A simulated device goes when the agent starts again without it.
    seen = SeenDevices(
        publisher.boot, None if config.simulate else memory_of_this_boot(config.root)
    )
    judge = NodeJudge(config.expect, seen, config.heartbeat, brief=config.brief)
    reporter = Reporter(config.heartbeat)
    made = make_collectors(
        config.root, config.simulate, config.node, rdma_exclude=config.rdma_exclude
    )
    gpus = [one for one in made if isinstance(one, GpuCollector)]
    sampler = Sampler(made)

    # The first reading has no rates yet and is not sent, but its events are.
    first = sampler.take(limit=config.period * LATE_SHARE)
    publisher.describe(first.inventory)
    for event in first.events:
        publisher.event(event)
    past = tuple(first.events)
    _trim()

    due = time.monotonic() + _phase(config)
    next_sample = 0.0
    while not lease.wait(max(0.0, due - time.monotonic())):
        lag = time.monotonic() - due
        for one in gpus:
            one.released = not lease.gpus
        collected = sampler.take(limit=config.period * LATE_SHARE, lag=lag)
        publisher.describe(collected.inventory)
        for event in collected.events:
            publisher.event(event)

        report = judge.judge(collected.sample, (*past, *collected.events), publisher.inventory)
        past = ()
        now = time.monotonic()
        whole = lease.samples and now >= next_sample
        publisher.publish(reporter, replace(collected.sample, report=report), now, whole=whole)
        if whole:
            next_sample = now + config.sample_period - EARLY
        # Samples that were missed (the machine was suspended) are skipped.
        due += config.period * (1 + int((time.monotonic() - due) // config.period))


def _trim() -> None:
    """Return to the kernel the memory that compiling our own source took: a quarter of all."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)


def make_hello(config: Config, *, installed: bool = False) -> Hello:
    """The `Hello` of this node, with what is known before the first reading."""
    tree = Tree(config.root)
    boot = tree.maybe("proc/sys/kernel/random/boot_id") or os.urandom(8).hex()
    return Hello(
        node=config.node,
        up=True,
        at=time.time(),
        boot=clean_text(boot.replace("/", "")),
        agent=__version__,
        period=max(config.period, config.sample_period),
        inventory=describe_machine(tree),
        simulated=tuple(choose_simulated(config.simulate, config.node)),
        installed=installed,
        heartbeat=config.heartbeat,
    )


def _phase(config: Config) -> float:
    """Seconds until the first sample; differs by node, so that nodes started together do not
    send together. A command that runs only a moment waits for it, so there it is as soon as
    counters that tick a hundred times a second give rates.
    """
    if config.brief:
        return min(0.15, config.period / 2)
    share = zlib.crc32(config.node.encode()) % 1000 / 1000
    return min(0.25, config.period / 2) + share * min(config.period, 1.0)


def read_line(handle: int) -> bytes:
    """The first line of a file descriptor, without reading past it; raises
    AgentConfigError if it is too long.
    """
    parts: list[bytes] = []
    while len(parts) <= SIZE_LIMIT:
        part = os.read(handle, 1)
        if part in (b"", b"\n"):
            return b"".join(parts)
        parts.append(part)
    raise AgentConfigError(f"the configuration is longer than {SIZE_LIMIT} bytes")


def _refuse(why: str) -> int:
    return print_complaint(f"rankdeck-agent: {clean_text(why, 500)}", 2)


CONNECT_LIMIT = 5.0
LONGEST_WAIT = 10.0
"""Most seconds between two attempts to reach the broker."""
STEADY = 30.0
"""Seconds after which a connection counts as good: the next wait is short again."""
SUSPICIOUS = 4
"""Short connections in a row after which a second agent with the same client id is suspected."""
EVENTS_KEPT = 1000
"""Most messages that wait for a connection."""
GOODBYE_LIMIT = 2.0
_REFUSED = {
    "Bad user name or password": "refuses the user name or password",
    "Not authorized": "refuses the user name or password",
    "Client identifier not valid": "refuses the name of this client",
    "Server unavailable": "is not available now",
    "Unsupported protocol version": "does not speak MQTT 3.1.1, as agents do",
}


class Publisher(Destination):
    """Sends hello, health, samples and events of one node to the broker, and keeps the connection.

    paho's thread does the network; problems are printed to stderr, each once per
    outage. Raises ImportError without paho.
    """

    def __init__(self, config: Config, hello: Hello) -> None:
        super().__init__(hello)
        self._config = config
        self._complaints: set[str] = set()
        self._waits = 0
        self._short = 0
        """Connections in a row that ended at once."""
        self._since = 0.0
        self._refusal = ""
        self._connections = 0
        """How many connections there have been."""
        self._heard_on = 0
        """The number of the connection on which health was sent last."""
        self.client_id = f"rankdeck-{config.cluster}-{config.node}-{hello.boot[:8]}"
        self._client = client = _client(config, self.client_id)
        client.max_queued_messages_set(EVENTS_KEPT)
        client.will_set(self._topic("hello"), self._goodbye(), qos=1, retain=True)
        client.on_connect = self._on_connect
        client.on_connect_fail = self._on_connect_fail
        client.on_disconnect = self._on_disconnect

    def start(self) -> None:
        """Begin to connect, in paho's thread; returns at once."""
        self._client.connect_async(self._config.host, self._config.port, self._config.keepalive)
        self._client.loop_start()

    def announce(self) -> None:
        if self._client.is_connected():  # otherwise sent once connected
            self._send_hello()

    def publish(self, reporter: Reporter, judged: Sample, now: float, *, whole: bool) -> None:
        """Send what is due of a sample; without a connection, or behind a slow one, nothing.

        Of health the newest is sent later: a queue would send old ones later.
        """
        connection = self._connections
        if connection != self._heard_on:
            self._heard_on = connection
            reporter.forget()
        # Asked before the first of the two is handed over: paho's thread has that still to write.
        if not self._client.is_connected() or self._client.want_write():
            return
        due = reporter.due(judged.report, now) if judged.report else None
        if due is not None:
            self._client.publish(self._topic("health"), encode_message(due), qos=1, retain=True)
            reporter.sent(due, now)
        if whole:
            self._client.publish(self._topic("sample"), encode_message(judged), qos=0)

    def event(self, event: Event) -> None:
        """Send an event; without a connection it waits for one."""
        self._client.publish(self._topic("event"), encode_message(event), qos=1)

    def stop(self) -> None:
        """Send the goodbye, wait at most GOODBYE_LIMIT seconds for the
        broker to take it, and disconnect.
        """
        if not self._client.is_connected():
            return
        from paho.mqtt.enums import MQTTErrorCode

        message = self._client.publish(self._topic("hello"), self._goodbye(), qos=1, retain=True)
        if message.rc == MQTTErrorCode.MQTT_ERR_SUCCESS:
            message.wait_for_publish(GOODBYE_LIMIT)
        self._client.disconnect()
        self._client.loop_stop()

    def _send_hello(self) -> None:
        hello = replace(self._hello, at=time.time())
        self._client.publish(self._topic("hello"), encode_message(hello), qos=1, retain=True)

    def _goodbye(self) -> bytes:
        return encode_message(self._farewell())

    def _topic(self, kind: str) -> str:
        return message_topic(self._config.cluster, self._config.node, kind)

    def _on_connect(
        self,
        client: "Client",
        data: object,
        flags: "ConnectFlags",
        code: "ReasonCode",
        properties: "Optional[Properties]",
    ) -> None:
        if code.is_failure:
            self._refusal = _REFUSED.get(str(code), f"refuses us: {code}")
            return
        self._since = time.monotonic()
        self._connections += 1
        self._refusal = ""
        if self._complaints:
            self._complain("connected")
        self._send_hello()

    def _on_connect_fail(self, client: "Client", data: object) -> None:
        # paho passes no reason, but calls this while it handles the exception.
        self._short = 0
        error = sys.exc_info()[1]
        broken = self._config.tls and isinstance(error, ConnectionResetError)
        hint = ": does it speak TLS at this port?" if broken else ""
        self._complain(_unreached(error) + hint)
        self._wait_longer()

    def _on_disconnect(
        self,
        client: "Client",
        data: object,
        flags: "DisconnectFlags",
        code: "ReasonCode",
        properties: "Optional[Properties]",
    ) -> None:
        held = time.monotonic() - self._since if self._since else 0.0
        self._since = 0.0
        self._short += 1
        if held > STEADY:
            self._waits = self._short = 0
            self._complaints.clear()
        if self._refusal:
            self._complain(self._refusal)
        elif code.is_failure and not self._connections:
            self._complain(
                "does not answer as a broker does: is that the port of MQTT, with TLS or without"
                " as configured, and does it want no client certificate?"
            )
        elif code.is_failure and self._short >= SUSPICIOUS:
            twice = f"does another agent publish as {self.client_id}"
            refused = "does it refuse our messages (their size, its ACL)? Its log says which"
            self._complain(f"ends each connection at once: {twice}, or {refused}")
        elif code.is_failure:
            self._complain("has ended the connection; trying again")
        self._wait_longer()

    def _wait_longer(self) -> None:
        wait = min(LONGEST_WAIT, 0.5 * 2**self._waits) * random.uniform(0.5, 1.0)
        self._waits = min(self._waits + 1, 6)
        # Set each time: paho would double the wait without jitter, and all nodes would
        # come back to a restarted broker at the same moment.
        self._client.reconnect_delay_set(wait, LONGEST_WAIT)  # pyright: ignore[reportArgumentType]

    def _complain(self, what: str) -> None:
        if what in self._complaints:
            return
        self._complaints.add(what)
        where = f"broker {self._config.host}:{self._config.port}"
        print(f"rankdeck-agent: {clean_text(f'{where} {what}', 400)}", file=sys.stderr, flush=True)


class StdoutPublisher(Destination):
    """Writes hello, health, samples and events of one node as lines
    to stdout, which srun passes on.

    A message is compressed, encoded in base64 and cut into lines `{"beside": {"node": …, "kind": …,
    "of": 3, "part": 0, "data": …}}`: srun keeps lines of up to 1,024 bytes whole even if others
    write too. Raises BrokenPipeError when srun is gone.
    """

    _LONGEST = 700
    """Characters of `data` in one line."""

    def announce(self) -> None:
        self._say("hello", self._hello)

    def stop(self) -> None:
        self._say("hello", self._farewell())

    def publish(self, reporter: Reporter, judged: Sample, now: float, *, whole: bool) -> None:
        due = reporter.due(judged.report, now) if judged.report else None
        if due is not None:
            self._say("health", due)
            reporter.sent(due, now)
        if whole:
            self._say("sample", judged)

    def event(self, event: Event) -> None:
        self._say("event", event)

    def _say(self, kind: str, message: Message) -> None:
        data = base64.b64encode(zlib.compress(encode_message(message))).decode()
        parts = [data[at : at + self._LONGEST] for at in range(0, len(data), self._LONGEST)]
        head = {"node": self._hello.node, "kind": kind, "of": len(parts)}
        rows = ({**head, "part": number, "data": part} for number, part in enumerate(parts))
        sys.stdout.write("".join(json.dumps({"beside": row}) + "\n" for row in rows))
        sys.stdout.flush()


def forget_retained(config: Config) -> str:
    """Erase the hello and health that the broker retains of this node; "", or why it failed."""
    try:
        client = _client(config)
        client.connect(config.host, config.port, config.keepalive)
    except (OSError, ValueError) as error:
        return f"broker {config.host}:{config.port} {_unreached(error)}"

    client.loop_start()
    kept = (message_topic(config.cluster, config.node, kind) for kind in ("health", "hello"))
    messages = [client.publish(name, b"", qos=1, retain=True) for name in kept]
    for one in messages:
        one.wait_for_publish(GOODBYE_LIMIT)
    client.disconnect()
    client.loop_stop()
    return (
        "" if all(one.is_published() for one in messages) else "the broker did not take the message"
    )


def _unreached(error: Optional[BaseException]) -> str:
    """Why there is no connection, as the end of a sentence about the broker."""
    # Only certificate errors of `ssl`, which may not be loaded, have this attribute.
    verify = getattr(error, "verify_message", "")
    if verify:
        return f"shows a certificate that we do not accept: {verify}"
    return f"cannot be reached: {failure_reason(error)}" if error else "cannot be reached"


def _client(config: Config, client_id: str = "") -> "Client":
    """A client for the broker, not yet connected; raises OSError or ValueError
    if its certificates cannot be loaded.
    """
    with contextlib.ExitStack() as stack:
        if not config.tls:
            stack.enter_context(_without_openssl())
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

    client = Client(
        CallbackAPIVersion.VERSION2, client_id=client_id, protocol=MQTTProtocolVersion.MQTTv311
    )
    client.connect_timeout = CONNECT_LIMIT
    if config.username:
        client.username_pw_set(config.username, config.password)
    if config.tls:
        import ssl

        trusted = ssl.create_default_context(
            cafile=config.ca_file or None, cadata=config.ca or None
        )
        client.tls_set_context(trusted)  # pyright: ignore[reportUnknownMemberType]
    return client


@contextlib.contextmanager
def _without_openssl() -> Generator[None, None, None]:
    """Load paho without TLS, if TLS is not used: saves a fifth of the memory on every node."""
    hidden = [name for name in ("ssl", "_ssl", "_hashlib") if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # pyright: ignore[reportArgumentType, reportCallIssue]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
    _lend_errors()


def _lend_errors() -> None:
    """Define the errors of `ssl` that paho names in its `except` clauses even without TLS."""
    from paho.mqtt import client

    if getattr(client, "ssl", None) is None:
        names = ("SSLError", "SSLWantReadError", "SSLWantWriteError")
        errors = {name: type(name, (OSError,), {}) for name in names}
        setattr(client, "ssl", SimpleNamespace(**errors))  # noqa: B010 - not a name it declares
