"""Counters of switch ports over gNMI (openconfig-interfaces), read by the console itself.

pygnmi supplies the protocol's messages. Its client is not used: it blocks, and it trusts
any certificate that a switch presents.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import product
from typing import Any, NamedTuple, cast

from rankdeck.config.files import expand_path, read_regular
from rankdeck.errors import RankdeckError
from rankdeck.model.cluster import Cluster, Switch
from rankdeck.model.json_tables import parse_table
from rankdeck.model.safe_text import clean_line
from rankdeck.state.fleet import COUNTERS, Switches
from rankdeck.telemetry.switch_probe import find_obstacle

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
_OWN_NAMES = "`ports` has the switch's own names, as its interface list shows them"
_MODEL = "openconfig"
_PREFIXES = ((_MODEL, True), ("", True), ("", False))
"""Origin of the paths, and whether a target is named. Switches differ in what they
insist on and in what they refuse.
"""
_REFUSALS = ("INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED", "UNKNOWN")
"""Answers to a request of which another form may be taken."""


class SwitchError(RankdeckError):
    """No counters from a switch; the text is why."""


class RequestForm(NamedTuple):
    """One of the forms in which the same counters can be asked for."""

    encoding: int
    origin: str
    names_target: bool


class SwitchStream:
    """Reads one switch, over one connection at a time; raises SwitchError
    if the extra `gnmi` is not installed.
    """

    def __init__(self, switch: Switch) -> None:
        self._switch = switch
        self._turn = 0
        """Which form of the request is sent next; grows when a form turns out not to work."""
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
        certificates = _certificates(self._switch)
        connected = False
        try:
            async with self._channel(certificates) as channel:
                stub = self._stub(channel)
                able = await stub.Capabilities(
                    self._gnmi.CapabilityRequest(), metadata=metadata, timeout=CONNECT_LIMIT
                )
                connected = True
                forms = _request_forms(able.supported_encodings)
                async for answer in self._answers(stub, forms, metadata):
                    for update in self._read(answer):
                        yield update
        except self._grpc.aio.AioRpcError as error:
            obstacle = ""
            if error.code().name in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
                obstacle = await find_obstacle(self._switch, certificates)
            raise SwitchError(obstacle or _why(error, connected=connected)) from error
        raise SwitchError("ended the stream")

    async def _answers(
        self,
        stub: Any,  # noqa: ANN401 - grpc has no types
        forms: Sequence[RequestForm],
        metadata: object,
    ) -> AsyncIterator[Any]:
        """What the switch sends, asked in the first form that it takes."""
        refusals: list[Exception] = []
        while len(refusals) < len(forms):
            form = forms[self._turn % len(forms)]
            call = stub.Subscribe(_once(self._request(form)), metadata=metadata)
            heard = complete = False
            try:
                while (answer := await self._next(call)) is not None:
                    heard = heard or bool(answer.update.update)
                    complete = complete or answer.sync_response
                    yield answer
            except TimeoutError as error:
                raise self._silence(heard=heard, complete=complete) from error
            except self._grpc.aio.AioRpcError as error:
                if heard or error.code().name not in _REFUSALS:
                    raise
                refusals.append(error)
                self._turn += 1
            else:
                return
        raise refusals[0]

    def _silence(self, *, heard: bool, complete: bool) -> SwitchError:
        """What a silent stream means; `complete`: the switch said that it had sent all there is."""
        if heard:
            return SwitchError("sends nothing")
        # Some switches take an encoding and then send nothing in it.
        self._turn += len(_PREFIXES)
        if not complete:
            return SwitchError("sends nothing")
        ports = clean_line(", ".join(self._switch.ports), 120)
        return SwitchError(f"has no port named {ports}; {_OWN_NAMES}")

    async def _next(self, call: Any) -> Any:  # noqa: ANN401 - grpc has no types
        async with asyncio.timeout(SILENCE):
            answer = await call.read()
        return None if answer is self._grpc.aio.EOF else answer

    def _channel(self, certificates: bytes | None) -> Any:  # noqa: ANN401 - grpc has no types
        host = self._switch.host
        host = f"[{host}]" if ":" in host else host
        target = f"{host}:{self._switch.port}"
        options = (("grpc.max_receive_message_length", MESSAGE_LIMIT),)
        aio = self._grpc.aio
        if not self._switch.tls:
            return aio.insecure_channel(target, options=options)
        credentials = self._grpc.ssl_channel_credentials(certificates)
        return aio.secure_channel(target, credentials, options=options)

    def _request(self, form: RequestForm) -> Any:  # noqa: ANN401 - grpc has no types
        gnmi = self._gnmi
        asked = [
            gnmi.Subscription(path=self._path(port, leaf), mode=2, sample_interval=PERIOD_NS)
            for port in self._switch.ports
            for leaf in ("oper-status", "counters")
        ]
        target = self._switch.name if form.names_target else ""
        prefix = gnmi.Path(origin=form.origin, target=target)
        many = gnmi.SubscriptionList(
            subscription=asked, mode=0, encoding=form.encoding, prefix=prefix
        )
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
            names = tuple(_bare(e.name) for e in path)
            for found, where, value in _leaves(port, names, _value(update.val)):
                if leaf := _leaf_of_port(where):
                    yield found, leaf, value


async def collect_switches(cluster: Cluster, switches: Switches) -> None:
    """Follow every switch of the cluster until cancelled; errors
    are stored in `switches.troubles`.
    """
    async with asyncio.TaskGroup() as tasks:
        for switch in cluster.switches:
            tasks.create_task(_follow(switch, switches), name=f"gnmi {switch.name}")


async def _follow(switch: Switch, switches: Switches) -> None:
    wait = FIRST_WAIT
    stream: SwitchStream | None = None
    unheard = _Unheard(switch)
    while True:
        try:
            stream = stream or SwitchStream(switch)
            async for port, leaf, value in stream.updates():
                wait = FIRST_WAIT
                take_leaf(switches, switch.name, port, leaf, value)
                unheard.hear(port)
        except SwitchError as error:
            why = f"switch {switch.name}: {error}"
            if switches.troubles.get(switch.name) != why:
                log.warning("%s", why, extra={"source": switch.name})
            switches.troubles[switch.name] = why
        await asyncio.sleep(wait)
        wait = min(wait * 2, LONGEST_WAIT)


class _Unheard:
    """Names the ports of which a switch sends nothing while it sends others; once."""

    def __init__(self, switch: Switch) -> None:
        self._name = switch.name
        self._ports = set(switch.ports)
        self._begin: float | None = None

    def hear(self, port: str) -> None:
        """A number of this port came."""
        self._ports.discard(port)
        now = asyncio.get_running_loop().time()
        self._begin = now if self._begin is None else self._begin
        if self._ports and now - self._begin > SILENCE:
            text = "switch %s: sends nothing of port %s; %s"
            ports = clean_line(", ".join(sorted(self._ports)), 120)
            log.warning(text, self._name, ports, _OWN_NAMES, extra={"source": self._name})
            self._ports.clear()


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


def _leaves(
    port: str, names: tuple[str, ...], value: object
) -> Iterator[tuple[str, tuple[str, ...], object]]:
    """(port, names of its path, value) of a leaf, or of all leaves of a JSON value."""
    if isinstance(value, dict):
        for key, inner in cast("Mapping[str, object]", value).items():
            name = _bare(key)
            # Some switches name the last part of the path once more in the value.
            path = names if names[-1:] == (name,) else (*names, name)
            yield from _leaves(port, path, inner)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _leaves(_name_of(item) or port, names, item)
    else:
        yield port, names, value


def _name_of(item: object) -> str:
    """The key `name` of an entry of a list, "" if it has none."""
    if not isinstance(item, dict):
        return ""
    table = cast("Mapping[str, object]", item)
    return next((v for k, v in table.items() if _bare(k) == "name" and isinstance(v, str)), "")


def _leaf_of_port(names: tuple[str, ...]) -> str:
    """The last name, if the path leads to a state or counter of a whole port; else "".

    Parts of a port (`subinterface`) have counters of the same names.
    """
    at = names.index("interface") + 1 if "interface" in names else len(names)
    match names[at:]:
        case ("state", "oper-status" as leaf) | ("state", "counters", leaf):
            return leaf
        case _:
            return ""


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


def _request_forms(supported: Iterable[int]) -> tuple[RequestForm, ...]:
    """The forms to try, in this order; raises SwitchError if there is no common encoding."""
    offered = frozenset(supported)
    encodings = [code for code in _ENCODINGS if code in offered or not offered]
    if not encodings:
        raise SwitchError("offers none of the encodings JSON_IETF, JSON and PROTO")
    return tuple(RequestForm(code, *prefix) for code, prefix in product(encodings, _PREFIXES))


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
    if not switch.ca_file or not switch.tls:
        return None
    try:
        return read_regular(expand_path(switch.ca_file))
    except OSError as error:
        raise SwitchError(f"cannot read {switch.ca_file}: {error.strerror or error}") from error


def _why(error: Any, *, connected: bool) -> str:  # noqa: ANN401 - grpc has no types
    """The error of a switch in words that follow its name."""
    name = error.code().name
    said = clean_line(error.details() or name, 200)
    if not connected and name in _NOT_CONNECTED:
        return f"{_NOT_CONNECTED[name]}: {said}"
    known = {
        "UNAUTHENTICATED": "refuses the user name or password",
        "PERMISSION_DENIED": "does not allow this user to read counters",
        "UNAVAILABLE": "ended the stream",
        **dict.fromkeys(_REFUSALS, f"refuses to send openconfig-interfaces: {said}"),
    }
    return known.get(name, f"{name}: {said}")


_NOT_CONNECTED = {
    "UNIMPLEMENTED": "does not offer gNMI",
    "UNAVAILABLE": "takes connections on this port, but speaks no gNMI with us",
    "DEADLINE_EXCEEDED": "takes connections on this port, but gives no answer",
}
"""Error before the first answer -> what it means where a plain connection has no obstacle."""
