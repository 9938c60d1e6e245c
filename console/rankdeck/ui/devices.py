"""GPUs, ports, file systems of a node as lines of its page: a device that is lost or not read keeps its line."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rankdeck.model.health import Level, Reason
from rankdeck.model.text import printable
from rankdeck.state.node import NodeState
from rankdeck.ui import readings, words
from rankdeck.ui.glyphs import Glyphs, Mark
from rankdeck.ui.widgets.canvas import Run, Runs, cut, fit
from rankdeck.ui.widgets.gauges import bar, sparkline

SPARK = 40
NOTE = 24
"""Cells that a word about a device wants before further columns come."""


def title(node: NodeState, text: str, metric: str, after: str = "") -> list[Runs]:
    """The line over a section; says where its numbers are made up."""
    runs: list[Run] = [(f" {text}", "title"), (f"  {after}" if after else "", "dim")]
    if readings.is_simulated(node, metric):
        runs.append(("  SIMULATED", "simulated"))
    return [[], runs]


def number(text: str, width: int) -> Run:
    """A number on the right of its cells; a dash where nothing is known."""
    return ((text or words.NOTHING).rjust(width), "text" if text else "dim")


def names(node: NodeState, *metrics: str) -> list[str]:
    """Devices that any of these metrics has, or should have, in counting order: 2 before 10."""
    found = {device for metric in metrics for device in node.devices(metric)}
    for key in node.failed:
        metric, _, device = key.partition("/")
        if device and metric in metrics:
            found.add(device)
    return sorted(found, key=lambda name: (len(name) if name.isdigit() else 0, name))


def reason_for(node: NodeState, device: str, kind: str) -> Reason | None:
    """The worst reason about this device; `kind` is the word that its checks begin with."""
    of = (f"{kind}.", "link.")
    return next(
        (r for r in node.health.reasons if r.device == device and r.check.startswith(of)),
        None,
    )


def _note(node: NodeState, device: str, kind: str) -> str:
    """What is wrong with a device, short: its reason, else why it cannot be read."""
    if node.value(f"{kind}.lost", device):
        return "lost"
    if reason := reason_for(node, device, kind):
        return printable(reason.text).split(" · ")[0]
    keys = (k for k in node.failed if k.startswith(f"{kind}."))
    why = next((node.failed[k] for k in keys if k.endswith(f"/{device}")), "")
    return printable(why)


# ---- GPUs


@dataclass(frozen=True, slots=True)
class GpuColumn:
    """A number of a GPU, shown where there is room and some GPU has it."""

    title: str
    width: int
    metric: str
    say: Callable[[NodeState, str], str]


def _clock(node: NodeState, device: str) -> str:
    hertz = node.value("gpu.clock", device)
    return "" if hertz is None else f"{hertz / 1e6:.0f}MHz"


def _power(node: NodeState, device: str) -> str:
    watts = node.value("gpu.power", device)
    return "" if watts is None else f"{watts:.0f}W"


def _of(metric: str, most: str) -> Callable[[NodeState, str], str]:
    def say(node: NodeState, device: str) -> str:
        value, limit = node.value(metric, device), node.value(most, device)
        return "" if value is None or not limit else f"{value:.0f}/{limit:.0f}"

    return say


def _plain(metric: str) -> Callable[[NodeState, str], str]:
    return lambda node, device: words.plain(node.value(metric, device))


def _celsius(metric: str) -> Callable[[NodeState, str], str]:
    return lambda node, device: words.celsius(node.value(metric, device))


GPU_COLUMNS: tuple[GpuColumn, ...] = (
    GpuColumn("temp", 5, "gpu.temp", _celsius("gpu.temp")),
    GpuColumn("power", 7, "gpu.power", _power),
    GpuColumn("ECC", 5, "gpu.ecc_uncorrected", _plain("gpu.ecc_uncorrected")),
    GpuColumn("HBM", 5, "gpu.mem_temp", _celsius("gpu.mem_temp")),
    GpuColumn("NVLink", 8, "gpu.nvlinks", _of("gpu.nvlinks_active", "gpu.nvlinks")),
    GpuColumn("PCIe", 7, "gpu.pcie_width", _of("gpu.pcie_width", "gpu.pcie_width_max")),
    GpuColumn("clock", 9, "gpu.clock", _clock),
    GpuColumn("procs", 7, "gpu.processes", _plain("gpu.processes")),
)
"""In the order in which they get their room."""


def gpus(node: NodeState, width: int, glyphs: Glyphs) -> list[Runs]:
    """A line for each GPU: load, memory, what there is room for, and what is wrong."""
    devices = names(node, "gpu.used", "gpu.mem_total", "gpu.lost")
    if not devices:
        return []
    wide = max(min((width - 54) // 2, 20), 6)
    named = min(max(3, *map(len, devices)), 12)
    shown = _fitting(node, width - 26 - named - 2 * wide)
    head = f"     {'':<{named + 1}}{'used':<{wide + 6}}{'memory':<{wide + 12}}"
    head += "".join(column.title.rjust(column.width) for column in shown)
    model = ""
    if node.hello:
        model = printable(node.hello.inventory.get(f"gpu.{devices[0]}.model", ""))
    layout = GpuLayout(named, wide, tuple(shown), width)
    lines = [_gpu(node, device, layout, glyphs) for device in devices]
    what = f"{len(devices)} × {model}" if model and len(devices) > 1 else model
    return [*title(node, "GPUs", "gpu", what), [(head, "dim")], *lines]


def _fitting(node: NodeState, room: int) -> list[GpuColumn]:
    ill = any(reason.check.startswith("gpu.") for reason in node.health.reasons)
    room -= NOTE if ill else 0
    shown: list[GpuColumn] = []
    for column in GPU_COLUMNS:
        room -= column.width if node.devices(column.metric) else 0
        if room < 0 and len(shown) > 1:
            break
        if node.devices(column.metric):
            shown.append(column)
    return shown


@dataclass(frozen=True, slots=True)
class GpuLayout:
    """Cells of the name, of each bar and of the line, and the numbers after the bars."""

    named: int
    wide: int
    shown: tuple[GpuColumn, ...]
    width: int


def _gpu(node: NodeState, device: str, layout: GpuLayout, glyphs: Glyphs) -> Runs:
    used, there = node.value("gpu.mem_used", device), node.value("gpu.mem_total", device)
    filled = used / there * 100 if used is not None and there else None
    memory = f"{words.size(used)}/{words.size(there)}" if used is not None else ""
    load = node.value("gpu.used", device)
    mark = _mark(node, device, "gpu", glyphs, Level.OK if load is not None else Level.UNKNOWN)
    runs: list[Run] = [
        (f"   {mark.glyph} ", mark.role), (f"{fit(printable(device), layout.named, glyphs.more)} ", "text"),
        *bar(load, layout.wide, glyphs, high=200), number(words.percent(load), 5), (" ", "text"),
        *bar(filled, layout.wide, glyphs, high=98), number(memory, 12),
    ]  # fmt: skip
    runs += [number(column.say(node, device), column.width) for column in layout.shown]
    room = layout.width - sum(len(text) for text, _ in runs) - 2
    note = _note(node, device, "gpu").removeprefix(f"GPU {device}").lstrip(": ")
    return [*runs, (f"  {cut(note, room, glyphs.more)}" if room > 4 else "", mark.role)]


def _mark(node: NodeState, device: str, kind: str, glyphs: Glyphs, otherwise: Level) -> Mark:
    reason = reason_for(node, device, kind)
    return glyphs.level(reason.level if reason else otherwise)


# ---- ports and interfaces


TROUBLES: tuple[tuple[str, str], ...] = (
    ("errors", "errors"),
    ("link_downs", "downs"),
    ("retx", "retx"),
    ("drops", "drops"),
)
"""Counters that are said where they are not zero."""


def traffic(node: NodeState, prefix: str, text: str, width: int, glyphs: Glyphs) -> list[Runs]:
    """A line for each port: both ways, speed, and counters that should be zero."""
    devices = names(node, f"{prefix}.rx", f"{prefix}.up")
    if not devices:
        return []
    named = min(max(map(len, devices)), 14)
    wide = max(min((width - 60 - named) // 2, SPARK), 6)
    lines: list[Runs] = []
    for device in devices:
        runs = _link(node, prefix, device, named, glyphs)
        for way in ("rx", "tx"):
            metric = f"{prefix}.{way}"
            spark = sparkline(_values(node.series(metric, device)), wide, glyphs)
            rate = number(words.rate(node.rate(metric, device)), 8)
            runs += [(f" {way} ", "dim"), (spark, "accent"), rate]
        runs.append((f"  {_speed(node, prefix, device):<8}", "dim"))
        room = width - sum(len(piece) for piece, _ in runs) - 2
        said = cut(_troubles(node, prefix, device), room, glyphs.more)
        ill = reason_for(node, device, prefix) or not node.value(f"{prefix}.up", device)
        lines.append([*runs, (f"  {said}" if room > 4 else "", "warn" if ill else "dim")])
    return [*title(node, text, prefix), *lines]


def _link(node: NodeState, prefix: str, device: str, named: int, glyphs: Glyphs) -> list[Run]:
    """Mark and name; an interface that nobody needs may be down."""
    up = node.value(f"{prefix}.up", device)
    level = Level.OK if up else Level.BAD if up is not None else Level.UNKNOWN
    mark = _mark(node, device, prefix, glyphs, level)
    if prefix == "net" and up == 0 and reason_for(node, device, prefix) is None:
        mark = Mark(glyphs.dot, "dim")
    return [
        (f"   {mark.glyph} ", mark.role),
        (fit(printable(device), named, glyphs.more), "text"),
    ]


def _speed(node: NodeState, prefix: str, device: str) -> str:
    if node.value(f"{prefix}.up", device) == 0:
        return "down"
    speed = node.value("rdma.rate" if prefix == "rdma" else "net.speed", device)
    return words.bits(speed) if speed and speed > 0 else ""


def _troubles(node: NodeState, prefix: str, device: str) -> str:
    counts = [(node.value(f"{prefix}.{key}", device), said) for key, said in TROUBLES]
    return ", ".join(f"{said} {words.count(n)}" for n, said in counts if n)


def _values(series: Sequence[tuple[float, float]]) -> list[float | None]:
    return [value for _, value in series]


# ---- file systems


def mounts(node: NodeState, width: int, glyphs: Glyphs) -> list[Runs]:
    """A line for each mount: how full, what is left, and whether it answers."""
    devices = names(node, "disk.used", "disk.mounted", "disk.stuck")
    if not devices:
        return []
    wide = max(min(width - 60, 30), 10)
    lines: list[Runs] = []
    for device in devices:
        used = node.value("disk.used", device)
        free = words.size(node.value("disk.free", device)) or words.NOTHING
        runs: list[Run] = [
            (f"   {fit(printable(device), 20, glyphs.more)} ", "text"),
            *bar(used, wide, glyphs),
            number(words.percent(used), 5),
            (f"  {free} free" if used is not None else "", "dim"),
        ]
        lines.append([*runs, (_mount_trouble(node, device), "warn")])
    return [*title(node, "File systems", "disk"), *lines]


def _mount_trouble(node: NodeState, device: str) -> str:
    if stuck := node.value("disk.stuck", device):
        return f"  does not answer for {words.age(stuck)}"
    if node.value("disk.mounted", device) == 0:
        return "  not mounted"
    return "  read-only" if node.value("disk.readonly", device) else ""
