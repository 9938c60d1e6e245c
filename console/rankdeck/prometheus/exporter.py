"""Serves the numbers of a fleet to Prometheus, on a small HTTP server with strict limits."""

import asyncio
import gzip
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qs

from rankdeck.errors import RankdeckError
from rankdeck.model.cluster import Cluster
from rankdeck.prometheus.names import (
    BEFORE_HOPPER,
    INTEGRALS,
    MADE,
    MIB,
    NEEDS_DCGM,
    NOT_READ,
    OURS,
    THEIRS,
    Integral,
    Series,
    escaped,
    labels_text,
    of_counter,
)
from rankdeck.state.fleet import Fleet, Switches, SwitchPort
from rankdeck.state.node import NodeState
from rankdeck_agent.wire import METRICS

Number = int | float
Labels = Mapping[str, str]
TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass(slots=True)
class Family:
    """A metric family: all series with the same name."""

    name: str
    kind: str
    help: str
    series: dict[str, Number] = field(default_factory=dict[str, Number])
    """Labels as text -> value."""


class Families:
    """Collects series by name; of two series with the same labels the first stays."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def put(self, family: tuple[str, str, str], labels: Labels, value: Number) -> None:
        """Add one series; `family` is name, kind (gauge, counter, untyped) and help."""
        name, kind, text = family
        kept = self._families.setdefault(name, Family(name, kind, text))
        kept.series.setdefault(labels_text(labels), value)

    def text(self) -> str:
        """The classic text format, which every Prometheus reads."""
        return "".join(line for f in self._sorted() for line in _as_text(f))

    def openmetrics(self) -> str:
        """The same in OpenMetrics 1.0."""
        lines = [line for f in self._sorted() for line in _as_openmetrics(f)]
        return "".join(lines) + "# EOF\n"

    def _sorted(self) -> list[Family]:
        return sorted(self._families.values(), key=lambda family: family.name)


def _as_text(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {escaped(family.help)}\n"
    yield f"# TYPE {family.name} {family.kind}\n"
    yield from _samples(family)


def _as_openmetrics(family: Family) -> Iterator[str]:
    kind, name = family.kind, family.name
    if kind == "counter" and name.endswith("_total"):
        name = name.removesuffix("_total")
    elif kind != "gauge":
        # A counter of another exporter whose name OpenMetrics does not allow for counters.
        kind = "unknown"
    yield f"# HELP {name} {escaped(family.help, quotes=True)}\n"
    yield f"# TYPE {name} {kind}\n"
    yield from _samples(family)


def _samples(family: Family) -> Iterator[str]:
    for labels, value in family.series.items():
        yield f"{family.name}{labels} {value!r}\n"


Kinds = Collection[str]
"""Kinds of series: the first part of metrics, and `health`, `node` (versions, models), `switch`."""
EVERYTHING: Kinds = frozenset(
    {name.partition(".")[0] for name in METRICS} | {"health", "node", "switch"}
)
COLLECTORS: Mapping[str, frozenset[str]] = {
    **{kind: frozenset({kind}) for kind in EVERYTHING},
    "meminfo": frozenset({"mem"}),
    "vmstat": frozenset({"mem"}),
    "loadavg": frozenset({"cpu"}),
    "netdev": frozenset({"net"}),
    "netclass": frozenset({"net"}),
    "diskstats": frozenset({"disk"}),
    "filesystem": frozenset({"disk"}),
    "mdadm": frozenset({"md"}),
    "infiniband": frozenset({"rdma"}),
    "pressure": frozenset({"psi"}),
    "hwmon": frozenset({"hwmon", "sensor", "node"}),
    "uname": frozenset({"node"}),
}
"""What `collect[]` may name -> kinds; beside ours the names of node_exporter's collectors."""
AT_A_TIME = 0.005
"""Seconds for which series are gathered before other tasks run."""
LONGEST_STEP = 600.0
"""If samples are further apart than this many seconds, a clock was set: the time between them is not counted."""
_CHECK = ("rankdeck_check", "gauge", "a check that fired: 1 unknown, 2 warn, 3 bad")
_NODE = {
    "up": ("rankdeck_node_up", "gauge", "1 while the node sends samples"),
    "health": ("rankdeck_node_health", "gauge", "0 ok, 1 unknown, 2 warn, 3 bad"),
    "evaluated": ("rankdeck_checks_evaluated", "gauge", "checks that could be judged"),
    "checks": ("rankdeck_checks", "gauge", "checks there are"),
    "age": ("rankdeck_sample_age_seconds", "gauge", "since the last sample came in"),
    "failed": ("rankdeck_read_failed", "gauge", "1 for each metric that could not be read"),
    "info": ("rankdeck_agent_info", "gauge", "version of the agent"),
    "uname": ("node_uname_info", "gauge", "system of the node"),
    "hca": ("node_infiniband_info", "gauge", "model and firmware of an RDMA device"),
    "device_error": (
        "node_filesystem_device_error",
        "gauge",
        "1 where the mount could not be asked",
    ),
    "nvme": ("node_nvme_info", "gauge", "model, firmware and state of an NVMe controller"),
    "chip": ("node_hwmon_chip_names", "gauge", "the kernel's name of a chip with sensors"),
    "not_read": (
        "rankdeck_dcgm_not_read",
        "gauge",
        "1 for a field of dcgm-exporter that is not offered",
    ),
    "expected": ("rankdeck_devices_expected", "gauge", "devices that the cluster file names"),
    "present": ("rankdeck_devices_present", "gauge", "devices that the node reports"),
}
_SWITCH_UP = ("rankdeck_switch_port_up", "gauge", "1 while the switch says UP")
_SWITCH = {
    "octets": ("rankdeck_switch_port_bytes_total", "counter", "bytes through the port"),
    "pkts": ("rankdeck_switch_port_packets_total", "counter", "packets through the port"),
    "errors": ("rankdeck_switch_port_errors_total", "counter", "packets with an error"),
    "discards": ("rankdeck_switch_port_discards_total", "counter", "packets dropped"),
    "fcs-errors": (
        "rankdeck_switch_port_fcs_errors_total",
        "counter",
        "frames with a wrong checksum",
    ),
}
_OTHERS = re.compile(r"amd|radeon|instinct|^card|intel|^xe", re.IGNORECASE)
_INSTANCE = re.compile(r"\d+:\d+")
_PAIRS: Mapping[str, tuple[str, str]] = {
    **{m: ("chip", "sensor") for m in METRICS if m.startswith("sensor.")},
    **{m: ("device", "priority") for m in METRICS if m.startswith("net.prio_")},
}
"""Metric -> names of the two labels for its device `A/B`."""
_COUNTED = {"gpu": "gpu.mem_total", "rdma": "rdma.up"}
"""Kind of device -> a metric that every such device has."""


class Exporter:
    """Renders the fleet as metric families; integrates percentages to counters of seconds.

    Simulated numbers are included only if `simulated`.
    """

    def __init__(
        self,
        cluster: Cluster,
        fleet: Fleet,
        *,
        switches: Switches | None = None,
        simulated: bool = False,
    ) -> None:
        self._switches = switches
        self._cluster, self._fleet, self._simulated = cluster, fleet, simulated
        self._seconds: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
        """(node, metric) -> device -> (seconds counted, remaining seconds)."""
        self._at: dict[str, float] = {}
        self._changes = fleet.follow()

    def look(self) -> None:
        """Integrate the percentages that changed since the last call. Call it several times a second."""
        for name in self._changes.take():
            self._add(self._fleet.node(name))

    def _add(self, node: NodeState) -> None:
        step = node.at - self._at.get(node.name, node.at)
        self._at[node.name] = node.at
        if not 0 < step <= LONGEST_STEP:
            return
        for integral in INTEGRALS:
            key = node.name, integral.metric
            before, now = self._seconds.get(key, {}), node.values.get(integral.metric)
            if now is not None:
                self._seconds[key] = {
                    device: _further(before.get(device, (0.0, 0.0)), percent, step)
                    for device, percent in now.items()
                }

    async def families(self, kinds: Kinds = EVERYTHING) -> Families:
        """The families of these kinds with their numbers now; other tasks run between the nodes."""
        families = Families()
        until = time.perf_counter() + AT_A_TIME
        for node in tuple(self._fleet.nodes()):
            self._node(families, node, kinds)
            if time.perf_counter() > until:
                await asyncio.sleep(0)
                until = time.perf_counter() + AT_A_TIME
        if "switch" in kinds and self._switches:
            for port in self._switches.ports():
                _switch_port(families, port, self._cluster.name)
        return families

    def _node(self, families: Families, node: NodeState, kinds: Kinds) -> None:
        at = {"instance": node.name, "cluster": self._cluster.name}
        families.put(_NODE["up"], at, 0 if node.silent else 1)
        if "health" in kinds:
            _judgement(families, node, at)
        if "node" in kinds:
            _inventory(families, node, at)
        if node.silent:
            # A silent node has no current numbers, so their series end.
            return
        if "health" in kinds:
            self._counts(families, node, at)
            _failures(families, node, at)
        if "gpu" in kinds and self._mark(node, "gpu.") == {"simulated": ""}:
            _not_read(families, node, at)
        for metric in node.values:
            if metric.partition(".")[0] in kinds and (mark := self._mark(node, metric)):
                self._metric(families, node, metric, {**at, **mark})

    def _mark(self, node: NodeState, metric: str) -> Labels | None:
        """The label `simulated` of a metric; None: the metric is simulated and must not be exported."""
        if metric.partition(".")[0] not in node.simulated:
            return {"simulated": ""}
        return {"simulated": "1"} if self._simulated else None

    def _metric(self, families: Families, node: NodeState, metric: str, at: Labels) -> None:
        common = {key: value for key, value in at.items() if value}
        for device, value in node.values[metric].items():
            labels = {**common, **_labels(node, metric, device)}
            if series := _series(node, metric, device):
                target = (series.name, series.kind, series.help)
                families.put(target, labels, series.convert(value))
            if metric == "disk.used":
                families.put(_NODE["device_error"], labels, 0)
            for name, number in _of_dcgm(node, metric, device):
                families.put(MADE[name], labels, number)
        for integral in INTEGRALS:
            if integral.metric == metric:
                self._integral(families, node, integral, common)

    def _integral(
        self, families: Families, node: NodeState, integral: Integral, common: Labels
    ) -> None:
        target = (integral.name, "counter", integral.help)
        counted = self._seconds.get((node.name, integral.metric), {})
        for device, (used, rest) in counted.items():
            labels = {**common, **({"cpu": device} if device else {})}
            if not integral.mode:
                families.put(target, labels, used)
                continue
            families.put(target, {**labels, "mode": integral.mode}, used)
            families.put(target, {**labels, "mode": integral.rest}, rest)

    def _counts(self, families: Families, node: NodeState, at: Labels) -> None:
        wanted = self._cluster.node(node.name)
        for kind, count in (("gpu", wanted.gpus), ("rdma", wanted.rdma)):
            if count and self._mark(node, f"{kind}.") is not None:
                labels = {**at, "kind": kind}
                families.put(_NODE["expected"], labels, count)
                there = len(node.devices(_COUNTED[kind]))
                families.put(_NODE["present"], labels, there)


def _of_dcgm(node: NodeState, metric: str, device: str) -> Iterator[tuple[str, Number]]:
    """(key in MADE, value) of metrics of dcgm-exporter that are made from several of ours."""
    if metric not in ("gpu.mem_used", "gpu.nvlink_tx") or _is_other(node, device):
        return
    value = node.values[metric][device]
    total, received = node.value("gpu.mem_total", device), node.value("gpu.nvlink_rx", device)
    if metric == "gpu.mem_used" and total:
        yield "fb_free", (total - value - (node.value("gpu.mem_reserved", device) or 0)) / MIB
    if metric == "gpu.nvlink_tx" and received is not None:
        yield "nvlink", (value + received) / 1e6


def _further(before: tuple[float, float], percent: float, step: float) -> tuple[float, float]:
    share = min(100.0, max(0.0, percent)) / 100
    return before[0] + share * step, before[1] + (1 - share) * step


def _judgement(families: Families, node: NodeState, at: Labels) -> None:
    health, heard = node.health, node.heard_s()
    families.put(_NODE["health"], at, int(health.level))
    families.put(_NODE["evaluated"], at, health.evaluated)
    families.put(_NODE["checks"], at, health.checks)
    if heard is not None:
        families.put(_NODE["age"], at, round(heard, 3))
    for reason in health.reasons:
        labels = {**at, "check": reason.check, "device": reason.device}
        families.put(_CHECK, labels, int(reason.level))


def _inventory(families: Families, node: NodeState, at: Labels) -> None:
    if node.hello is None:
        return
    have = node.hello.inventory
    families.put(_NODE["info"], {**at, "version": node.hello.agent}, 1)
    uname = {
        "nodename": node.name,
        "machine": have.get("arch", ""),
        "release": have.get("kernel", ""),
        "sysname": "Linux",
    }
    families.put(_NODE["uname"], {**at, **uname}, 1)
    ports = {} if "rdma" in node.simulated else _first_ports(node)
    for name, device in ports.items():
        labels = {
            "device": name,
            "board_id": have.get(f"rdma.{device}.board", ""),
            "firmware_version": have.get(f"rdma.{device}.fw", ""),
            "hca_type": have.get(f"rdma.{device}.type", ""),
        }
        families.put(_NODE["hca"], {**at, **labels}, 1)
    _drives_and_chips(families, node, at)


def _not_read(families: Families, node: NodeState, at: Labels) -> None:
    """Add a series for each default field of dcgm-exporter that the node's GPUs do not offer, with the reason."""
    if not any(not _is_other(node, gpu) for gpu in node.devices("gpu.mem_total")):
        return
    missing = {f: NEEDS_DCGM for f, metric in BEFORE_HOPPER.items() if metric in node.absent}
    for field_name, why in {**NOT_READ, **missing}.items():
        families.put(_NODE["not_read"], {**at, "field": field_name, "why": why}, 1)


def _drives_and_chips(families: Families, node: NodeState, at: Labels) -> None:
    have = node.inventory
    for device in node.devices("nvme.live"):
        row = {
            "device": device,
            "firmware_revision": have.get(f"nvme.{device}.firmware", ""),
            "model": have.get(f"nvme.{device}.model", ""),
            "serial": have.get(f"nvme.{device}.serial", ""),
            "state": have.get(f"nvme.{device}.state", ""),
        }
        families.put(_NODE["nvme"], {**at, **row}, 1)
    for key, name in have.items():
        if key.startswith("sensor.") and key.endswith(".name"):
            chip = key.removeprefix("sensor.").removesuffix(".name")
            families.put(_NODE["chip"], {**at, "chip": chip, "chip_name": name}, 1)


def _first_ports(node: NodeState) -> dict[str, str]:
    """RDMA device -> its first port, under which the inventory describes it."""
    found: dict[str, str] = {}
    for port in node.devices("rdma.up"):
        found.setdefault(port.partition("/")[0], port)
    return found


def _failures(families: Families, node: NodeState, at: Labels) -> None:
    for key in node.failed:
        metric, _, device = key.partition("/")
        labels = {**at, "metric": metric, "device": device}
        families.put(_NODE["failed"], labels, 1)
        if metric == "disk.used" and device:
            mount = {**at, **_labels(node, metric, device)}
            families.put(_NODE["device_error"], mount, 1)


def _series(node: NodeState, metric: str, device: str) -> Series | None:
    """The series of a metric; None for an unknown one."""
    if metric.startswith("gpu.") and _is_other(node, device):
        return OURS.get(metric)
    return THEIRS.get(metric) or OURS.get(metric) or of_counter(metric)


def _labels(node: NodeState, metric: str, device: str) -> Labels:
    """The labels of a device, with the same names as in other exporters."""
    if not device:
        return {}
    kind = metric.partition(".")[0]
    if kind == "rdma":
        name, _, port = device.partition("/")
        return {"device": name, "port": port}
    if kind == "gpu":
        return _gpu_labels(node, device)
    if metric.startswith(("edac.mc_", "edac.row_")):
        return _edac_labels(device)
    if metric == "cpu.core_used":
        return {"cpu": device}
    if metric in _PAIRS:
        first, second = _PAIRS[metric]
        one, _, other = device.partition("/")
        return {first: one, second: other}
    # Other exporters label disks as `device`, mounts as `mountpoint`.
    if metric.startswith("disk.") and device.startswith("/"):
        return {"mountpoint": device}
    return {"device": device}


def _edac_labels(device: str) -> Labels:
    """The labels for `mc1/csrow2`, as in node_exporter."""
    controller, _, row = device.removeprefix("mc").partition("/")
    return {"controller": controller, **({"csrow": row.removeprefix("csrow")} if row else {})}


def _gpu_labels(node: NodeState, device: str) -> Labels:
    have = node.inventory
    instance = ""
    if _INSTANCE.fullmatch(device):
        # A MIG instance has the labels of its GPU, as in DCGM.
        device, _, instance = device.partition(":")
    labels = {
        "gpu": device,
        "GPU_I_ID": instance,
        "UUID": have.get(f"gpu.{device}.uuid", ""),
        "pci_bus_id": have.get(f"gpu.{device}.pci", ""),
        "device": "" if _is_other(node, device) else f"nvidia{device}",
        "modelName": have.get(f"gpu.{device}.model", ""),
        "Hostname": node.name,
        "DCGM_FI_DRIVER_VERSION": have.get("gpu.driver", ""),
    }
    return {key: value for key, value in labels.items() if value}


def _is_other(node: NodeState, device: str) -> bool:
    """Whether this GPU is not NVIDIA's: its series have Rankdeck's names, not DCGM's."""
    model = node.inventory.get(f"gpu.{device}.model", "")
    return _OTHERS.search(f"{device} {model}") is not None


def _switch_port(families: Families, port: SwitchPort, cluster: str) -> None:
    device, _, number = port.device.partition("/")
    at = {
        "cluster": cluster,
        "switch": port.switch,
        "port": port.port,
        "instance": port.node,
        "device": device,
        "node_port": number,
    }
    if port.up is not None:
        families.put(_SWITCH_UP, at, int(port.up))
    for counter, value in port.values.items():
        direction, _, what = counter.partition("-")
        if what in _SWITCH:
            families.put(_SWITCH[what], {**at, "direction": direction}, value)


HEAD_LIMIT = 8 << 10
LIMIT = 10.0
"""Seconds within which a request must arrive, and within which its answer must be sent."""
MOST_COLLECTED = 64
"""Most fields of a query."""
AT_ONCE = 16
"""Most connections; a further one closes the oldest, so that nobody can occupy all."""
PAGE = b"<html><body><a href='/metrics'>/metrics</a> of a Rankdeck cluster</body></html>\n"

Gather = Callable[[Kinds], Awaitable[Families]]


class ListenError(RankdeckError):
    """The server cannot listen on the address."""


class HttpRequest(NamedTuple):
    """The parts of a request that are used."""

    method: str
    path: str
    headers: dict[str, str]
    collect: tuple[str, ...] = ()
    """What `collect[]` names; () for everything."""


class HttpReply(NamedTuple):
    """The answer to a request."""

    status: HTTPStatus
    body: bytes = b""
    kind: str = "text/plain; charset=utf-8"


class HttpServer:
    """Answers requests, and limits the number of open connections."""

    def __init__(self, gather: Gather) -> None:
        self._gather = gather
        self._open: dict[asyncio.StreamWriter, None] = {}
        """Open connections, oldest first."""

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, from the request to the end of the answer."""
        self._open[writer] = None
        if len(self._open) > AT_ONCE:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        try:
            async with asyncio.timeout(LIMIT):
                request = await _read(reader)
            reply = await self.answer(request)
            # Compressing takes seconds for a large fleet.
            writer.write(await asyncio.to_thread(_sent, reply, request))
            async with asyncio.timeout(LIMIT):
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            # The client has gone, or does not read.
            writer.transport.abort()
        finally:
            self._open.pop(writer, None)
            writer.close()

    async def answer(self, request: HttpRequest | None) -> HttpReply:
        """The answer to a request; None stands for an invalid request."""
        if request is None:
            return HttpReply(HTTPStatus.BAD_REQUEST, b"not a request of HTTP\n")
        if request.method not in ("GET", "HEAD"):
            return HttpReply(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET\n")
        if request.path == "/":
            return HttpReply(HTTPStatus.OK, PAGE, "text/html; charset=utf-8")
        if request.path != "/metrics":
            return HttpReply(HTTPStatus.NOT_FOUND, b"only /metrics\n")
        unknown = [name for name in request.collect if name not in COLLECTORS]
        if unknown:
            known = " ".join(sorted(COLLECTORS))
            return HttpReply(
                HTTPStatus.BAD_REQUEST,
                f"no collect[]={unknown[0]!a}; there are: {known}\n".encode(),
            )
        wanted = frozenset[str]().union(*(COLLECTORS[name] for name in request.collect))
        families = await self._gather(wanted or EVERYTHING)
        if "application/openmetrics-text" in request.headers.get("accept", ""):
            body = await asyncio.to_thread(lambda: families.openmetrics().encode())
            return HttpReply(HTTPStatus.OK, body, OPENMETRICS)
        return HttpReply(
            HTTPStatus.OK, await asyncio.to_thread(lambda: families.text().encode()), TEXT
        )


@asynccontextmanager
async def serve(host: str, port: int, gather: Gather) -> AsyncGenerator[int]:
    """Serve inside this block; gives the port. `gather` is called for each request, with the kinds of series that it wants. Raises ListenError."""
    try:
        server = await asyncio.start_server(
            HttpServer(gather).talk, host or None, port, limit=HEAD_LIMIT
        )
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ListenError(f"cannot listen on {host}:{port}: {why}") from error
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _read(reader: asyncio.StreamReader) -> HttpRequest | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return None
    first, *rest = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return None
    pairs = (line.partition(":") for line in rest)
    headers = {key.strip().lower(): value.strip() for key, _, value in pairs}
    path, _, query = words[1].partition("?")
    try:
        collect = tuple(parse_qs(query, max_num_fields=MOST_COLLECTED).get("collect[]", ()))
    except ValueError:
        return None
    return HttpRequest(words[0], path, headers, collect)


def _sent(answer: HttpReply, request: HttpRequest | None) -> bytes:
    """The bytes of the answer, compressed if the request allows it."""
    packed = request and "gzip" in request.headers.get("accept-encoding", "")
    body = gzip.compress(answer.body, 1) if packed else answer.body
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *(["Content-Encoding: gzip"] if packed else []),
        *(["Allow: GET, HEAD"] if answer.status == 405 else []),
    ]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode()
    return head if request and request.method == "HEAD" else head + body
