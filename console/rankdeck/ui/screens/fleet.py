"""All nodes: a map of states, and a table, worst first."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.widget import Widget

from rankdeck.model.health import Level
from rankdeck.model.nodeset import fold
from rankdeck.state.fleet import NodeState
from rankdeck.state.past import Frame
from rankdeck.ui import columns, past, query, readings
from rankdeck.ui.glyphs import UNICODE, Mark
from rankdeck.ui.screens.base import DeckScreen
from rankdeck.ui.widgets.canvas import Canvas, Run, Runs
from rankdeck.ui.widgets.nodemap import CellMap
from rankdeck.ui.widgets.vtable import Column, VTable

ROLE_RANK = {"bad": 4, "warn": 3, "unknown": 2, "ok": 1}
WIDE = 150
"""From this width on numbers have bars."""
SORT_EVERY = 4
"""Ticks between two sortings."""


def worst(marks: Sequence[Mark]) -> Mark:
    """The mark that stands for several."""
    return max(marks, key=lambda mark: ROLE_RANK.get(mark.role, 0))


class FleetLine(Canvas):
    """One line over the table: filter, order, what is simulated."""

    runs: Runs = ()

    def show(self, runs: Runs) -> None:
        if list(runs) != list(self.runs):
            self.runs = list(runs)
            self.refresh()

    def line(self, y: int, width: int) -> Runs:
        del y, width
        return self.runs


class FleetScreen(DeckScreen):
    """Map and table of the nodes."""

    deck_name: ClassVar[str] = "fleet"

    def __init__(self) -> None:
        super().__init__()
        self._states: dict[str, NodeState] = {}
        self._places: dict[str, int] = {}
        self._sort, self._reversed = "STATE", False
        self._metric = "STATE"
        self._filter, self._query = "", query.parse("")
        self._ticks = 0
        self._fleet: object = None
        self._frame: Frame | None = None
        """What is shown instead of now."""
        self._simulated: tuple[str, ...] = ()
        self._map_seen: tuple[object, ...] = ()
        self.map = CellMap(worst, id="map")
        self.info = FleetLine(id="info")
        self.table = VTable(
            self._columns(wide=False), empty="no node matches the filter; esc shows all"
        )

    def body(self) -> Iterable[Widget]:
        return self.map, self.info, self.table

    @property
    def main(self) -> Widget:
        return self.table

    def _columns(self, *, wide: bool) -> tuple[Column, ...]:
        numbers = tuple(
            Column(
                c.title,
                c.width + (columns.BAR + 1 if wide and c.gauge else 0),
                lambda row, width, c=c: self._cell(c, row, width),
                right=True,
                keep=c.keep,
            )
            for c in columns.NUMBERS
        )
        return (
            Column(
                "NODE",
                14 if not wide else 20,
                lambda row, _: columns.name_cell(self._states[row]),
                keep=11,
            ),
            Column("STATE", 9, lambda row, _: self._state(row), keep=10),
            *numbers,
            Column(
                "SEEN",
                5,
                lambda row, _: [(readings.seen(self._states[row]), "dim")],
                right=True,
                keep=2,
            ),
            Column("WHY", 12, lambda row, _: self._why(row), keep=7, grow=True),
        )

    def _cell(self, column: columns.NodeColumn, row: str, width: int) -> Runs:
        if self._frame is not None:
            value = self._frame.number(self._places[row], column.metric)
            return columns.paint_past(column, value)
        return columns.paint(column, self._states[row], width, self.deck.glyphs)

    def _state(self, row: str) -> Runs:
        level = self._level(row)
        mark = self.deck.glyphs.level(level)
        return [(f"{mark.glyph} {level.word}", mark.role)]

    def _why(self, row: str) -> Runs:
        if self._frame is not None:
            return (
                [("enter shows what had happened by then", "dim")]
                if self._level(row) > Level.UNKNOWN
                else []
            )
        node = self._states[row]
        return [
            (readings.why(node), "text" if node.health.level >= Level.WARN else "dim")
        ]

    # ---- painting

    def on_resize(self) -> None:
        width, height = self.size
        self.table.columns = self._columns(wide=width >= WIDE)
        wanted = self.map.lines_for(max(len(self._states), 1), width)
        self.map.styles.height = min(wanted, max((height - 6) // 4, 1), 8)
        self.info.display = height >= 12
        self.table.refresh()

    def tick(self) -> None:
        fleet = self.deck.session.fleet
        changed = self.deck.take_fresh()
        known = len(self._states)
        if self._fleet is not fleet:
            self._fleet = fleet
            self._states = {node.name: node for node in fleet.nodes()}
            self._places = {name: place for place, name in enumerate(self._states)}
            self._map_seen = ()
            self._simulated = ()
            self._arrange()
        if len(self._states) != known:
            self.on_resize()
        if self._look_back() or self._ticks % SORT_EVERY == 0:
            self._arrange()
            self._note_simulated()
        self._ticks += 1
        self.table.touch(changed)
        self._show_map()
        self._show_info()

    def _look_back(self) -> bool:
        """Take up the picture of the moment that is shown; gives whether it is another one."""
        moment = self.deck.moment
        frame = None if moment is None else self.deck.session.fleet.past.frame(moment)
        if frame is self._frame:
            return False
        self._frame = frame
        self._map_seen = ()
        self.table.refresh()
        return True

    def _note_simulated(self) -> None:
        found = {prefix for node in self._states.values() for prefix in node.simulated}
        self._simulated = tuple(sorted(found))

    def _arrange(self) -> None:
        shown = (
            [
                node
                for node in self._states.values()
                if self._query(readings.subject(node))
            ]
            if self._filter
            else [*self._states.values()]
        )
        if self._sort == "STATE":
            shown.sort(key=self._worst_first, reverse=self._reversed)
        else:
            shown.sort(key=columns.sort_key(self._sort), reverse=self._reversed)
        self.table.sorted_by = self._sort
        self.table.show([node.name for node in shown])

    def _worst_first(self, node: NodeState) -> tuple[int, str]:
        return -int(self._level(node.name)), node.name

    def _show_map(self) -> None:
        column = columns.BY_TITLE.get(self._metric)
        judged = self.deck.judged if column is None else self._ticks // SORT_EVERY
        seen = (judged, self._metric, self.table.cursor, self.deck.glyphs is UNICODE)
        if seen == self._map_seen:
            return
        self._map_seen = seen
        levels = {level: self.deck.glyphs.level(level) for level in Level}
        marks = [levels[self._level(name)] for name in self._states]
        if column is not None:
            heats = (columns.heat(column.number(n)) for n in self._states.values())
            marks = [Mark(m.glyph, heat) for m, heat in zip(marks, heats, strict=True)]
        self.map.show(marks, self._places.get(self.table.cursor, -1))

    def _level(self, name: str) -> Level:
        if self._frame is not None:
            return self._frame.level(self._places[name])
        return self.deck.levels.get(name, Level.UNKNOWN)

    def _show_info(self) -> None:
        if self.deck.moment is not None:
            fleet = self.deck.session.fleet
            self.info.show(
                past.banner(self.deck.moment, fleet.wall(), self.deck.glyphs)
            )
            return
        runs: list[Run] = [
            (f" {len(self.table.rows):,}", "text"),
            (f" of {len(self._states):,} nodes", "dim"),
        ]
        if self._filter:
            runs += [("   filter ", "dim"), (self._filter, "key")]
        runs += [
            ("   by ", "dim"),
            (self._sort + (" reversed" if self._reversed else ""), "text"),
        ]
        if self._metric != "STATE":
            runs += [("   map ", "dim"), (f"{self._metric} <50 <80 <95", "text")]
        if self._simulated:
            runs.append((f"   SIMULATED: {', '.join(self._simulated)}", "simulated"))
        self.info.show(runs)

    # ---- actions

    def on_vtable_opened(self, message: VTable.Opened) -> None:
        self.deck.open_node(message.row)

    def on_vtable_moved(self) -> None:
        self._show_map()

    def on_cell_map_chosen(self, message: CellMap.Chosen) -> None:
        name = list(self._states)[message.place]
        if name in self.table.rows:
            self.table.go(self.table.rows.index(name))

    def action_open(self) -> None:
        if self.table.cursor:
            self.deck.open_node(self.table.cursor)

    def action_sort(self) -> None:
        self._sort = columns.SORTS[
            (columns.SORTS.index(self._sort) + 1) % len(columns.SORTS)
        ]
        self._rearrange()

    def action_reverse(self) -> None:
        self._reversed = not self._reversed
        self._rearrange()

    def action_metric(self) -> None:
        self._metric = columns.MAPS[
            (columns.MAPS.index(self._metric) + 1) % len(columns.MAPS)
        ]
        self._show_map()
        self._show_info()

    def action_copy(self) -> None:
        self.deck.copy(fold(self.table.rows), f"{len(self.table.rows)} node names")

    def action_filter(self) -> None:
        self.prompt.ask("/", self._filter, "words or gpu.temp>80 & state!=ok")

    def typed(self, text: str) -> None:
        try:
            self._query = query.parse(text)
        except query.QueryError as error:
            self.say(query.pointed(error, self.size.width - 2), "warn")
            return
        self._filter = text.strip()
        self.say("")
        self._rearrange()

    def answered(self, text: str | None) -> None:
        if text is None:
            self.typed("")
        else:
            try:
                query.parse(text)
            except query.QueryError as error:
                self.say(query.pointed(error, self.size.width - 2), "bad")

    def action_back(self) -> None:
        self.say("")
        self.typed("")

    def _rearrange(self) -> None:
        self._arrange()
        self.table.refresh()
        self._show_info()
