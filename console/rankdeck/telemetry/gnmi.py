"""Counters of switch ports over gNMI (openconfig-interfaces), read by the console itself.

pygnmi supplies the protocol's messages. Its client is not used: it blocks, and it trusts
any certificate that a switch presents.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from importlib import import_module
from typing import Any, cast

from rankdeck.config.files import expand_path, read_regular
from rankdeck.errors import RankdeckError
from rankdeck.model.cluster import Cluster, Switch
from rankdeck.model.json_tables import parse_table
from rankdeck.model.safe_text import clean_line
from rankdeck.state.fleet import COUNTERS, Switches

log = logging.getLogger(__name__)
PERIOD_NS = 10_000_000_000
CONNECT_LIMIT = 10.0
SILENCE = 35.0
"""A stream without an update for this many seconds counts as dead."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
MESSAGE_LIMIT = 4 << 20
LARGEST = 1 << 64
NO_EXTRA = "switches need pygnmi: install `rankdeck[gnmi]`"
_ENCODINGS = (4, 0, 2)
"""Codes of JSON_IETF, JSON and PROTO, in order of preference."""
_SCALARS = ("uint_val", "int_val", "string_val", "ascii_val", "double_val", "float_val")
_JSON = ("json_ietf_val", "json_val")


class SwitchError(RankdeckError):
    """No counters from a switch; the text is why."""


class SwitchStream:
    """Reads one switch, over one connection at a time; raises SwitchError
    if the extra `gnmi` is not installed.
    """

    def __init__(self, switch: Switch) -> None:
        self._switch = switch
        try:
            self._grpc: Any = import_module("grpc")
            self._gnmi: Any = import_module("pygnmi.spec.v080.gnmi_pb2")
            self._stub: Any = import_module("pygnmi.spec.v080.gnmi_pb2_grpc").gNMIStub
        except ImportError as error:
            raise SwitchError(NO_EXTRA) from error

    async def updates(self) -> AsyncIterator[tuple[str, str, Any]]:
        """Yields `(port, leaf, value)`; the end of the stream always
        raises SwitchError, which says why.
        """
        login = (("username", self._switch.user), ("password", _password(self._switch)))
        metadata = login if self._switch.user else ()
        try:
            async with self._channel() as channel:
                stub = self._stub(channel)
                async with asyncio.timeout(CONNECT_LIMIT):
                    await channel.channel_ready()
                    able = await stub.Capabilities(
                        self._gnmi.CapabilityRequest(), metadata=metadata
                    )
                asked = self._request(_best(able.supported_encodings))
                call = stub.Subscribe(_once(asked), metadata=metadata)
                while (answer := await self._next(call)) is not None:
                    for update in self._read(answer):
                        yield update
        except TimeoutError as error:
            raise SwitchError("does not answer") from error
        except self._grpc.aio.AioRpcError as error:
            raise SwitchError(_why(error)) from error
        raise SwitchError("ended the stream")

    async def _next(self, call: Any) -> Any:  # noqa: ANN401 - grpc has no types
        async with asyncio.timeout(SILENCE):
            answer = await call.read()
        return None if answer is self._grpc.aio.EOF else answer

    def _channel(self) -> Any:  # noqa: ANN401 - grpc has no types
        host = self._switch.address or self._switch.name
        host = f"[{host}]" if ":" in host else host
        target = f"{host}:{self._switch.port}"
        options = (("grpc.max_receive_message_length", MESSAGE_LIMIT),)
        aio = self._grpc.aio
        if not self._switch.tls:
            return aio.insecure_channel(target, options=options)
        certificates = _certificates(self._switch)
        credentials = self._grpc.ssl_channel_credentials(certificates)
        return aio.secure_channel(target, credentials, options=options)

    def _request(self, encoding: int) -> Any:  # noqa: ANN401 - grpc has no types
        gnmi = self._gnmi
        asked = [
            gnmi.Subscription(path=self._path(port, leaf), mode=2, sample_interval=PERIOD_NS)
            for port in self._switch.ports
            for leaf in ("oper-status", "counters")
        ]
        many = gnmi.SubscriptionList(subscription=asked, mode=0, encoding=encoding)
        return gnmi.SubscribeRequest(subscribe=many)

    def _path(self, port: str, leaf: str) -> Any:  # noqa: ANN401 - grpc has no types
        elem = self._gnmi.PathElem
        names = (
            elem(name="interfaces"),
            elem(name="interface", key={"name": port}),
            elem(name="state"),
            elem(name=leaf),
        )
        return self._gnmi.Path(elem=names)

    def _read(self, answer: Any) -> Iterator[tuple[str, str, Any]]:  # noqa: ANN401 - grpc has no types
        prefix = tuple(answer.update.prefix.elem)
        for update in answer.update.update:
            path = (*prefix, *update.path.elem)
            port = next((e.key["name"] for e in path if "name" in e.key), "")
            leaf = _bare(path[-1].name) if path else ""
            for name, value in _leaves(leaf, _value(update.val)):
                yield port, name, value


async def collect_switches(cluster: Cluster, switches: Switches) -> None:
    """Follow every switch of the cluster until cancelled; errors
    are stored in `switches.troubles`.
    """
    async with asyncio.TaskGroup() as tasks:
        for switch in cluster.switches:
            tasks.create_task(_follow(switch, switches), name=f"gnmi {switch.name}")


async def _follow(switch: Switch, switches: Switches) -> None:
    wait = FIRST_WAIT
    while True:
        try:
            async for port, leaf, value in SwitchStream(switch).updates():
                wait = FIRST_WAIT
                take_leaf(switches, switch.name, port, leaf, value)
        except SwitchError as error:
            why = f"switch {switch.name}: {error}"
            if switches.troubles.get(switch.name) != why:
                log.warning("%s", why, extra={"source": switch.name})
            switches.troubles[switch.name] = why
        await asyncio.sleep(wait)
        wait = min(wait * 2, LONGEST_WAIT)


def take_leaf(switches: Switches, switch: str, port: str, leaf: str, value: object) -> None:
    """Apply one leaf; only `oper-status` and COUNTERS are used."""
    if leaf == "oper-status":
        switches.apply(switch, port, _bare(str(value)).upper() == "UP", {})
    elif leaf in COUNTERS and (number := _count(value)) is not None:
        switches.apply(switch, port, None, {leaf: number})


def _count(value: object) -> int | None:
    """The value of a counter, None if invalid; some switches send 64-bit numbers as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value) if len(value) <= 20 else -1
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value <= LARGEST else None  # pyright: ignore[reportReturnType, reportOperatorIssue]


def _leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    """(name, value) of a leaf, or of all leaves of a JSON object."""
    if not isinstance(value, dict):
        yield name, value
        return
    for key, inner in cast("Mapping[str, object]", value).items():
        yield from _leaves(_bare(key), inner)


def _value(typed: Any) -> object:  # noqa: ANN401 - grpc has no types
    kind = typed.WhichOneof("value")
    if kind in _JSON:
        # The value may be any JSON. Wrapped in an object, it is checked for
        # depth and numbers by `parse_table`.
        found = parse_table(b'{"":%b}' % getattr(typed, kind))
        return found[""] if found else None
    return getattr(typed, kind) if kind in _SCALARS else None


def _bare(name: str) -> str:
    """The name without its module prefix (`openconfig-interfaces:counters`)."""
    return name.rpartition(":")[2]


def _best(supported: Any) -> int:  # noqa: ANN401 - grpc has no types
    return next((code for code in _ENCODINGS if code in supported), 0)


async def _once(request: object) -> AsyncIterator[object]:
    yield request


def _password(switch: Switch) -> str:
    if not switch.password_env:
        return ""
    found = os.environ.get(switch.password_env)
    if found is None:
        raise SwitchError(f"the environment has no {switch.password_env}, which holds its password")
    return found


def _certificates(switch: Switch) -> bytes | None:
    if not switch.ca_file:
        return None
    try:
        return read_regular(expand_path(switch.ca_file))
    except OSError as error:
        raise SwitchError(f"cannot read {switch.ca_file}: {error.strerror or error}") from error


def _why(error: Any) -> str:  # noqa: ANN401 - grpc has no types
    """The error of a switch in words that follow its name."""
    known = {
        "UNAUTHENTICATED": "refuses the user name or password",
        "PERMISSION_DENIED": "does not allow this user to read counters",
        "UNIMPLEMENTED": "does not offer gNMI subscriptions",
        "UNAVAILABLE": "cannot be reached",
    }
    name = error.code().name
    return known.get(name) or clean_line(f"{name}: {error.details()}", 200)
