"""One node: why it is in its state, every device, what happened, what it is made of."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.widget import Widget

from rankdeck.model.health import Level
from rankdeck.model.text import printable
from rankdeck.state.fleet import NodeState
from rankdeck.state.intake import number_in
from rankdeck.state.switches import SwitchPort
from rankdeck.ui import acknowledging, checks, past, readings, words
from rankdeck.ui.glyphs import Glyphs
from rankdeck.ui.screens.base import DeckScreen
from rankdeck.ui.switchports import switch_lines
from rankdeck.ui.widgets.canvas import Run, Runs, fit
from rankdeck.ui.widgets.gauges import bar, sparkline
from rankdeck.ui.widgets.text import TextPage
from rankdeck_agent.rules.explain import coverage_words

SPARK = 40
EVENTS = 20
NEAR = 300.0
"""Seconds around a moment within which events belong to it."""


class NodeScreen(DeckScreen):
    """Everything about one node on one page that scrolls."""

    deck_name: ClassVar[str] = "node"

    def __init__(self, name: str, at: float | None = None) -> None:
        super().__init__()
        self.node_name = name
        self.at = at
        """The moment that a log line led here from, epoch seconds."""
        self.page = TextPage()

    def body(self) -> Iterable[Widget]:
        return (self.page,)

    @property
    def main(self) -> Widget:
        return self.page

    def tick(self) -> None:
        node = next(
            (n for n in self.deck.session.fleet.nodes() if n.name == self.node_name),
            None,
        )
        if node is None:
            self.page.show(
                [[(f" no node {printable(self.node_name)} in this cluster", "warn")]]
            )
        elif self.deck.moment is not None:
            width = self.size.width - 2
            self.page.show(
                past.page(
                    self.deck.session.fleet,
                    node,
                    self.deck.moment,
                    width,
                    self.deck.glyphs,
                )
            )
        else:
            glyphs = self.deck.glyphs
            ports = self.deck.session.switches.of_node(node.name)
            lines = page(node, self.size.width - 2, glyphs, ports)
            led = [] if self.at is None else self._moment(self.at)
            self.page.show([*led, *lines])

    def _moment(self, at: float) -> list[Runs]:
        """What happened here around the time of a log line, live or long ago."""
        journal, name = self.deck.session.fleet.journal, self.node_name
        near = sorted(
            journal.between((name,), at - NEAR, at + NEAR),
            key=lambda one: abs(one.at - at),
        )[:EVENTS]
        head: list[Run] = [
            (f" {self.deck.glyphs.cursor} ", "key"),
            (f"the log line was read at {words.clock(at, millis=True)}", "title"),
        ]
        if not near:
            text = f"; no event here within {NEAR / 60:.0f} minutes of it"
            head.append((text, "dim"))
        lines: list[Runs] = [head]
        for one in near:
            text = printable(f"{one.device}: {one.text}" if one.device else one.text)
            lines.append([(f"   {one.at - at:+8.1f} s  ", "dim"), (text, "text")])
        return lines

    def action_acknowledge(self) -> None:
        if self._unknown():
            acknowledging.ask(self)
        else:
            self.say("there is nothing to acknowledge", "dim")

    def answered(self, text: str | None) -> None:
        if text:
            acknowledging.answer(self, text, self._unknown())

    def _unknown(self) -> list[tuple[str, str, str]]:
        """Reasons that nobody has acknowledged."""
        return [
            (self.node_name, reason.check, reason.device)
            for reason in self.deck.session.fleet.node(self.node_name).health.reasons
            if reason.acknowledged_until is None
        ]


def page(
    node: NodeState, width: int, glyphs: Glyphs, ports: Sequence[SwitchPort] = ()
) -> list[Runs]:
    """The lines of the node's page."""
    gauges = [*_cpu(node, width, glyphs), *_gpus(node, width, glyphs)]
    traffic = [
        *_traffic(node, "rdma", "RDMA", width, glyphs),
        *switch_lines(ports, glyphs),
        *_traffic(node, "net", "Network", width, glyphs),
    ]
    return [
        *_head(node, glyphs),
        *checks.reasons(node, width, glyphs),
        *gauges,
        *traffic,
        *_mounts(node, width, glyphs),
        *_failed(node),
        *_events(node, glyphs),
        *checks.findings(node, width, glyphs),
        *_inventory(node),
    ]


def _head(node: NodeState, glyphs: Glyphs) -> list[Runs]:
    health = node.health
    mark = glyphs.level(health.level)
    heard = node.heard_s()
    said = "nothing heard yet" if heard is None else f"heard {words.age(heard)} ago"
    first: list[Run] = [
        (f" {printable(node.name)}  ", "title"),
        (f"{mark.glyph} {health.level.word}", mark.role),
        (f"   {said}", "dim"),
        (f"   up {words.age(node.uptime)}" if node.uptime else "", "dim"),
        (f"   {coverage_words(health.evaluated, health.checks)}", "dim"),
    ]
    lines: list[Runs] = [first]
    if node.failed_to_attach:
        lines.append([(f" agent: {printable(str(node.attach))}", "dim")])
    if node.simulated:
        lines.append(
            [
                (
                    f" SIMULATED: {', '.join(map(printable, node.simulated))}: these numbers are made up",
                    "simulated",
                )
            ]
        )
    return lines


def _title(node: NodeState, text: str, metric: str, after: str = "") -> list[Runs]:
    runs: list[Run] = [(f" {text}", "title"), (f"  {after}", "dim")]
    if readings.is_simulated(node, metric):
        runs.append(("  SIMULATED", "simulated"))
    return [[], runs]


def _number(text: str, width: int) -> Run:
    return ((text or words.NOTHING).rjust(width), "text" if text else "dim")


def _cpu(node: NodeState, width: int, glyphs: Glyphs) -> list[Runs]:
    wide = max(min(width - 40, 40), 10)
    total, free = node.value("mem.total"), node.value("mem.available")
    memory = (
        f"{words.size(free)} of {words.size(total)} free"
        if total and free is not None
        else ""
    )
    cores = [
        node.value("cpu.core_used", device)
        for device in _devices(node, "cpu.core_used")
    ]
    rows: list[Runs] = [
        [("   CPU     ", "dim"), *bar(node.value("cpu.used"), wide, glyphs, high=200), _number(words.percent(node.value("cpu.used")), 5),
         (f"   load {words.plain(node.value('cpu.load1'), 1) or words.NOTHING}   {words.celsius(node.value('cpu.temp'))}", "dim")],
        [("   Memory  ", "dim"), *bar(node.value("mem.used"), wide, glyphs), _number(words.percent(node.value("mem.used")), 5), (f"   {memory}", "dim")],
    ]  # fmt: skip
    history = sparkline(_values(node.series("cpu.used", "")), wide, glyphs, 100)
    rows.append([("           ", "dim"), (history, "accent")])
    return [
        *_title(node, "Processor and memory", "cpu"),
        *rows,
        *_cores(cores, width, glyphs),
    ]


def _cores(cores: Sequence[float | None], width: int, glyphs: Glyphs) -> list[Runs]:
    """A cell per core, as high as it is busy."""
    per_line = max(width - 14, 10)
    text = sparkline(cores, len(cores), glyphs, 100) if cores else ""
    pieces = [text[at : at + per_line] for at in range(0, len(text), per_line)]
    return [
        [("   cores   " if not at else "           ", "dim"), (piece, "ok")]
        for at, piece in enumerate(pieces)
    ]


def _gpus(node: NodeState, width: int, glyphs: Glyphs) -> list[Runs]:
    devices = _devices(node, "gpu.used") or _devices(node, "gpu.mem_total")
    if not devices:
        return []
    wide = max(min((width - 52) // 2, 24), 6)
    head = f"   {'':<6}{'used':<{wide + 6}}{'memory':<{wide + 14}}{'temp':>5}{'power':>7}{'ECC':>5}"
    lines: list[Runs] = [[(head, "dim")]]
    for device in devices:
        used, there = (
            node.value("gpu.mem_used", device),
            node.value("gpu.mem_total", device),
        )
        filled = used / there * 100 if used is not None and there else None
        memory = f"{words.size(used)}/{words.size(there)}" if there else ""
        power = node.value("gpu.power", device)
        lines.append([
            (f"   {fit(printable(device), 5)} ", "text"),
            *bar(node.value("gpu.used", device), wide, glyphs, high=200), _number(words.percent(node.value("gpu.used", device)), 5), (" ", "text"),
            *bar(filled, wide, glyphs, high=98), _number(memory, 12), ("  ", "text"),
            _number(words.celsius(node.value("gpu.temp", device)), 5),
            _number("" if power is None else f"{power:.0f}W", 7),
            _number(words.plain(node.value("gpu.ecc_uncorrected", device)), 5),
        ])  # fmt: skip
    model = (
        printable(node.hello.inventory.get(f"gpu.{devices[0]}.model", ""))
        if node.hello
        else ""
    )
    return [*_title(node, "GPUs", "gpu", model), *lines]


def _traffic(
    node: NodeState, prefix: str, title: str, width: int, glyphs: Glyphs
) -> list[Runs]:
    devices = _devices(node, f"{prefix}.rx")
    if not devices:
        return []
    wide = max(min((width - 52) // 2, SPARK), 6)
    lines: list[Runs] = []
    for device in devices:
        up = node.value(f"{prefix}.up", device)
        sign = glyphs.level(
            Level.OK if up else Level.BAD if up is not None else Level.UNKNOWN
        )
        runs: list[Run] = [
            (f"   {sign.glyph} ", sign.role),
            (fit(printable(device), 14, glyphs.more), "text"),
        ]
        for way in ("rx", "tx"):
            metric = f"{prefix}.{way}"
            spark = sparkline(_rates(node.series(metric, device)), wide, glyphs)
            runs += [
                (f" {way} ", "dim"),
                (spark, "accent"),
                _number(words.rate(node.rate(metric, device)), 8),
            ]
        speed = node.value("rdma.rate" if prefix == "rdma" else "net.speed", device)
        lines.append(
            [*runs, (f"  {words.bits(speed) if speed and speed > 0 else ''}", "dim")]
        )
    return [*_title(node, title, prefix), *lines]


def _mounts(node: NodeState, width: int, glyphs: Glyphs) -> list[Runs]:
    devices = _devices(node, "disk.used")
    if not devices:
        return []
    wide = max(min(width - 60, 30), 10)
    lines: list[Runs] = []
    for device in devices:
        used = node.value("disk.used", device)
        runs: list[Run] = [
            (f"   {fit(printable(device), 20, glyphs.more)} ", "text"),
            *bar(used, wide, glyphs),
        ]
        runs += [
            _number(words.percent(used), 5),
            (
                f"  {words.size(node.value('disk.free', device)) or words.NOTHING} free",
                "dim",
            ),
        ]
        if node.value("disk.readonly", device):
            runs.append(("  read-only", "warn"))
        lines.append(runs)
    return [*_title(node, "File systems", "disk"), *lines]


def _failed(node: NodeState) -> list[Runs]:
    """What could not be read, and why: never a zero."""
    rows: list[Runs] = [
        [(f"   {fit(printable(name), 24)} ", "warn"), (printable(why), "text")]
        for name, why in node.failed.items()
    ]
    return [*_title(node, "Could not be read", "-"), *rows] if rows else []


def _events(node: NodeState, glyphs: Glyphs) -> list[Runs]:
    lines: list[Runs] = []
    for event in list(node.events)[-EVENTS:][::-1]:
        mark = glyphs.level(readings.LEVEL_OF_WORD.get(event.level, Level.UNKNOWN))
        text = printable(
            f"{event.device}: {event.text}" if event.device else event.text
        )
        lines.append(
            [
                (f"   {words.clock(event.at)}  ", "dim"),
                (f"{mark.glyph} ", mark.role),
                (text, "text"),
            ]
        )
    return [*_title(node, "Events", "-", "newest first"), *lines] if lines else []


def _inventory(node: NodeState) -> list[Runs]:
    if node.hello is None:
        return []
    rows = {"agent": node.hello.agent, **node.hello.inventory}
    if booted := number_in(rows.get("boot.at", "")):
        rows["boot.at"] = words.day(booted)
    lines: list[Runs] = [
        [(f"   {fit(printable(name), 24)} ", "dim"), (printable(text), "text")]
        for name, text in sorted(rows.items())
    ]
    return [*_title(node, "Inventory", "-"), *lines]


def _devices(node: NodeState, metric: str) -> list[str]:
    """Devices in counting order: 2 before 10."""
    return sorted(
        node.devices(metric),
        key=lambda name: (len(name) if name.isdigit() else 0, name),
    )


def _values(series: Sequence[tuple[float, float]]) -> list[float | None]:
    return [value for _, value in series]


def _rates(series: Sequence[tuple[float, float]]) -> list[float | None]:
    return _values(series)
