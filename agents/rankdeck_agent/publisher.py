"""The MQTT client of the agent: connects, sets the last will, publishes, reconnects."""

import random
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Optional

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessageInfo
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from rankdeck_agent.config import Config
from rankdeck_agent.files import clean, reason
from rankdeck_agent.node_judge import Reporter
from rankdeck_agent.wire import Event, HealthReport, Hello, Sample, encode, topic

CONNECT_LIMIT = 5.0
LONGEST_WAIT = 10.0
"""Seconds between two tries to reach the broker, at most."""
STEADY = 30.0
"""A connection that held this long was a good one: the next wait is short again."""
SUSPICIOUS = 4
"""Short connections in a row after which we suspect a double of ours."""
EVENTS_KEPT = 1000
GOODBYE_LIMIT = 2.0
_REFUSED = {
    "Bad user name or password": "refuses the user name or password",
    "Not authorized": "refuses the user name or password",
    "Client identifier not valid": "refuses the name of this client",
    "Server unavailable": "is not available now",
}


class Publisher:
    """Sends hello, health, samples and events of one node, and keeps the connection.

    paho's thread does the network; complaints go to stderr once per outage.
    """

    def __init__(self, config: Config, hello: Hello) -> None:
        self._config = config
        self._hello = hello
        self._machine = hello.inventory
        self._said: set[str] = set()
        self._waits = 0
        self._short = 0
        """Connections in a row that ended at once."""
        self._since = 0.0
        self._refusal = ""
        self._connections = 0
        """How often we were connected."""
        self._heard_on = 0
        """The connection on which the health was said."""
        self.dropped = 0
        self.client_id = f"rankdeck-{config.cluster}-{config.node}-{hello.boot[:8]}"
        self._client = self._make()

    def _make(self) -> Client:
        config = self._config
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=self.client_id,
            protocol=MQTTProtocolVersion.MQTTv311,
        )
        client.connect_timeout = CONNECT_LIMIT
        client.max_queued_messages_set(EVENTS_KEPT)
        if config.username:
            client.username_pw_set(config.username, config.password)
        if config.tls:
            client.tls_set_context(_tls(config))  # pyright: ignore[reportUnknownMemberType]
        client.will_set(self._topic("hello"), self._goodbye(), qos=1, retain=True)
        client.on_connect = self._on_connect
        client.on_connect_fail = self._on_connect_fail
        client.on_disconnect = self._on_disconnect
        return client

    def start(self) -> None:
        """Begin to connect, in a thread of its own."""
        self._client.connect_async(self._config.host, self._config.port, self._config.keepalive)
        self._client.loop_start()

    @property
    def boot(self) -> str:
        """The boot that this agent runs in."""
        return self._hello.boot

    @property
    def inventory(self) -> Mapping[str, str]:
        """What this node is made of, as announced."""
        return self._hello.inventory

    def describe(self, inventory: Mapping[str, str]) -> None:
        """Announce what this node is made of beside the machine itself, if that is news."""
        known = {**self._machine, **inventory}
        if known != self._hello.inventory:
            self._hello = replace(self._hello, inventory=known)
            if self._client.is_connected():
                self._send_hello()

    def health(self, reporter: Reporter, report: HealthReport, now: float) -> None:
        """Say the health where that is due; without a connection, or behind a slow one, it waits.

        Only the newest is ever said: what a queue would send later was true once.
        """
        connection = self._connections
        if connection != self._heard_on:
            self._heard_on = connection
            reporter.forget()
        if not self._client.is_connected() or self._client.want_write():
            return
        told = reporter.due(report, now)
        if told is not None:
            self._client.publish(self._topic("health"), encode(told), qos=1, retain=True)
            reporter.said(told, now)

    def sample(self, sample: Sample) -> None:
        """Send a sample; without a connection, or behind a slow one, it is dropped."""
        if not self._client.is_connected() or self._client.want_write():
            self.dropped += 1
            return
        self._client.publish(self._topic("sample"), encode(sample), qos=0)

    def event(self, event: Event) -> None:
        """Send an event; without a connection it waits for one."""
        self._client.publish(self._topic("event"), encode(event), qos=1)

    def stop(self) -> None:
        """Say goodbye, and wait a little until the broker has it."""
        if not self._client.is_connected():
            return
        said = self._client.publish(self._topic("hello"), self._goodbye(), qos=1, retain=True)
        _wait(said, GOODBYE_LIMIT)
        self._client.disconnect()
        self._client.loop_stop()

    def _send_hello(self) -> None:
        hello = replace(self._hello, at=time.time())
        self._client.publish(self._topic("hello"), encode(hello), qos=1, retain=True)

    def _goodbye(self) -> bytes:
        return encode(replace(self._hello, up=False, inventory={}))

    def _topic(self, kind: str) -> str:
        return topic(self._config.cluster, self._config.node, kind)

    def _on_connect(
        self,
        client: Client,
        data: object,
        flags: ConnectFlags,
        code: ReasonCode,
        properties: Optional[Properties],
    ) -> None:
        if code.is_failure:
            self._refusal = _REFUSED.get(str(code), f"refuses us: {code}")
            return
        self._since = time.monotonic()
        self._connections += 1
        self._refusal = ""
        if self._said:
            self._complain("connected")
        self._send_hello()

    def _on_connect_fail(self, client: Client, data: object) -> None:
        # paho hands over no reason, but calls this while it handles the error.
        self._short = 0
        error = sys.exc_info()[1]
        self._complain(_unreached(error))
        self._wait_longer()

    def _on_disconnect(
        self,
        client: Client,
        data: object,
        flags: DisconnectFlags,
        code: ReasonCode,
        properties: Optional[Properties],
    ) -> None:
        held = time.monotonic() - self._since if self._since else 0.0
        self._since = 0.0
        self._short += 1
        if held > STEADY:
            self._waits = self._short = 0
            self._said.clear()
        if self._refusal:
            self._complain(self._refusal)
        elif code.is_failure:
            self._complain(_lost(self._short, self.client_id))
        self._wait_longer()

    def _wait_longer(self) -> None:
        wait = min(LONGEST_WAIT, 0.5 * 2**self._waits) * random.uniform(0.5, 1.0)
        self._waits = min(self._waits + 1, 6)
        # Set anew each time: paho alone would double it without jitter, so that all nodes
        # come back to a restarted broker at the same instant.
        self._client.reconnect_delay_set(wait, LONGEST_WAIT)  # pyright: ignore[reportArgumentType]

    def _complain(self, what: str) -> None:
        if what in self._said:
            return
        self._said.add(what)
        where = f"broker {self._config.host}:{self._config.port}"
        print(
            f"rankdeck-agent: {clean(f'{where} {what}', 400)}",
            file=sys.stderr,
            flush=True,
        )


def forget(config: Config) -> str:
    """Erase what the broker keeps of this node; why not, or ""."""
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv311)
    client.connect_timeout = CONNECT_LIMIT
    if config.username:
        client.username_pw_set(config.username, config.password)
    try:
        if config.tls:
            client.tls_set_context(_tls(config))  # pyright: ignore[reportUnknownMemberType]
        client.connect(config.host, config.port, config.keepalive)
    except (OSError, ValueError) as error:
        return f"broker {config.host}:{config.port} {_unreached(error)}"
    client.loop_start()
    kept = (topic(config.cluster, config.node, kind) for kind in ("health", "hello"))
    said = [client.publish(name, b"", qos=1, retain=True) for name in kept]
    for one in said:
        one.wait_for_publish(GOODBYE_LIMIT)
    client.disconnect()
    client.loop_stop()
    return "" if all(one.is_published() for one in said) else "the broker did not take the message"


def _unreached(error: Optional[BaseException]) -> str:
    """Why there is no connection, in words that say whose fault it is."""
    # Only with TLS is there such a class, and then paho has loaded it.
    verify = getattr(error, "verify_message", "")
    if verify:
        return f"shows a certificate that we do not accept: {verify}"
    return f"cannot be reached: {reason(error)}" if error else "cannot be reached"


def _lost(short: int, client_id: str) -> str:
    if short >= SUSPICIOUS:
        return f"ends each connection at once; does another agent publish as {client_id}?"
    return "has ended the connection; trying again"


def _wait(info: MQTTMessageInfo, limit: float) -> None:
    if info.rc == MQTTErrorCode.MQTT_ERR_SUCCESS:
        info.wait_for_publish(limit)


def _tls(config: Config) -> object:
    import ssl

    return ssl.create_default_context(cafile=config.ca_file or None, cadata=config.ca or None)
