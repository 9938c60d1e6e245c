"""The node screen: why the node is in its state, every device, events, inventory."""

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import ClassVar

from msgspec import field
from textual.geometry import Size

from rankdeck.model.health import with_device
from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.safe_text import printable_line
from rankdeck.state.fleet import NodeState, SwitchPort
from rankdeck.state.sanitize import number_in
from rankdeck.ui import formatting, node_page, snapshots
from rankdeck.ui.fleet_views import Overview, trend_figures
from rankdeck.ui.movement import next_choice
from rankdeck.ui.node_devices import device_names
from rankdeck.ui.node_page import (
    number_cell,
    section_title,
    series_values,
    switch_lines,
)
from rankdeck.ui.operations import ask_command, ask_to_acknowledge, is_acknowledgeable, run_answer
from rankdeck.ui.screens.base import BaseScreen
from rankdeck.ui.themes import Glyphs
from rankdeck.ui.widgets.canvas import (
    NEVER_HIGH,
    Run,
    Runs,
    TextPage,
    draw_bar,
    fit_runs,
    wrap_rows,
)
from rankdeck.ui.widgets.grid import INDENT
from rankdeck.ui.widgets.plots import Figure, Scale, draw_columns, draw_spark
from rankdeck.values import Value, replace
from rankdeck_agent.rules.coverage import coverage_words
from rankdeck_agent.rules.levels import EVENT_LEVELS, Level
from rankdeck_agent.rules.unread import is_beside

EVENTS = 20
BESIDE = 180
"""On screens of at least this width, checks, events and inventory are beside the numbers."""
FIGURES = 4
NEAR = 300.0
"""Events within so many seconds of a log line are shown with it."""


class NodeScreen(BaseScreen):
    """Everything about one node on one page that scrolls."""

    screen_name: ClassVar[str] = "node"
    needs_session: ClassVar[bool] = True

    def __init__(self, name: str, at: float | None = None) -> None:
        super().__init__()
        self.node_name = name
        self.at = at
        """The time of the log line or event from which the screen was
        opened, in epoch seconds; None: none.
        """
        self.main = self.page = TextPage(wraps=False)
        self.hours = 6.0
        """How many hours back the site's metrics are drawn."""

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.node_name,)

    def wanted_nodes(self) -> frozenset[str] | None:
        return frozenset({self.node_name})

    def tick(self) -> None:
        fleet = self.console.fleet
        node = fleet.node(self.node_name) if fleet.knows(self.node_name) else None
        if node is None:
            self.page.show(
                [[(f" no node {printable_line(self.node_name)} in this cluster", "warn")]]
            )
        elif self.console.moment is not None:
            moment, width, glyphs = self.console.moment, self.size.width - 2, self.console.glyphs
            lines = snapshots.past_node_page(fleet, node, moment, width, glyphs)
            self.page.show([*lines, *self._site_past(moment)])
        else:
            glyphs = self.console.glyphs
            beside = Beside(
                self.console.need_session().switches.of_node(node.name),
                self._site_past(None),
                trend_figures(Overview(fleet, (node,), ()), FIGURES, self.size.width // 2),
                self._record(node.name),
            )
            size = Size(self.size.width - 2, self.page.size.height)
            lines = live_node_page(node, size, glyphs, beside)
            led = [] if self.at is None else self._moment(self.at)
            self.page.show([*led, *lines])

    def _record(self, name: str) -> Runs:
        """How often jobs failed here by the node's own fault; empty if none did."""
        known = self.console.need_session().jobs.judge_nodes()
        record = known.records.get(name)
        if record is None or not record.faults:
            return []
        lemon = name in known.lemons
        advice = "; Launch proposes to leave it out" if lemon else ""
        return [(f" {record.sentence}{advice}", "warn" if lemon else "dim")]

    def _site_past(self, until: float | None) -> list[Runs]:
        view = self.console.need_session().site_past.view(self.node_name, self.hours, until)
        return node_page.site_past_lines(
            view, self.node_name, self.size.width - 2, self.console.glyphs
        )

    def action_hours(self) -> None:
        """Change how far back the site's metrics are drawn."""
        if self.console.cluster.metrics is None:
            self.say(
                "no site metrics: name your Prometheus with `metrics: {url: …}` in the cluster file",
                "dim",
            )
            return
        self.hours = next_choice([*node_page.HOURS], self.hours)
        self.refresh_now()

    def _moment(self, at: float) -> list[Runs]:
        """What happened on this node around the time of a log line, now or long ago."""
        journal, name = self.console.fleet.event_log, self.node_name
        near = sorted(
            journal.between((name,), at - NEAR, at + NEAR), key=lambda one: abs(one.at - at)
        )[:EVENTS]
        head: list[Run] = [
            (f" {self.console.glyphs.cursor} ", "key"),
            (f"the log line was read at {formatting.format_clock(at, millis=True)}", "title"),
        ]
        if not near:
            text = f"; no event here within {NEAR / 60:.0f} minutes of it"
            head.append((text, "dim"))
        lines: list[Runs] = [head]
        for one in near:
            text = with_device(one.device, one.text, one.check)
            lines.append([(f"   {one.at - at:+8.1f} s  ", "dim"), (text, "text")])
        return lines

    def action_copy(self) -> None:
        self.copy_page(self.page)

    def action_run(self) -> None:
        ask_command(self)

    def action_acknowledge(self) -> None:
        ask_to_acknowledge(self)

    def without_effect(self) -> Iterable[str]:
        fleet = self.console.fleet
        known = fleet.knows(self.node_name)
        if not known:
            return ("acknowledge", "run", "shell", "processes", "logs")
        able = is_acknowledgeable(self.console, self.targets)
        return (*(() if able else ("acknowledge",)), *self.idle_steps())

    def answered(self, text: str | None) -> None:
        run_answer(self, text)


class Beside(Value):
    """What others know of the node: its switch ports, the lines of the site's metrics,
    figures of its last minutes, its record in the history of jobs.
    """

    ports: Sequence[SwitchPort] = ()
    site_past: Sequence[Runs] = ()
    figures: Sequence[Figure] = ()
    record: Runs = field(default_factory=list[Run])


ALONE = Beside()


def live_node_page(
    node: NodeState,
    size: Size,
    glyphs: Glyphs,
    beside: Beside = ALONE,
) -> list[Runs]:
    """The lines of the node's page; a wide one has two columns and plots."""
    width, ports, site_past = size.width, beside.ports, beside.site_past
    figures = beside.figures if width >= BESIDE else ()
    head = [
        *wrap_rows(_head(node, glyphs), width),
        *node_page.reason_lines(node, width, glyphs),
        *node_page.scheduler_lines(node, width),
        *(wrap_rows([[], beside.record], width) if beside.record else []),
    ]
    if not node.was_heard:
        return [*head, *_unheard(node), *switch_lines(ports, glyphs), *site_past]
    if not node.detailed:
        events, inventory = _events(node, width, glyphs), _inventory(node, width)
        return [*head, *_coming(node), *site_past, *events, *inventory]
    numbers, about = _columns(width)
    left = [
        *node_page.figure_lines(figures, numbers - 1, glyphs),
        *_cpu(node, numbers, glyphs),
        *node_page.gpu_lines(node, numbers, glyphs),
        *node_page.traffic_lines(node, "rdma", "RDMA", numbers, glyphs),
        *switch_lines(ports, glyphs),
        *node_page.traffic_lines(node, "net", "Network", numbers, glyphs),
        *node_page.mount_lines(node, numbers, glyphs),
        *node_page.array_lines(node, numbers, glyphs),
    ]
    right = [*_failed(node, about), *_events(node, about, glyphs)]
    rows = max(size.height - len(head), len(left)) - len(right) if width >= BESIDE else 0
    right += node_page.finding_lines(node, (about, rows), glyphs)
    if width < BESIDE:
        return [*head, *left, *site_past, *right, *_inventory(node, width)]
    shorter = min(left, right, key=len)
    shorter += _inventory(node, min(numbers - 1, about))
    return [*head, *columns_beside(left, right, numbers, glyphs), *site_past]


def _columns(width: int) -> tuple[int, int]:
    """Widths of the two columns of a wide page, in cells: numbers on the
    left, checks and events on the right.
    """
    return (width // 2, width - width // 2) if width >= BESIDE else (width, width)


def columns_beside(
    left: Sequence[Runs], right: Sequence[Runs], width: int, glyphs: Glyphs
) -> list[Runs]:
    """Two columns of lines side by side, the left one `width` cells wide."""
    pairs = zip_longest(left, right, fillvalue=())
    return [[*fit_runs(one, width - 1, glyphs.more), (" ", "text"), *other] for one, other in pairs]


def _head(node: NodeState, glyphs: Glyphs) -> list[Runs]:
    health = node.health
    acknowledged = formatting.is_acknowledged(node)
    mark = glyphs.node(health.level, acknowledged=acknowledged)
    word = formatting.word_of(health.level, acknowledged=acknowledged)
    heard = node.heard_s()
    last_heard = (
        "nothing heard yet" if heard is None else f"heard {formatting.format_age(heard)} ago"
    )
    first: list[Run] = [
        (f" {printable_line(node.name)}  ", "title"),
        (f"{mark.glyph} {word}", mark.role),
        (f"   {last_heard}", "dim"),
        (f"   up {formatting.format_age(node.uptime)}" if node.uptime else "", "dim"),
        (f"   {coverage_words(replace(health, limits=''))}", "dim"),
    ]
    lines: list[Runs] = [first]
    if node.was_heard and node.older_expectations:
        lines.append([(f" {_OTHER_EXPECTATIONS}", "dim")])
    if node.failed_to_attach:
        lines.append([(f" agent: {printable_line(str(node.attach))}", "dim")])
    if silenced := node.silenced:
        last_heard = f"silenced until {formatting.format_day(silenced.until)} by {printable_line(silenced.words)}"
        lines.append([(f" {last_heard}; `:silence off` ends it", "accent")])
    if node.simulated:
        names_of = ", ".join(map(printable_line, node.simulated))
        lines.append([(f" SIMULATED: {names_of}: these numbers are made up", "simulated")])
    return lines


_OTHER_EXPECTATIONS = (
    "its agent judges by another `expect:` than this cluster file: an older one, or that of "
    "another console; `rankdeck agent install` again"
)


def _cpu(node: NodeState, width: int, glyphs: Glyphs) -> list[Runs]:
    wide = max(min(width - 40, 40), 10)
    total, free = node.value("mem.total"), node.value("mem.available")
    memory = (
        f"{formatting.format_size(free)} of {formatting.format_size(total)} free"
        if total and free is not None
        else ""
    )
    if (huge := node.value("mem.huge")) is not None:
        idle = node.value("mem.huge_free") or 0.0
        memory += (
            f", {formatting.format_size(huge)} in huge pages ({formatting.format_size(idle)} free)"
        )
    cores = [node.value("cpu.core_used", device) for device in device_names(node, "cpu.core_used")]
    rows: list[Runs] = [
        [("   CPU     ", "dim"), *draw_bar(node.value("cpu.used"), wide, glyphs, high=NEVER_HIGH), number_cell(formatting.format_percent(node.value("cpu.used")), 5),
         (f"   load {formatting.format_plain(node.value('cpu.load1'), 1) or formatting.NOTHING}   {formatting.format_celsius(node.value('cpu.temp'))}", "dim")],
        [("   Memory  ", "dim"), *draw_bar(node.value("mem.used"), wide, glyphs), number_cell(formatting.format_percent(node.value("mem.used")), 5), (f"   {memory}", "dim")],
    ]  # fmt: skip
    history = draw_spark(series_values(node.series("cpu.used", "")), wide, glyphs, Scale(100.0))
    rows.insert(1, [("   history ", "dim"), *history])
    model = printable_line(node.hello.inventory.get("cpu.model", "")) if node.hello else ""
    made_of = [model, f"{len(cores)} cores" if cores else ""]
    after = ", ".join(filter(None, made_of))
    return [
        *section_title(node, "Processor and memory", "cpu", after),
        *rows,
        *_cores(cores, width, glyphs),
    ]


def _cores(cores: Sequence[float | None], width: int, glyphs: Glyphs) -> list[Runs]:
    """One cell per core, as high as the core is busy."""
    per_line = max(width - 14, 10)
    pieces = [cores[at : at + per_line] for at in range(0, len(cores), per_line)]
    return [
        [
            ("   cores   " if not at else "           ", "dim"),
            *draw_columns(piece, glyphs, Scale(100.0)),
        ]
        for at, piece in enumerate(pieces)
    ]


def _failed(node: NodeState, width: int) -> list[Runs]:
    """What could not be read, and why. Failures with the same reason share a line."""
    alike: dict[tuple[str, str, bool], list[str]] = {}
    for name, why in node.failed.items():
        metric, _, device = name.partition("/")
        beside = is_beside(name, node.blind, node.values)
        alike.setdefault((why, device, beside), []).append(metric)
    rows: list[Runs] = []
    for (why, device, beside), metrics in alike.items():
        of = f"{printable_line(device)}: " if device else ""
        names = f"{of}{printable_line(' '.join(metrics))}"
        rows += [
            [("   ", "text"), (printable_line(why), "dim" if beside else "warn")],
            [("     ", "text"), (names, "dim")],
        ]
    return [*section_title(node, "Could not be read", "-"), *wrap_rows(rows, width)] if rows else []


def _coming(node: NodeState) -> list[Runs]:
    """Shown if only the health message is there: the full sample is requested."""
    period = node.hello.period if node.hello else 1.0
    text = f"its agent judges it; the numbers were asked for, it sends them every {period:g} s"
    return [[], [(f" {text}", "dim")]]


def _unheard(node: NodeState) -> list[Runs]:
    """Shown if no message came from this node: why there are no numbers."""
    told = node.in_scheduler
    if told is not None and told.alone and not node.failed_to_attach:
        text = f"no numbers: no agent of ours is heard there; `{told.agent_install}`"
    elif node.failed_to_attach:
        text = (
            "no numbers; the console tries again by itself, and says what happened under Messages"
        )
    else:
        text = "no numbers yet; the console is connecting to it"
    return [[], [(f" {text}", "dim")]]


def _events(node: NodeState, width: int, glyphs: Glyphs) -> list[Runs]:
    lines: list[Runs] = []
    for event in list(node.events)[-EVENTS:][::-1]:
        mark = glyphs.level(EVENT_LEVELS.get(event.level, Level.UNKNOWN))
        text = with_device(event.device, event.text, event.check)
        lines.append(
            [
                (f"{INDENT}{formatting.format_clock(event.at)}  ", "dim"),
                (f"{mark.glyph} ", mark.role),
                (text, "text"),
            ]
        )
    head = section_title(node, "Events", "-", "newest first")
    return [*head, *wrap_rows(lines, width)] if lines else []


def _inventory(node: NodeState, width: int) -> list[Runs]:
    if node.hello is None:
        return []
    rows = {"agent": node.hello.agent, **node.hello.inventory}
    if booted := number_in(rows.get("boot.at", "")):
        rows["boot.at"] = formatting.format_day(booted)
    lines = node_page.field_lines(_folded_devices(sorted(rows.items())), width)
    return [*section_title(node, "Inventory", "-"), *lines]


_NUMBERED = re.compile(r"([a-z]+)\.(\d{1,6})\.(.+)")
"""`gpu.0.model`: what a device with a number is."""


def _folded_devices(rows: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Devices with the same value in one row: `gpu.[0-7].model`."""
    alike: dict[tuple[str, str, str], list[int]] = {}
    for name, value in rows:
        found = _NUMBERED.fullmatch(name)
        key = (found[1], found[3], value) if found else (name, "", value)
        alike.setdefault(key, []).extend([int(found[2])] if found else [])
    return [
        (f"{kind}.{_in_brackets(numbers)}.{what}" if what else kind, value)
        for (kind, what, value), numbers in alike.items()
    ]


def _in_brackets(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"[{fold_ranks(numbers)}]"
