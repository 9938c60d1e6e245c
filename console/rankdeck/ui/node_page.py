"""The lines of a node's page: checks with their evidence, devices, file systems,
switch ports, hours and days of numbers.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from rankdeck.model.health import PastNumbers, PastSeries, PastView, Times
from rankdeck.model.safe_text import printable_line
from rankdeck.state.fleet import SwitchPort
from rankdeck.state.node import NodeState
from rankdeck.ui import actions, formatting
from rankdeck.ui.fleet_views import NUMBERS
from rankdeck.ui.node_devices import device_names, reason_for
from rankdeck.ui.themes import Glyphs, Mark
from rankdeck.ui.widgets.canvas import (
    Run,
    Runs,
    break_runs,
    cut_text,
    draw_bar,
    fit_text,
    join_blocks,
    wrap_rows,
)
from rankdeck.ui.widgets.grid import INDENT, section_head
from rankdeck.ui.widgets.plots import Figure, Scale, columns_of, draw_frame, draw_spark, round_up
from rankdeck.values import Value
from rankdeck_agent.rules.coverage import CheckResult
from rankdeck_agent.rules.levels import Level, Reason, Sentence, by_cause

LEVELS = {level.word: level for level in Level}
FINDING = 42
"""Width of the title of a check in cells."""
BEFORE = 18
"""Cells before it: the sign, the state and the number of the check."""
FIELD, NARROW, WIDE = 24, 18, 84
"""Cells for the name of a field, fewer on a page of less than WIDE cells."""
WELL = ("ok", "n/a")
"""States of a check that found nothing."""


def reason_lines(node: NodeState, width: int, glyphs: Glyphs) -> list[Runs]:
    """The reasons: what was seen, what it means, what to do, since when, its
    consequences, whether it is acknowledged.
    """
    lines: list[Runs] = []
    for reason, consequences in by_cause(node.health.reasons):
        lines += _reason(node, reason, width, glyphs)
        lines += [_consequence(node, one, glyphs) for one in consequences]
    return [[], *wrap_rows(lines, width)] if lines else []


def _consequence(node: NodeState, reason: Reason, glyphs: Glyphs) -> Runs:
    """A consequence of the reason above."""
    mark = glyphs.level(reason.level)
    since = _since(node, reason)
    seen = printable_line(reason.sentence.seen)
    return [
        ("           so    ", "dim"),
        (f"{mark.glyph} ", mark.role),
        (seen, "text"),
        (since, "dim"),
    ]


def _since(node: NodeState, reason: Reason) -> str:
    age = node.held_s(reason)
    return f"  {formatting.format_age(age)}" if age is not None else ""


def scheduler_lines(node: NodeState, width: int) -> list[Runs]:
    """What the scheduler says about the node."""
    view = node.in_scheduler
    if view is None or not (view.said or view.remark):
        return []
    title = section_title(node, view.title, "-", printable_line(view.remark))
    return [*title, *field_lines(view.said, width)]


def field_lines(rows: Sequence[tuple[str, str]], width: int) -> list[Runs]:
    """Rows of a name and what the scheduler says, side by side."""
    fields = [
        [
            (
                f"{INDENT}{fit_text(printable_line(name), FIELD if width >= WIDE else NARROW)} ",
                "dim",
            ),
            (printable_line(text, 600), "text"),
        ]
        for name, text in rows
    ]
    return wrap_rows(fields, width)


def _reason(node: NodeState, reason: Reason, width: int, glyphs: Glyphs) -> list[Runs]:
    mark = glyphs.level(reason.level)
    known = reason.acknowledged_until is not None
    sentence = Sentence.of(printable_line(reason.text, 600))
    since = _since(node, reason)
    role = "dim" if known else mark.role
    lines: list[Runs] = [
        [(f" {mark.glyph} {reason.level.word:<8}", role), (sentence.seen, "dim" if known else "text"), (since, "dim")]
    ]  # fmt: skip
    for label, piece in (("means", sentence.means), ("do", sentence.action)):
        lines += [
            [
                (f"           {label if not at else '':<6}", "dim"),
                (line, "text" if label == "do" and not known else "dim"),
            ]
            for at, line in enumerate(_wrapped(piece, width - 18) if piece else ())
        ]
    if reason.acknowledged_until is not None:
        left = formatting.format_age(reason.acknowledged_until - time.time())
        said = printable_line(reason.acknowledged_by)
        lines.append([("           known ", "dim"), (f"for {left} more, {said}", "accent")])
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    lines: list[str] = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > max(width, 20):
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def finding_lines(node: NodeState, room: tuple[int, int], glyphs: Glyphs) -> list[Runs]:
    """All checks, each with its value and threshold; checks that do not apply are dim,
    never green.

    Evidence is whole for checks that found something, and for others as far as
    `room` (cells, lines) has empty lines.
    """
    health, (width, rows) = node.health, room
    marks = [_mark(one, glyphs) for one in node.findings()]
    head = [*section_head("Checks"), ("  ", "text"), *((one.glyph, one.role) for one in marks)]
    limits: list[Runs] = [
        [(f"   {line}", "dim")]
        for line in _wrapped(printable_line(health.limits, 600), width - 4)
        if line
    ]
    findings = [(one, _finding(one, width, glyphs)) for one in node.findings()]
    least = sum(1 if one.state in WELL else len(found) for one, found in findings)
    spare = rows - least - len(limits) - 2
    lines: list[Runs] = [[], head, *limits]
    for one, found in findings:
        if one.state in WELL and len(found) - 1 > max(spare, 0):
            lines.append(_finding(one, width, glyphs, cut=True)[0])
            continue
        spare -= len(found) - 1 if one.state in WELL else 0
        lines += found
    return lines


def _finding(one: CheckResult, width: int, glyphs: Glyphs, *, cut: bool = False) -> list[Runs]:
    """A check and its evidence, in full or cut to one line."""
    mark = _mark(one, glyphs)
    role = "dim" if one.state == "n/a" else "text"
    room, evidence = width - FINDING - BEFORE, printable_line(one.evidence, 600)
    if cut:
        evidence = cut_text(evidence, room, glyphs.more)
    first, *others = _wrapped(evidence, room) if room > 10 else [""]
    head: Runs = [
        (f"   {mark.glyph} {one.state:<8}", mark.role),
        (f"{one.number:>3}  {fit_text(one.title, FINDING, glyphs.more)}", role),
        (first, "dim"),
    ]
    return [head, *([(" " * (width - room), "text"), (line, "dim")] for line in others)]


def _mark(one: CheckResult, glyphs: Glyphs) -> Mark:
    level = LEVELS.get(one.state)
    return Mark(glyphs.dot, "dim") if level is None else glyphs.level(level)


def figure_lines(figures: Sequence[Figure], width: int, glyphs: Glyphs) -> list[Runs]:
    """Figures in two columns."""
    lines: list[Runs] = []
    cells = width // 2 - 1
    for at in range(0, len(figures), 2):
        frames = [draw_frame(one, (cells, FIGURE), glyphs) for one in figures[at : at + 2]]
        lines += [[(" ", "text"), *line] for line in join_blocks(frames, cells, glyphs.more)]
    return [[], *lines] if lines else []


FIGURE = 7
"""Lines of a figure."""
SPARK = 40
NOTE = 16
"""Cells kept for what is wrong with a device, before more columns are added."""


def section_title(node: NodeState, text: str, metric: str, after: str = "") -> list[Runs]:
    """The heading of a section; says if its numbers are simulated."""
    simulated = ("SIMULATED" if formatting.is_simulated(node, metric) else "", "simulated")
    return [[], section_head(text, after, simulated)]


def number_cell(text: str, width: int) -> Run:
    """A number, right-aligned; a dash if it is not known."""
    return ((text or formatting.NOTHING).rjust(width), "text" if text else "dim")


def _note(node: NodeState, device: str, kind: str) -> str:
    """What is wrong with a device: its worst reason, or why it cannot be read."""
    if node.value(f"{kind}.lost", device):
        return "lost"
    if reason := reason_for(node, device, kind):
        return printable_line(reason.sentence.seen)
    keys = (k for k in node.failed if k.startswith(f"{kind}."))
    why = next((node.failed[k] for k in keys if k.endswith(f"/{device}")), "")
    return printable_line(why)


# ---- GPUs


class GpuColumn(Value):
    """A column with a number of a GPU, shown if it fits and some GPU has that number."""

    title: str
    width: int
    metric: str
    say: Callable[[NodeState, str], str]


def _clock(node: NodeState, device: str) -> str:
    hertz = node.value("gpu.clock", device)
    return "" if hertz is None else f"{hertz / 1e6:.0f}MHz"


def _of(metric: str, most: str) -> Callable[[NodeState, str], str]:
    def say(node: NodeState, device: str) -> str:
        value, limit = node.value(metric, device), node.value(most, device)
        return "" if value is None or not limit else f"{value:.0f}/{limit:.0f}"

    return say


def _said_as(say: Callable[[float | None], str], metric: str) -> Callable[[NodeState, str], str]:
    return lambda node, device: say(node.value(metric, device))


GPU_COLUMNS: tuple[GpuColumn, ...] = (
    GpuColumn("temp", 5, "gpu.temp", _said_as(formatting.format_celsius, "gpu.temp")),
    GpuColumn("power", 7, "gpu.power", _said_as(formatting.format_watts, "gpu.power")),
    GpuColumn(
        "ECC", 5, "gpu.ecc_uncorrected", _said_as(formatting.format_plain, "gpu.ecc_uncorrected")
    ),
    GpuColumn("mem temp", 10, "gpu.mem_temp", _said_as(formatting.format_celsius, "gpu.mem_temp")),
    GpuColumn("NVLink", 8, "gpu.nvlinks", _of("gpu.nvlinks_active", "gpu.nvlinks")),
    GpuColumn("PCIe", 7, "gpu.pcie_width", _of("gpu.pcie_width", "gpu.pcie_width_max")),
    GpuColumn("clock", 9, "gpu.clock", _clock),
    GpuColumn("processes", 11, "gpu.processes", _said_as(formatting.format_plain, "gpu.processes")),
)
"""Columns in the order in which they are added while there is room."""


def gpu_lines(node: NodeState, width: int, glyphs: Glyphs) -> list[Runs]:
    """A line for each GPU: load over time, memory, further columns that fit, and what is wrong."""
    devices = device_names(node, "gpu.used", "gpu.mem_total", "gpu.lost")
    if not devices:
        return []
    wide = max(min((width - 66) // 2, 20), 6)
    named = min(max(3, *(len(_gpu_name(node, device)) for device in devices)), 12)
    shown = _fitting(node, width - 26 - named - 2 * wide)
    head = f"     {'':<{named + 1}}{'used':<{wide + 6}}{'memory':<{wide + 12}}"
    head += "".join(column.title.rjust(column.width) for column in shown)
    model = ""
    if node.hello:
        model = printable_line(node.hello.inventory.get(f"gpu.{devices[0]}.model", ""))
    layout = GpuLayout(named, wide, tuple(shown), width)
    lines = [_gpu(node, device, layout, glyphs) for device in devices]
    what = f"{len(devices)} × {model}" if model and len(devices) > 1 else model
    return [*section_title(node, "GPUs", "gpu", what), [(head, "dim")], *lines]


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


class GpuLayout(Value):
    """Widths in cells of the name, of each bar and of the line, and the columns after the bars."""

    named: int
    wide: int
    shown: tuple[GpuColumn, ...]
    width: int


def _gpu_name(node: NodeState, device: str) -> str:
    """`5`, or `5 now 4` where the driver has numbered its GPUs anew because another has gone."""
    index = node.inventory.get(f"gpu.{device}.index", "")
    moved = index and not device.endswith(index)
    return printable_line(f"{device} now {index}" if moved else device)


def _gpu(node: NodeState, device: str, layout: GpuLayout, glyphs: Glyphs) -> Runs:
    used, there = node.value("gpu.mem_used", device), node.value("gpu.mem_total", device)
    filled = used / there * 100 if used is not None and there else None
    memory = (
        f"{formatting.format_size(used)}/{formatting.format_size(there)}"
        if used is not None
        else ""
    )
    load = node.value("gpu.used", device)
    past = draw_spark(
        series_values(node.series("gpu.used", device)), layout.wide, glyphs, Scale(_FULL)
    )
    mark = _device_mark(
        node, device, "gpu", glyphs, Level.OK if load is not None else Level.UNKNOWN
    )
    runs: list[Run] = [
        (f"   {mark.glyph} ", mark.role), (f"{fit_text(_gpu_name(node, device), layout.named, glyphs.more)} ", "text"),
        *past, number_cell(formatting.format_percent(load), 5), (" ", "text"),
        *draw_bar(filled, layout.wide, glyphs, high=98), number_cell(memory, 12),
    ]  # fmt: skip
    ill = {
        one.check: glyphs.level(one.level).role
        for one in node.health.reasons
        if one.device == device
    }
    for column in layout.shown:
        text, role = number_cell(column.say(node, device), column.width)
        runs.append((text, ill.get(column.metric, role)))
    room = layout.width - sum(len(text) for text, _ in runs) - 2
    note = _note(node, device, "gpu").removeprefix(f"GPU {device}").lstrip(": ")
    return [*runs, (f"  {cut_text(note, room, glyphs.more)}" if room > 4 else "", mark.role)]


def _device_mark(node: NodeState, device: str, kind: str, glyphs: Glyphs, otherwise: Level) -> Mark:
    reason = reason_for(node, device, kind)
    return glyphs.level(reason.level if reason else otherwise)


# ---- ports and interfaces


TROUBLES: tuple[tuple[str, str], ...] = (
    ("errors", "errors"),
    ("link_downs", "link downs"),
    ("retx", "retransmissions"),
    ("drops", "drops"),
)
"""Counters that are shown if they are not zero."""


def traffic_lines(
    node: NodeState, prefix: str, text: str, width: int, glyphs: Glyphs
) -> list[Runs]:
    """A line for each port: traffic in both directions relative to its
    speed, and counters that should be zero.
    """
    devices = device_names(node, f"{prefix}.rx", f"{prefix}.up")
    if not devices:
        return []
    named = min(max(map(len, devices)), 14)
    longest = max(len(_troubles(node, prefix, device)) for device in devices)
    wide = max(min((width - 42 - named - longest) // 2, SPARK), 6)
    lines: list[Runs] = []
    for device in devices:
        runs = _link(node, prefix, device, named, glyphs)
        most = _link_speed(node, prefix, device) / 8
        for way in ("rx", "tx"):
            metric = f"{prefix}.{way}"
            series = series_values(node.series(metric, device))
            highest = max([most, *(rate for rate in series if rate is not None)])
            drawn = draw_spark(series, wide, glyphs, Scale(highest))
            rate = number_cell(formatting.format_traffic(node.rate(metric, device)), 8)
            runs += [(f" {way} ", "dim"), *drawn, rate]
        runs.append((f"  {_speed(node, prefix, device):<8}", "dim"))
        room = width - sum(len(piece) for piece, _ in runs) - 2
        troubles = cut_text(_troubles(node, prefix, device), room, glyphs.more)
        ill = reason_for(node, device, prefix) or not node.value(f"{prefix}.up", device)
        lines.append([*runs, (f"  {troubles}" if room > 4 else "", "warn" if ill else "dim")])
    return [*section_title(node, text, prefix), *lines]


def _link(node: NodeState, prefix: str, device: str, named: int, glyphs: Glyphs) -> list[Run]:
    """The mark and name of a port; an interface that is not needed may be down."""
    up = node.value(f"{prefix}.up", device)
    level = Level.OK if up else Level.BAD if up is not None else Level.UNKNOWN
    mark = _device_mark(node, device, prefix, glyphs, level)
    if prefix == "net" and up == 0 and reason_for(node, device, prefix) is None:
        mark = Mark(glyphs.dot, "dim")
    return [
        (f"   {mark.glyph} ", mark.role),
        (fit_text(printable_line(device), named, glyphs.more), "text"),
    ]


def _speed(node: NodeState, prefix: str, device: str) -> str:
    if node.value(f"{prefix}.up", device) == 0:
        return "down"
    speed = _link_speed(node, prefix, device)
    return formatting.format_link_speed(speed) if speed else ""


def _link_speed(node: NodeState, prefix: str, device: str) -> float:
    """Speed of the link in bits per second; 0 if it is not known."""
    speed = node.value("rdma.rate" if prefix == "rdma" else "net.speed", device)
    return max(speed or 0.0, 0.0)


def _troubles(node: NodeState, prefix: str, device: str) -> str:
    counts = [(node.value(f"{prefix}.{key}", device), word) for key, word in TROUBLES]
    return ", ".join(f"{word} {formatting.format_count(n)}" for n, word in counts if n)


def series_values(series: Sequence[tuple[float, float]]) -> list[float | None]:
    """The values of (time, value) pairs, for a plot."""
    return [value for _, value in series]


# ---- file systems


def mount_lines(node: NodeState, width: int, glyphs: Glyphs) -> list[Runs]:
    """A line for each mount: how full it is, the space left, and whether it answers."""
    devices = device_names(node, "disk.used", "disk.mounted", "disk.stuck")
    if not devices:
        return []
    wide = max(min(width - 60, 30), 10)
    lines: list[Runs] = []
    for device in devices:
        used = node.value("disk.used", device)
        free = formatting.format_size(node.value("disk.free", device)) or formatting.NOTHING
        runs: list[Run] = [
            (f"   {fit_text(printable_line(device), 20, glyphs.more)} ", "text"),
            *draw_bar(used, wide, glyphs),
            number_cell(formatting.format_percent(used), 5),
            (f"  {free} free" if used is not None else "", "dim"),
        ]
        lines.append([*runs, (_mount_trouble(node, device), "warn")])
    return [*section_title(node, "File systems", "disk"), *lines]


def _mount_trouble(node: NodeState, device: str) -> str:
    if stuck := node.value("disk.stuck", device):
        return f"  does not answer for {formatting.format_age(stuck)}"
    if node.value("disk.mounted", device) == 0:
        return "  not mounted"
    return "  read-only" if node.value("disk.readonly", device) else ""


# ---- RAID arrays


def array_lines(node: NodeState, width: int, glyphs: Glyphs) -> list[Runs]:
    """A line for each RAID array (md): its disks, what is wrong, and
    how far a rebuild or check has come.
    """
    devices = device_names(node, "md.failed")
    if not devices:
        return []
    wide = max(min(width - 60, 30), 10)
    lines: list[Runs] = []
    for device in devices:
        runs: list[Run] = [(f"   {fit_text(printable_line(device), 20, glyphs.more)} ", "text")]
        for metric, doing in (("md.rebuilt", "rebuilt"), ("md.checked", "checked")):
            percent = node.value(metric, device)
            if percent is not None:
                runs += [
                    *draw_bar(percent, wide, glyphs),
                    number_cell(formatting.format_percent(percent), 5),
                ]
                runs += [(f" {doing} ", "dim")]
        words, style = _array_words(node, device)
        lines.append([*runs, (f" {words}", style)])
    return [*section_title(node, "RAID arrays", "md"), *lines]


def _array_words(node: NodeState, device: str) -> tuple[str, str]:
    """(its disks and what is wrong with it, style)."""
    wanted, missing = node.value("md.disks", device), node.value("md.degraded", device)
    disks = (
        "no redundancy" if wanted is None else f"{wanted - (missing or 0):g} of {wanted:g} disks"
    )
    if node.value("md.failed", device):
        return f"{disks}, does not work", "bad"
    return disks, "warn" if missing else "dim"


_LEVELS = {True: Level.OK, False: Level.BAD, None: Level.UNKNOWN}
_STATES = {True: "up", False: "down", None: "not heard"}


def switch_lines(ports: Sequence[SwitchPort], glyphs: Glyphs) -> list[Runs]:
    """A title and a row for each port; nothing if no switch is known."""
    if not ports:
        return []
    title = section_head("Switch ports", "in: what the node sends")
    return [[], title, *(_row(port, glyphs) for port in ports)]


def _row(port: SwitchPort, glyphs: Glyphs) -> Runs:
    mark = glyphs.level(_LEVELS[port.up])
    runs: list[Run] = [
        (f"   {mark.glyph} ", mark.role),
        (fit_text(printable_line(port.device), 14, glyphs.more), "text"),
        (f" {fit_text(printable_line(f'{port.switch} {port.port}'), 22, glyphs.more)}", "text"),
        (f" {_STATES[port.up]:<9}", mark.role if not port.up else "dim"),
    ]
    for label, counter in (("in", "in-octets"), ("out", "out-octets")):
        rate = formatting.format_traffic(port.rates.get(counter)) or formatting.NOTHING
        runs += [(f" {label}", "dim"), (rate.rjust(9), "text")]
    for what in ("errors", "discards"):
        count = _sum(port, what)
        shown = formatting.NOTHING if count is None else str(count)
        runs += [(f"  {what} ", "dim"), (shown, "warn" if count else "text")]
    return runs


def _sum(port: SwitchPort, what: str) -> int | None:
    """Both directions of a counter; None if the switch gave neither."""
    found = [port.values[k] for k in (f"in-{what}", f"out-{what}") if k in port.values]
    return sum(found) if found else None


HOURS: Mapping[float, str] = {1: "hour", 6: "6 hours", 24: "24 hours", 168: "7 days"}
"""Time spans to choose from, in hours -> the word for each."""
_WIDEST = 121
_FULL = 100.0
"""Upper end of the chart for percentages; charts of other numbers end at the highest number."""


def site_past_lines(view: PastView | None, node: str, width: int, glyphs: Glyphs) -> list[Runs]:
    """A chart of each number that the site's Prometheus has; nothing
    if the cluster file names none.
    """
    if view is None:
        return []
    found = view.numbers
    head = section_head(
        f"The last {HOURS.get(view.hours, f'{view.hours:g} hours')}",
        _when(found.times) if found else "",
        f"from {printable_line(view.server)}   {actions.action_key('hours')} another length",
    )
    troubles = filter(None, (view.trouble, found.warning if found else ""))
    body: list[Runs] = [
        [],
        head,
        *wrap_rows(([(f"{INDENT}{printable_line(text)}", "warn")] for text in troubles), width),
    ]
    if found is None:
        asked = [] if view.trouble else [[("   asked; waiting for the answer", "dim")]]
        return [*body, *asked]
    return [*body, *_charts(found, node, width, glyphs)]


def _when(times: Times) -> str:
    """The time span in words."""
    begin = times.start - times.step
    if times.end - begin > 86400:
        return f"{formatting.format_day(begin)} to {formatting.format_day(times.end)}"
    return f"{formatting.format_clock(begin)} to {formatting.format_clock(times.end)}"


def _charts(found: PastNumbers, node: str, width: int, glyphs: Glyphs) -> list[Runs]:
    wide = max(min(width - 34, _WIDEST), 10)
    rows: list[Runs] = []
    sources: dict[str, list[str]] = {}
    for column in NUMBERS:
        series = found.series.get((node, column.metric))
        if series is None:
            continue
        sources.setdefault(_source(series), []).append(column.title)
        numbers = shrink_values(series.values, columns_of(wide, glyphs))
        most = max((value for value in series.values if value is not None), default=0.0)
        top = _FULL if column.say is formatting.format_percent else round_up(most)
        cells = -(-len(numbers) // columns_of(1, glyphs))
        rows.append([
            (f"   {column.title:<8}", "dim"),
            (f"{column.say(series.values[-1]) or formatting.NOTHING:>8}  ", "text"),
            *draw_spark(numbers, cells, glyphs, Scale(top, ramp="simulated" if series.simulated else "calm")),
            (f"  most {column.say(most)}", "dim"),
        ])  # fmt: skip
    if not rows:
        text = "it has no numbers of this node then: are `label`, `gpu_label` and `labels` in `metrics:` right?"
        return break_runs([(f"{INDENT}{text}", "dim")], width)
    said = (_past_said(source, titles) for source, titles in sources.items())
    return [*rows, *wrap_rows(said, width)]


def _source(series: PastSeries) -> str:
    return f"{series.source}{', SIMULATED' if series.simulated else ''}"


def _past_said(source: str, titles: Sequence[str]) -> Runs:
    return [(f"{INDENT}{', '.join(titles)}: series of {printable_line(source)}", "dim")]


def shrink_values(values: Sequence[float | None], cells: int) -> list[float | None]:
    """At most `cells` values: each is the highest of its neighbours, or
    a gap if none of them has a value.
    """
    each = -(-len(values) // cells)
    first = len(values) % each
    parts = [values[:first]] if first else []
    parts += [values[at : at + each] for at in range(first, len(values), each)]
    return [max((v for v in part if v is not None), default=None) for part in parts]
