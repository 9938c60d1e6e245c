"""All nodes: a map of states, and a table, worst first."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from textual.widget import Widget

from rankdeck.model.health import Level
from rankdeck.model.nodeset import fold
from rankdeck.model.text import printable
from rankdeck.state.fleet import NodeState
from rankdeck.ui import fleet_views, formatting, node_actions, query, snapshots
from rankdeck.ui.fleet_views import FleetView
from rankdeck.ui.glyphs import UNICODE, Mark
from rankdeck.ui.screens import modals
from rankdeck.ui.screens.base import BaseScreen, ListFilter
from rankdeck.ui.snapshots import Now, Snapshot, Then, order
from rankdeck.ui.widgets.canvas import Canvas, Run, Runs, length
from rankdeck.ui.widgets.nodemap import CellMap
from rankdeck.ui.widgets.text import fitted
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
    right: Runs = ()
    """What stands at the right end, whatever has to be cut for it."""

    def show(self, runs: Runs, right: Runs = ()) -> None:
        if (list(runs), right) != (self.runs, self.right):
            self.runs, self.right = list(runs), right
            self.refresh()

    def line(self, y: int, width: int) -> Runs:
        del y
        room = max(width - length(self.right), 0)
        return [*fitted(self.runs, room, self.glyphs.more), *self.right]


class FleetScreen(BaseScreen):
    """Map and table of the nodes."""

    screen_name: ClassVar[str] = "fleet"

    def __init__(self) -> None:
        super().__init__()
        self._states: dict[str, NodeState] = {}
        self._places: dict[str, int] = {}
        self.view = FleetView()
        """What is shown, and in which order."""
        self.view_name = ""
        """The saved view that it was, and mostly still is."""
        self._kept = self.view
        hint = "words or gpu.temp>80 & state!=ok"
        self.list_filter = ListFilter(self, hint, self._narrowed)
        self._ticks = 0
        self._fleet: object = None
        self._instant: Snapshot = Now({}, {})
        self._simulated: tuple[str, ...] = ()
        self._marks: frozenset[str] = frozenset()
        self._told: frozenset[str] = frozenset()
        """Metrics of the usual columns that some node has, or should have."""
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
                c.width + (fleet_views.BAR + 1 if wide and c.gauge else 0),
                lambda row, width, c=c: self._cell(c, row, width),
                right=True,
                keep=c.keep,
            )
            for c in self._numbers()
        )
        return (
            Column(
                "NODE",
                self._name_width(wide=wide),
                lambda row, _: fleet_views.name_cell(row, self._instant.level(row)),
                keep=11,
            ),
            Column("STATE", 9, lambda row, _: self._state(row), keep=10),
            *numbers,
            Column(
                "SEEN",
                5,
                lambda row, _: [(self._seen(row), "dim")],
                right=True,
                keep=2,
            ),
            Column(
                "WHY",
                12,
                lambda row, _: self._why(row),
                keep=7,
                grow=True,
                least=40,
            ),
        )

    def _name_width(self, *, wide: bool) -> int:
        longest = max(map(len, self._states), default=0)
        return min(max(longest, 6), 28 if wide else 16)

    def _numbers(self) -> Sequence[fleet_views.NodeColumn]:
        """The columns of the view; where it names none, the usual ones that some node has."""
        chosen = [fleet_views.find(name) for name in self.view.columns]
        told = [c for c in fleet_views.NUMBERS if c.metric in self._told]
        return [c for c in chosen if c] or told or fleet_views.NUMBERS

    def _cell(self, column: fleet_views.NodeColumn, row: str, width: int) -> Runs:
        if isinstance(self._instant, Then):
            return fleet_views.paint_past(column, self._instant.number(column, row))
        return fleet_views.paint(column, self._states[row], width, self.console.glyphs)

    def _state(self, row: str) -> Runs:
        level = self._instant.level(row)
        mark = self.console.glyphs.level(level)
        return [(f"{mark.glyph} {level.word}", mark.role)]

    def _seen(self, row: str) -> str:
        past = isinstance(self._instant, Then)
        return formatting.NOTHING if past else formatting.seen(self._states[row])

    def _why(self, row: str) -> Runs:
        wrong = self._instant.level(row) >= Level.WARN
        return [(self._instant.why(row), "text" if wrong else "dim")]

    # ---- painting

    def on_resize(self) -> None:
        width, height = self.size
        self.table.columns = self._columns(wide=width >= WIDE)
        most = min(max((height - 6) // 4, 1), 8)
        self.map.styles.height = self.map.lines_for(len(self._states), width, most)
        self.info.display = height >= 12
        self.table.refresh()

    def tick(self) -> None:
        fleet = self.console.session.fleet
        changed = self.console.take_fresh()
        known = len(self._states)
        if self._fleet is not fleet or known != fleet.size:
            # Another fleet, or nodes that no file names were found.
            self._fleet = fleet
            self._states = {node.name: node for node in fleet.nodes()}
            self._places = {name: place for place, name in enumerate(self._states)}
            self._map_seen = ()
            self._simulated = ()
            self._instant = Now(self._states, self.console.levels)
            self._arrange()
        if len(self._states) != known:
            self.on_resize()
        if self._look_back() or self._ticks % SORT_EVERY == 0:
            self._arrange()
            self._note_simulated()
            self._note_told()
        self._ticks += 1
        self.table.touch(changed)
        self._show_map()
        self._show_info()

    def _look_back(self) -> bool:
        """Take up the picture of the moment that is shown; gives whether it is another one."""
        fleet, moment = self.console.session.fleet, self.console.moment
        frame = None if moment is None else fleet.past.frame(moment)
        shown = self._instant.frame if isinstance(self._instant, Then) else None
        if frame is shown:
            return False
        self._instant = (
            Then(self._places, frame, fleet.event_log.newest)
            if frame
            else Now(self._states, self.console.levels)
        )
        self._map_seen = ()
        self.table.refresh()
        return True

    def _note_simulated(self) -> None:
        found = {prefix for node in self._states.values() for prefix in node.simulated}
        self._simulated = tuple(sorted(found))

    def _note_told(self) -> None:
        nodes = self._states.values()
        if not any(node.was_heard for node in nodes):
            return
        told = frozenset(
            column.metric
            for column in fleet_views.NUMBERS
            if column.metric in fleet_views.ALWAYS
            or any(column.metric in n.values or column.metric in n.failed for n in nodes)
        )
        if told != self._told:
            self._told = told
            self.on_resize()

    def _arrange(self) -> None:
        shown = [
            name
            for name in self._states
            if not self.view.filter or self.list_filter.matches(self._instant.subject(name))
        ]
        key = order(self.view.sort, self._instant, self._states)
        shown.sort(key=key, reverse=self.view.reversed)
        self.table.sorted_by = self.view.sort[0]
        self.table.show(shown)

    def _show_map(self) -> None:
        metric = self.view.map
        column = fleet_views.BY_TITLE.get(metric)
        judged = self.console.judged if column is None else self._ticks // SORT_EVERY
        seen = (judged, metric, self.console.glyphs is UNICODE)
        chosen = self._places.get(self.table.cursor, -1)
        if seen == self._map_seen:
            self.map.choose(chosen)
            return
        self._map_seen = seen
        levels = {level: self.console.glyphs.level(level) for level in Level}
        marks = [levels[self._instant.level(name)] for name in self._states]
        if column is not None:
            heats = (fleet_views.heat(self._instant.number(column, name)) for name in self._states)
            marks = [Mark(m.glyph, heat) for m, heat in zip(marks, heats, strict=True)]
        self.map.show(marks, chosen)

    def _show_info(self) -> None:
        if self.console.moment is not None:
            fleet = self.console.session.fleet
            self.info.show(snapshots.banner(self.console.moment, fleet.wall(), self.console.glyphs))
            return
        view = self.view
        runs: list[Run] = []
        if trouble := self.console.session.fleet.trouble:
            bad = self.console.glyphs.level(Level.BAD).glyph
            runs.append(
                (
                    f" {bad} {printable(trouble)}; numbers stand still; trying again  ",
                    "bad",
                )
            )
        runs += [
            (f" {len(self.table.rows):,}", "text"),
            (f" of {len(self._states):,} nodes", "dim"),
        ]
        if self.view_name:
            changed = "" if view == self._kept else " (changed)"
            runs += [("   view ", "dim"), (self.view_name, "key"), (changed, "dim")]
        if view.filter:
            runs += [("   filter ", "dim"), (view.filter, "key")]
        titles = ", ".join(view.sort) + (" reversed" if view.reversed else "")
        runs += [("   by ", "dim"), (titles, "text")]
        if self._marks:
            runs += [("   marked ", "dim"), (node_actions.named(self.marked), "key")]
        if view.map != "STATE":
            runs += [("   map ", "dim"), (f"{view.map} <50 <80 <95", "text")]
        made_up = f"  SIMULATED: {', '.join(self._simulated)} "
        self.info.show(runs, ((made_up, "simulated"),) if self._simulated else ())

    # ---- actions

    def on_vtable_opened(self, message: VTable.Opened) -> None:
        self.console.open_node(message.row)

    def on_vtable_moved(self) -> None:
        self._show_map()

    def on_cell_map_chosen(self, message: CellMap.Chosen) -> None:
        name = list(self._states)[message.place]
        if name in self.table.rows:
            self.table.go(self.table.rows.index(name))

    def action_open(self) -> None:
        if self.table.cursor:
            self.console.open_node(self.table.cursor)

    def look(self, view: FleetView, name: str | None = None) -> None:
        """Show this view; `name` says under which name it is kept now."""
        self.view = view
        self.list_filter.put(view.filter)
        if name is not None:
            self.view_name, self._kept = name, view
        self.on_resize()
        self._map_seen = ()
        self._rearrange()
        self._show_map()

    def action_sort(self) -> None:
        self.look(replace(self.view, sort=(_next(fleet_views.SORTS, self.view.sort[0]),)))

    def action_reverse(self) -> None:
        self.look(replace(self.view, reversed=not self.view.reversed))

    def action_metric(self) -> None:
        self.look(replace(self.view, map=_next(fleet_views.MAPS, self.view.map)))

    def action_copy(self) -> None:
        nodes = self.targets
        if nodes:
            self.console.copy(fold(nodes), printable(node_actions.named(nodes)))

    # ---- marks, and what is done with the marked nodes

    @property
    def marked(self) -> tuple[str, ...]:
        """The marked nodes, in the order of the cluster file."""
        return tuple(name for name in self._states if name in self._marks)

    @property
    def targets(self) -> tuple[str, ...]:
        """The marked nodes, else the one under the cursor."""
        here = (self.table.cursor,) if self.table.cursor else ()
        return self.marked or here

    def mark(self, names: Iterable[str]) -> None:
        """Exactly these are marked now."""
        self._marks = self.table.marked = frozenset(names)
        self.table.refresh()
        self._show_info()

    def matching(self, text: str) -> list[str]:
        """The nodes that this filter keeps; raises QueryError."""
        matches = query.parse(text)
        return [name for name in self._states if matches(self._instant.subject(name))]

    def action_mark(self) -> None:
        if self.table.cursor:
            self.mark(self._marks ^ {self.table.cursor})
            self.table.move(1)

    def action_mark_all(self) -> None:
        shown = frozenset(self.table.rows)
        self.mark(self._marks - shown if shown <= self._marks else self._marks | shown)

    def take_back(self) -> bool:
        """Show all nodes again; where all are shown, none is marked any more."""
        if super().take_back():
            return True
        marked = bool(self._marks)
        self.mark(())
        return marked

    def action_run(self) -> None:
        node_actions.ask_command(self)

    def action_shell(self) -> None:
        node_actions.shell(self.console)

    def action_acknowledge(self) -> None:
        if node_actions.unknown_reasons(self.console, self.targets):
            modals.ask(self)
        else:
            self.say("there is nothing to acknowledge", "dim")

    def answered(self, text: str | None) -> None:
        if text and self.prompt.mode == node_actions.RUN:
            node_actions.run(self.console, text)
        elif text:
            modals.answer(self, text, node_actions.unknown_reasons(self.console, self.targets))

    def _narrowed(self) -> None:
        self.look(replace(self.view, filter=self.list_filter.text))

    def _rearrange(self) -> None:
        self._arrange()
        self.table.refresh()
        self._show_info()


def _next(choices: Sequence[str], now: str) -> str:
    at = choices.index(now) if now in choices else -1
    return choices[(at + 1) % len(choices)]
