"""Writes the numbers of a fleet as text for Prometheus, in pieces: a large
fleet has more than a million series.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NamedTuple

from rankdeck.model.cluster import Cluster
from rankdeck.model.series import (
    ALWAYS,
    BEFORE_HOPPER,
    MADE,
    MIB,
    NEEDS_DCGM,
    NOT_READ,
    OURS,
    ROW_METRICS,
    THEIRS,
    Choice,
    Series,
    escape_label,
    labels_text,
    of_counter,
    of_row,
)
from rankdeck.state.fleet import Fleet, Switches, SwitchPort
from rankdeck.state.node import EPOCH, NodeState
from rankdeck_agent.wire import METRICS, Hello

Number = int | float
Labels = Mapping[str, str]
AT_A_TIME = 0.005
"""Seconds for which text is written before other tasks run."""
PIECE = 2000
"""Lines of a piece, about."""


@dataclass(slots=True)
class Family:
    """A metric family: all series with the same name."""

    name: str
    kind: str
    help: str
    series: dict[str, Number] = field(default_factory=dict[str, Number])
    """Labels as text -> value, of series that are no metric of a node."""
    sources: "list[Source]" = field(default_factory=list["Source"])
    """Metrics of the nodes with the other series."""

    def lines(self) -> Iterator[list[str]]:
        """The lines of `series`, some at a time."""
        each = iter(self.series.items())
        while some := list(islice(each, _LINES)):
            yield [f"{self.name}{labels} {value!r}\n" for labels, value in some]


_LINES = 500


class Source(NamedTuple):
    """A metric whose numbers belong to a family: of all devices, of one row
    (ROW_METRICS), or of one kind of GPUs.
    """

    metric: str
    series: Series
    head: str
    """How each of its lines begins."""
    group: str
    """Metrics of one group have the same labels."""
    row: str | None = None
    nvidia: bool | None = None
    is_whole: bool = True
    """Whether all numbers of the metric belong to the family."""

    def numbers(self, entry: "NodeLabels", values: Mapping[str, Number]) -> Mapping[str, Number]:
        """The numbers, by device, that belong to the family."""
        if self.row is not None:
            return {"": values[self.row]} if self.row in values else {}
        if self.nvidia is None:
            return values
        others = entry.other_gpus(tuple(values))
        if not others:
            return values if self.nvidia else {}
        return {gpu: value for gpu, value in values.items() if (gpu in others) != self.nvidia}


class Families:
    """Families by name; of two series with the same labels the first stays."""

    def __init__(self, choice: Choice) -> None:
        self._families: dict[str, Family] = {}
        self._choice = choice

    def put(self, kind: str, family: tuple[str, str, str], labels: Labels, value: Number) -> None:
        """Add one series of this kind, if it is wanted; `family` is name, type
        (gauge, counter, untyped) and help.
        """
        if self._choice.has(kind, family[0]):
            self._family(family).series.setdefault(labels_text(labels), value)

    def add(self, kind: str, source: Source) -> None:
        """Add the numbers of a metric of all nodes, if they are wanted."""
        series = source.series
        if self._choice.has(kind, series.name):
            self._family((series.name, series.kind, series.help)).sources.append(source)

    def _family(self, family: tuple[str, str, str]) -> Family:
        name, kind, text = family
        return self._families.setdefault(name, Family(name, kind, text))

    def in_order(self) -> list[Family]:
        """The families by name."""
        return sorted(self._families.values(), key=lambda family: family.name)


def text_head(family: Family) -> str:
    """The lines before the series, in the classic text format, which every Prometheus reads."""
    return f"# HELP {family.name} {escape_label(family.help)}\n# TYPE {family.name} {family.kind}\n"


def openmetrics_head(family: Family) -> str:
    """The same in OpenMetrics 1.0, which ends with OPENMETRICS_END."""
    kind, name = family.kind, family.name
    if kind == "counter" and name.endswith("_total"):
        name = name.removesuffix("_total")
    elif kind != "gauge":
        # A counter of another exporter whose name OpenMetrics does not allow for counters.
        kind = "unknown"
    return f"# HELP {name} {escape_label(family.help, quotes=True)}\n# TYPE {name} {kind}\n"


OPENMETRICS_END = "# EOF\n"


_CHECK = ("rankdeck_check", "gauge", "a check that fired: 1 unknown, 2 warn, 3 bad")
_NODE = {
    "up": ("rankdeck_node_up", "gauge", "1 while the node sends samples"),
    "health": ("rankdeck_node_health", "gauge", "0 ok, 1 unknown, 2 warn, 3 bad"),
    "evaluated": ("rankdeck_checks_evaluated", "gauge", "checks that could be judged"),
    "checks": ("rankdeck_checks", "gauge", "checks there are"),
    "age": ("rankdeck_sample_age_seconds", "gauge", "since the last sample came in"),
    "failed": ("rankdeck_read_failed", "gauge", "1 for each metric that could not be read"),
    "info": ("rankdeck_agent_info", "gauge", "version of the agent"),
    "booted": ("node_boot_time_seconds", "gauge", "when the node was booted, by its own clock"),
    "time": ("node_time_seconds", "gauge", "time of the newest sample, by the node's clock"),
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


_LABELLED_ALONE: Mapping[str, str] = {
    **{metric: metric for metric in METRICS if metric.startswith("edac.")},
    **{
        metric: metric[: metric.index("_")]
        for metric in METRICS
        if metric.startswith(("cpu.core_", "cpu.time_", "net.prio_"))
    },
}
"""Metric -> its group of equal labels, if that is not the kind."""


class NodeLabels:
    """The labels of a node's devices, written once. For one hello of the node."""

    def __init__(self, node: NodeState, at: Labels, *, simulated: bool) -> None:
        self.hello: Hello | None = node.hello
        self._node, self._at, self._simulated = node, at, simulated
        self._made_up = frozenset(node.simulated)
        self._texts: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        self._others: dict[tuple[str, ...], frozenset[str]] = {}

    def other_gpus(self, names: tuple[str, ...]) -> frozenset[str]:
        """Those of these GPUs that are not NVIDIA's."""
        found = self._others.get(names)
        if found is None:
            if len(self._others) >= _MOST_GROUPS:
                self._others.clear()
            found = frozenset(gpu for gpu in names if _is_other(self._node, gpu))
            self._others[names] = found
        return found

    def mark(self, kind: str) -> Labels | None:
        """The label `simulated` of a kind of metrics; None: they are
        simulated and must not be exported.
        """
        if kind not in self._made_up:
            return _REAL
        return _SIMULATED if self._simulated else None

    def texts(self, source: Source, names: tuple[str, ...]) -> list[str]:
        """For each of these devices the end of its line: labels, from after the brace, and a blank.

        Empty if they must not be exported.
        """
        key = source.group, names
        found = self._texts.get(key)
        if found is None:
            if len(self._texts) >= _MOST_GROUPS:
                self._texts.clear()
            metric = source.metric
            mark = self.mark(metric.partition(".")[0])
            found = self._texts[key] = (
                [] if mark is None else [self._text(metric, device, mark) for device in names]
            )
        return found

    def _text(self, metric: str, device: str, mark: Labels) -> str:
        labels = {**self._at, **mark, **_labels(self._node, metric, device)}
        return f"{labels_text(labels)[1:]} "


_REAL: Labels = {}
_SIMULATED: Labels = {"simulated": "1"}
_MOST_GROUPS = 64
"""Most groups of labels that are kept of a node: a device that
lacks a metric makes a further one.
"""


class Exporter:
    """Writes the series of a fleet that `choice` wants.

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
        self._known: dict[str, NodeLabels] = {}
        self._live: list[tuple[NodeState, NodeLabels]] = []
        """Nodes that were not silent when the scrape began: a silent one has no
        current numbers, so its series end.
        """

    async def text(self, choice: Choice, *, openmetrics: bool = False) -> AsyncGenerator[str]:
        """The text of all series that are wanted, in pieces; other
        tasks run while it is written.
        """
        families = Families(Choice(choice.kinds, self._cluster.export))
        head = openmetrics_head if openmetrics else text_head
        pause, piece = Pause(), list[str]()
        await self._gather(families, pause)
        for family in families.in_order():
            begin = [head(family)]
            for lines in filter(None, chain(family.lines(), self._told(family))):
                # A family that turns out to be empty has no head either.
                piece += begin + lines if begin else lines
                begin = []
                if pause.is_due():
                    await pause.take()
                if len(piece) >= PIECE:
                    yield "".join(piece)
                    piece = []
            await pause.take()
        yield "".join(piece) + (OPENMETRICS_END if openmetrics else "")

    async def _gather(self, families: Families, pause: "Pause") -> None:
        """Find which families there are, and all series that are no metric of a node."""
        metrics: set[str] = set()
        rows: set[tuple[str, str]] = set()
        nodes = tuple(self._fleet.nodes())
        self._known = {n.name: self._known[n.name] for n in nodes if n.name in self._known}
        self._live = []
        for node in nodes:
            entry = self._know(node)
            if not node.silent:
                self._live.append((node, entry))
            self._node(families, node)
            if not node.silent:
                metrics.update(node.values)
                rows.update(_rows(node))
            await pause.take()
        for port in self._switches.ports() if self._switches else ():
            _switch_port(families, port, self._cluster.name)
        for metric in sorted(metrics - ROW_METRICS):
            for source in _sources(metric):
                families.add(metric.partition(".")[0], source)
        for metric, row in sorted(rows):
            families.add(metric.partition(".")[0], _source(metric, of_row(metric, row), row=row))

    def _told(self, family: Family) -> Iterator[list[str]]:
        """The lines of a family's metrics, node by node."""
        modes = {source.series.mode for source in family.sources}
        # Then no two series can have the same labels.
        alone = len(modes) == len(family.sources) and not family.series
        for node, entry in self._live if family.sources else ():
            told: set[tuple[str, str]] | None = None if alone else set()
            for source in family.sources:
                values = node.values.get(source.metric)
                if values:
                    yield _lines(source, entry, values, told)

    def _node(self, families: Families, node: NodeState) -> None:
        """Add what is known of a node beside its metrics."""
        at = {"instance": node.name, "cluster": self._cluster.name}
        families.put(ALWAYS, _NODE["up"], at, 0 if node.silent else 1)
        _judgement(families, node, at)
        _inventory(families, node, at)
        if node.silent:
            return
        self._counts(families, node, at)
        _failures(families, node, at)
        entry = self._known[node.name]
        if entry.mark("gpu") is _REAL:
            _not_read(families, node, at)
        for metric in ("gpu.mem_used", "gpu.nvlink_tx", "disk.used"):
            mark = entry.mark(metric.partition(".")[0])
            if mark is not None:
                _made(families, node, metric, {**at, **mark})

    def _know(self, node: NodeState) -> NodeLabels:
        """The labels of a node, which are kept until its next hello."""
        entry = self._known.get(node.name)
        if entry is None or entry.hello is not node.hello:
            at = {"instance": node.name, "cluster": self._cluster.name}
            entry = self._known[node.name] = NodeLabels(node, at, simulated=self._simulated)
        return entry

    def _counts(self, families: Families, node: NodeState, at: Labels) -> None:
        wanted = self._cluster.node(node.name)
        for kind, count in (("gpu", wanted.gpus), ("rdma", wanted.rdma)):
            if count and self._known[node.name].mark(kind) is not None:
                labels = {**at, "kind": kind}
                families.put("health", _NODE["expected"], labels, count)
                there = len(node.devices(_COUNTED[kind]))
                families.put("health", _NODE["present"], labels, there)


class Pause:
    """Lets other tasks run each time that AT_A_TIME is over."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + AT_A_TIME

    def is_due(self) -> bool:
        """Whether it is time to let them run; asked a million times in a large scrape."""
        return time.perf_counter() > self._until

    async def take(self) -> None:
        """Let them run if it is time."""
        if self.is_due():
            await asyncio.sleep(0)
            self._until = time.perf_counter() + AT_A_TIME


def _rows(node: NodeState) -> Iterator[tuple[str, str]]:
    for metric in ROW_METRICS & node.values.keys():
        for row in node.values[metric]:
            yield metric, row


def _lines(
    source: Source,
    entry: NodeLabels,
    values: Mapping[str, Number],
    told: set[tuple[str, str]] | None,
) -> list[str]:
    """The lines of a node's numbers; without those of `told`, which is added to."""
    series, head = source.series, source.head
    numbers = values if source.is_whole else source.numbers(entry, values)
    if told is not None:
        numbers = {d: v for d, v in numbers.items() if (series.mode, d) not in told}
        told.update((series.mode, device) for device in numbers)
    given = map(series.convert, numbers.values()) if series.convert else numbers.values()
    # Devices that must not be exported have no texts.
    texts = entry.texts(source, tuple(numbers))
    return [f"{head}{text}{value!r}\n" for text, value in zip(texts, given, strict=False)]


def _source(
    metric: str, series: Series, *, row: str | None = None, nvidia: bool | None = None
) -> Source:
    mode = f'mode="{series.mode}",' if series.mode else ""
    group = _LABELLED_ALONE.get(metric, metric.partition(".")[0])
    return Source(
        metric, series, f"{series.name}{{{mode}", group, row, nvidia, row is None and nvidia is None
    )


def _sources(metric: str) -> Iterator[Source]:
    """Where the numbers of a metric go: to one family, or to one for each kind
    of GPUs; nowhere if it is not known.
    """
    theirs, ours = THEIRS.get(metric), OURS.get(metric)
    if metric.startswith("gpu.") and theirs and ours:
        yield _source(metric, theirs, nvidia=True)
        yield _source(metric, ours, nvidia=False)
    elif series := theirs or ours or of_counter(metric):
        yield _source(metric, series)


def _made(families: Families, node: NodeState, metric: str, at: Labels) -> None:
    """Add what is made from several metrics, or stands for each device of one."""
    for device in node.values.get(metric, ()):
        labels = {**at, **_labels(node, metric, device)}
        if metric == "disk.used":
            families.put("disk", _NODE["device_error"], labels, 0)
        for name, number in _of_dcgm(node, metric, device):
            families.put("gpu", MADE[name], labels, number)


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


def _judgement(families: Families, node: NodeState, at: Labels) -> None:
    health, heard = node.health, node.heard_s()
    families.put("health", _NODE["health"], at, int(health.level))
    families.put("health", _NODE["evaluated"], at, health.evaluated)
    families.put("health", _NODE["checks"], at, health.checks)
    if heard is not None:
        families.put("health", _NODE["age"], at, round(heard, 3))
    for reason in health.reasons:
        labels = {**at, "check": reason.check, "device": reason.device}
        families.put("health", _CHECK, labels, int(reason.level))


def _inventory(families: Families, node: NodeState, at: Labels) -> None:
    if node.hello is None:
        return
    have = node.hello.inventory
    families.put("node", _NODE["info"], {**at, "version": node.hello.agent}, 1)
    uname = {
        "nodename": node.name,
        "machine": have.get("arch", ""),
        "release": have.get("kernel", ""),
        "sysname": "Linux",
        "version": have.get("kernel.build", ""),
    }
    families.put("node", _NODE["uname"], {**at, **uname}, 1)
    if node.uptime is not None:
        families.put("node", _NODE["booted"], at, round(node.at - node.uptime))
    if node.at > EPOCH and not node.silent:
        families.put("node", _NODE["time"], at, node.at)
    ports = {} if "rdma" in node.simulated else _first_ports(node)
    for name, device in ports.items():
        labels = {
            "device": name,
            "board_id": have.get(f"rdma.{device}.board", ""),
            "firmware_version": have.get(f"rdma.{device}.fw", ""),
            "hca_type": have.get(f"rdma.{device}.type", ""),
        }
        families.put("node", _NODE["hca"], {**at, **labels}, 1)
    _drives_and_chips(families, node, at)


def _not_read(families: Families, node: NodeState, at: Labels) -> None:
    """Add a series for each default field of dcgm-exporter that the node's
    GPUs do not offer, with the reason.
    """
    if not any(not _is_other(node, gpu) for gpu in node.devices("gpu.mem_total")):
        return
    missing = {f: NEEDS_DCGM for f, metric in BEFORE_HOPPER.items() if metric in node.absent}
    for field_name, why in {**NOT_READ, **missing}.items():
        families.put("gpu", _NODE["not_read"], {**at, "field": field_name, "why": why}, 1)


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
        families.put("node", _NODE["nvme"], {**at, **row}, 1)
    for key, name in have.items():
        if key.startswith("sensor.") and key.endswith(".name"):
            chip = key.removeprefix("sensor.").removesuffix(".name")
            families.put("node", _NODE["chip"], {**at, "chip": chip, "chip_name": name}, 1)


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
        families.put("health", _NODE["failed"], labels, 1)
        if metric == "disk.used" and device:
            mount = {**at, **_labels(node, metric, device)}
            families.put("disk", _NODE["device_error"], mount, 1)


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
    if metric.startswith(("cpu.core_", "cpu.time_")):
        return {"cpu": device}
    if metric in _PAIRS:
        first, second = _PAIRS[metric]
        one, _, other = device.partition("/")
        return {first: one, second: other}
    # Other exporters label disks as `device`, mounts as `mountpoint`.
    if metric.startswith("disk.") and device.startswith("/"):
        kind, _, source = node.inventory.get(f"mount.{device}", "").partition(" ")
        more = {"device": source, "fstype": kind} if kind else {}
        return {**more, "mountpoint": device}
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
        families.put("switch", _SWITCH_UP, at, int(port.up))
    for counter, value in port.values.items():
        direction, _, what = counter.partition("-")
        if what in _SWITCH:
            families.put("switch", _SWITCH[what], {**at, "direction": direction}, value)
