"""All nodes: a map of states, and a table, worst first."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate, islice
from typing import ClassVar

from textual.geometry import Size
from textual.widget import Widget

from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.safe_text import printable_line
from rankdeck.model.scheduler_node import SchedulerColumn
from rankdeck.rules import query
from rankdeck.rules.shared_causes import NodeCauses
from rankdeck.state.fleet import Changes, NodeState
from rankdeck.state.fleet_history import FleetPicture
from rankdeck.ui import fleet_views, formatting, snapshots
from rankdeck.ui.fleet_views import FleetView
from rankdeck.ui.movement import next_choice
from rankdeck.ui.operations import (
    ask_command,
    ask_to_acknowledge,
    is_acknowledgeable,
    nodes_phrase,
    run_answer,
)
from rankdeck.ui.screens.base import LEAST_DETAILS, Details, ListFilter, MarkingScreen, no_match
from rankdeck.ui.snapshots import Arrangement, PastFleet, PresentFleet, Snapshot, name_order
from rankdeck.ui.themes import Mark
from rankdeck.ui.widgets.canvas import (
    MARGIN,
    Canvas,
    Run,
    Runs,
    TextPage,
    fit_runs,
    measure_runs,
    shift_runs,
)
from rankdeck.ui.widgets.grid import INDENT
from rankdeck.ui.widgets.plots import Scale
from rankdeck.ui.widgets.vtable import CellMap, Column, VTable
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level

WIDE = 150
"""On screens of at least this width, numbers have bars."""
LEAST_OVERVIEW = 7
"""The overview is shown only if it gets at least this many lines."""
SHARED = 5
"""Lines of the screen that are neither nodes nor overview: bars, heading and gaps."""
CAUSES = 3
"""Lines for what many nodes have in common."""
TALL = 20
"""Lines of a screen that has room for more than its list."""
SORT_EVERY = 4
"""The table is sorted every so many ticks."""


class FleetLine(Canvas):
    """One line above the table: filter, order, what is simulated."""

    runs: Runs = ()
    right: Runs = ()
    """Shown at the right end; `runs` are cut to make room for it."""

    def show(self, runs: Runs, right: Runs = ()) -> None:
        if (list(runs), right) != (self.runs, self.right):
            self.runs, self.right = list(runs), right
            self.refresh()

    def line(self, y: int, width: int) -> Runs:
        del y
        room = max(width - measure_runs(self.right), 0)
        return [*fit_runs(self.runs, room, self.glyphs.more), *self.right]


class FleetScreen(MarkingScreen):
    """Map and table of the nodes."""

    screen_name: ClassVar[str] = "fleet"
    _fleet: object = None
    """The fleet that is shown; it is replaced when the session is open."""
    _overview_due = True
    _overview_size: Size | None = None
    """The size for which the overview was made last."""
    _map_scale = Scale(100.0)
    _map_seen: tuple[object, ...] = ()
    _totalled: FleetPicture | None = None
    """The newest picture of the past that `_totals` has drawn."""
    _totals_said: Sequence[Runs] = ()

    def __init__(self) -> None:
        super().__init__()
        self._states: dict[str, NodeState] = {}
        self._places, self._leaves = dict[str, int](), dict[str, str]()
        self.view = FleetView()
        """The current view: columns, filter, order, map."""
        self.view_name = ""
        """The name of the saved view that `view` was made from; "" if none."""
        self._kept = self.view
        hint = "words or gpu.temp>80 & state!=ok"
        self.list_filter = ListFilter(self, hint, self._narrowed)
        self._ticks = 0
        self._changes = Changes(())
        self._instant: Snapshot = PresentFleet({})
        self._arrangement = Arrangement((), lambda _: True, lambda name: (name,))
        self._moved: set[str] = set()
        """Nodes that changed since the rows were sorted."""
        self._made_up: dict[str, tuple[str, ...]] = {}
        """Node -> prefixes of its metrics that are simulated, for nodes that have such."""
        self._simulated: Counter[str] = Counter()
        """Prefix of simulated metrics -> number of nodes."""
        self._said: Sequence[SchedulerColumn] = ()
        """The columns with what the scheduler says, once it knows some node."""
        self._witnesses: dict[str, str] = {}
        """Metric of a usual column -> a node that has the metric, or should have it."""
        self._causes = NodeCauses()
        self.map = CellMap(self._map_row, id="map")
        self.info = FleetLine(id="info")
        self.causes = TextPage(id="causes", can_focus=False, wraps=False)
        self.main = self.table = VTable(
            self._columns(wide=False), empty=no_match("node"), on_top=True
        )

        self.overview = TextPage(id="overview", can_focus=False, wraps=False)

    def body(self) -> Iterable[Widget]:
        self.below = Details(self.table)
        return self.map, self.info, self.causes, self.table, self.overview

    def _columns(self, *, wide: bool) -> tuple[Column, ...]:
        numbers = tuple(
            Column(
                c.title,
                c.width + (c.bar + 1 if wide and c.bar else 0),
                lambda row, width, c=c: self._instant.cell(c, row, width, self.console.glyphs),
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
            *self._scheduler_columns(),
            *numbers,
            Column("SEEN", 5, lambda row, _: [(self._seen(row), "dim")], right=True, keep=2),
            Column("WHY", 12, lambda row, _: self._why(row), keep=7, grow=True, least=40),
        )

    def _scheduler_columns(self) -> tuple[Column, ...]:
        """The columns for what the scheduler says; none if the view has its own."""
        return tuple(
            Column(
                one.title,
                one.width,
                lambda row, _, one=one: self._scheduler_cell(one, row),
                right=one.right,
                keep=one.keep,
            )
            for one in (() if self.view.columns else self._said)
        )

    def _scheduler_cell(self, column: SchedulerColumn, row: str) -> Runs:
        view = self._states[row].in_scheduler
        if view is None or isinstance(self._instant, PastFleet):
            return [(formatting.NOTHING, "dim")]
        return [(printable_line(column.say(view)), "warn" if view.out else "text")]

    def _name_width(self, *, wide: bool) -> int:
        longest = max(map(len, self._states), default=0)
        return min(max(longest, 6), 28 if wide else 16)

    def _numbers(self) -> Sequence[fleet_views.NodeColumn]:
        """The columns of the view; if it has none, the usual ones that some node has."""
        chosen = [fleet_views.find_column(name) for name in self.view.columns]
        reported = [
            column
            for column in fleet_views.NUMBERS
            if self._witnesses and (column.always or column.metric in self._witnesses)
        ]
        return [c for c in chosen if c] or reported or fleet_views.NUMBERS

    def _state(self, row: str) -> Runs:
        level, acknowledged = self._instant.level(row), self._instant.acknowledged(row)
        mark = self.console.glyphs.node(level, acknowledged=acknowledged)
        word = formatting.word_of(level, acknowledged=acknowledged)
        return [(f"{mark.glyph} {word}", mark.role)]

    def _seen(self, row: str) -> str:
        past = isinstance(self._instant, PastFleet)
        return formatting.NOTHING if past else formatting.format_age(self._states[row].heard_s())

    def _why(self, row: str) -> Runs:
        wrong = self._instant.level(row) >= Level.WARN
        action = self._instant.action(row) if wrong else ""
        todo: Runs = [(f" {self.console.glyphs.dot} {action}", "dim")] if action else []
        return [(self._instant.why(row), "text" if wrong else "dim"), *todo]

    # ---- painting

    def on_resize(self) -> None:
        width, height = self.size
        self.table.columns = self._columns(wide=width >= WIDE)
        lines = self.map.lines_for(len(self._states), width, min(max((height - 6) // 4, 1), 8))
        self.map.styles.height = lines
        self.info.display = height >= 12
        self._share(height - lines)
        self._overview_due = True
        self.table.refresh()

    def _share(self, height: int) -> None:
        """Give the overview the lines that the table does not need."""
        free = height - len(self._states) - SHARED
        self.overview.display = bool(self._states) and free >= LEAST_OVERVIEW
        self.table.styles.height = len(self._states) + 2 if self.overview.display else "1fr"

    def wanted_nodes(self) -> frozenset[str] | None:
        """The nodes in view; None (all) if the view needs numbers that
        the health message does not have.
        """
        if fleet_views.needs_samples(self.view):
            return None
        return frozenset(self.table.rows_in_view)

    def tick(self) -> None:
        fleet = self.console.fleet
        known = len(self._states)
        if self._fleet is not fleet or known != fleet.size:
            # Another fleet, or new nodes that are not in the cluster file.
            self._fleet, self._changes = fleet, fleet.follow()
            self._states = {node.name: node for node in fleet.nodes()}
            self._places = {name: place for place, name in enumerate(self._states)}
            self._leaves = {node.name: node.leaf for node in self.console.cluster.nodes}
            self._map_seen = ()
            self._made_up, self._simulated, self._witnesses = {}, Counter(), {}
            self._causes = NodeCauses()
            self._instant = PresentFleet(self._states)
            self._arrange()
        if len(self._states) != known:
            self.on_resize()
        changed = self._changes.take()
        self._moved |= changed
        if self._look_back():
            self._arrange()
        elif self._ticks % SORT_EVERY == 0:
            self._follow()
        self._ticks += 1
        self.table.touch(changed)
        self._show_map(changed)
        self._show_info()
        self._overview_due |= self._ticks % (2 * SORT_EVERY) == 1
        self._overview_due |= self.overview.size != self._overview_size
        if self.overview.display and self._overview_due:
            self._show_overview()

    def _show_overview(self) -> None:
        session, size = self.console.session, self.overview.size
        if size.height < LEAST_OVERVIEW:
            return  # not laid out yet
        if session is None:
            self.overview.show([[(f" {self.console.why_closed}", "dim")]])
            return
        self._overview_due, self._overview_size = False, size
        nodes = tuple(self._states[name] for name in self.table.rows)
        done, of = session.hearing.connecting
        opening = f"connecting to {of - done:,} more nodes" if done < of else ""
        scene = fleet_views.Overview(
            session.fleet,
            nodes,
            session.jobs.all(),
            len(session.queue.others(session.jobs.all())),
            self.console.moment,
            opening,
        )
        self.overview.show(fleet_views.overview_lines(scene, size, self.console.glyphs))

    def _look_back(self) -> bool:
        """Load the picture for the time that is shown; returns whether
        the picture is another one now.
        """
        fleet, moment = self.console.fleet, self.console.moment
        frame = None if moment is None else fleet.past.frame(moment)
        shown = self._instant.frame if isinstance(self._instant, PastFleet) else None
        if frame is shown:
            return False
        self._instant = PastFleet(self._places, frame) if frame else PresentFleet(self._states)
        self._map_seen = ()
        self.table.refresh()
        return True

    def _follow(self) -> None:
        """Move rows that changed since the last sorting; the others keep their places."""
        moved, self._moved = self._moved, set()
        if isinstance(self._instant, PresentFleet):
            self._arrangement.again(moved)
            self._show_rows()
        self._note_simulated(moved)
        self._note_reported(moved)
        self._note_scheduler(moved)
        self._note_causes(moved)

    def _note_causes(self, moved: Iterable[str]) -> None:
        """Say above the table what many nodes have in common, where it cannot show all that are
        not well.
        """
        states = (self._states[name] for name in moved)
        for state in states:
            if state.was_heard or state.failed_to_attach:
                self._causes.judge(state.name, state.health)
        (width, height), now = self.size, isinstance(self._instant, PresentFleet)
        crowded = now and height >= TALL and self._causes.ill > height // 2
        shared = self._causes.shared(CAUSES) if crowded else []
        glyphs = self.console.glyphs
        self.causes.show([fleet_views.cause_line(one, width, glyphs) for one in shared])
        self.causes.styles.height = len(shared)

    def _note_simulated(self, moved: Iterable[str]) -> None:
        for name in moved:
            before, now = self._made_up.get(name, ()), self._states[name].simulated
            if now != before:
                self._made_up[name] = now
                self._simulated.update(now)
                self._simulated.subtract(before)

    def _note_scheduler(self, moved: Iterable[str]) -> None:
        views = (self._states[name].in_scheduler for name in moved)
        if not self._said and (columns := next((one.columns for one in views if one), ())):
            self._said = columns
            self.on_resize()

    def _note_reported(self, moved: Iterable[str]) -> None:
        witnesses: dict[str, str] = {}
        for metric in (column.metric for column in fleet_views.NUMBERS):
            witness = self._witnesses.get(metric)
            if witness is None or not self._states[witness].has(metric):
                among = moved if witness is None else self._states
                witness = next((name for name in among if self._states[name].has(metric)), None)
            if witness is not None:
                witnesses[metric] = witness
        if witnesses.keys() != self._witnesses.keys():
            self._witnesses = witnesses
            self.on_resize()
        self._witnesses = witnesses

    def _arrange(self) -> None:
        """Filter and sort all rows again."""
        keeps = self.list_filter.matches if self.view.filter else None
        self._arrangement = Arrangement(
            self._states,
            lambda name: keeps is None or keeps(self._instant.subject(name)),
            name_order(self.view.sort, self._instant, self._states),
        )
        self._show_rows()

    def _show_rows(self) -> None:
        names = self._arrangement.names
        self.table.sorted_by, self.table.turned = self.view.sort, self.view.reversed
        self.table.show(names[::-1] if self.view.reversed else names)

    def _show_map(self, changed: Collection[str] = ()) -> None:
        seen = (self.view.map, self.console.ascii)
        chosen = self._places.get(self.table.cursor, -1)
        if seen == self._map_seen and not self._outgrown(changed):
            if isinstance(self._instant, PresentFleet):
                self.map.change({self._places[name]: self._mark(name) for name in changed})
            self.map.choose(chosen)
            return
        self._map_seen = seen
        if column := fleet_views.map_column(self.view.map):
            numbers = (self._instant.number(column, name) for name in self._states)
            self._map_scale = fleet_views.map_scale(column, numbers)
        self.map.show([self._mark(name) for name in self._states], chosen)

    def _mark(self, name: str) -> Mark:
        level, acknowledged = self._instant.level(name), self._instant.acknowledged(name)
        mark = self.console.glyphs.node(level, acknowledged=acknowledged)
        column = fleet_views.map_column(self.view.map)
        if column is None:
            # Nodes that are well are only dim dots, so that the others stand out.
            return Mark(self.console.glyphs.dot, "dim") if mark.role == "ok" else mark
        return fleet_views.heat_role(self._instant.number(column, name), self._map_scale, mark)

    def _map_row(self, start: int, end: int) -> Runs:
        """What stands beside the nodes from one place to another."""
        names = list(islice(self._states, start, end))
        counts = Counter(self._instant.level(name) for name in names)
        leaves = dict.fromkeys(self._leaves[name] for name in names if self._leaves.get(name))
        return fleet_views.map_row(names, leaves, counts, self.console.glyphs)

    def _outgrown(self, names: Iterable[str]) -> bool:
        """Whether one of these nodes has a number above the scale of the map."""
        column = fleet_views.map_column(self.view.map)
        if column is None:
            return False
        numbers = (self._instant.number(column, name) for name in names)
        return any(number is not None and number > self._map_scale.top for number in numbers)

    def _show_info(self) -> None:
        if self.console.moment is not None:
            fleet = self.console.fleet
            self.info.show(
                snapshots.past_banner(self.console.moment, fleet.wall(), self.console.glyphs)
            )
            return
        view = self.view
        runs: list[Run] = []
        if trouble := self.console.fleet.trouble:
            bad = self.console.glyphs.level(Level.BAD).glyph
            runs.append(
                (f" {bad} {printable_line(trouble)}; numbers stand still; trying again  ", "bad")
            )
        runs += [
            (f" {len(self.table.rows):,}", "text"),
            (f" of {len(self._states):,} nodes", "dim"),
        ]
        if self.view_name:
            changed = "" if view == self._kept else " (changed)"
            runs += [("   view ", "dim"), (self.view_name, "key"), (changed, "dim")]
        titles = ", ".join(view.sort) + (" reversed" if view.reversed else "")
        runs += [("   by ", "dim"), (titles, "text")]
        if self.marks:
            runs += [("   marked ", "dim"), (nodes_phrase(self.marked), "key")]
        if column := fleet_views.map_column(view.map):
            runs += fleet_views.map_legend(column, self._map_scale)
        if self.map.size and self.map.per_cell > 1:
            runs += [("   map ", "dim"), (f"worst of {self.map.per_cell}", "text")]
        prefixes = sorted(+self._simulated)
        made_up = f"  SIMULATED: {', '.join(prefixes)} "
        if len(made_up) > self.size.width // 2:
            made_up = "  SIMULATED "
        right = ((made_up, "simulated"),) if prefixes else ()
        self.info.show(
            [*runs, *self._totals(self.info.size.width - measure_runs([*runs, *right]))], right
        )

    def _totals(self, room: int) -> Runs:
        """Totals of all nodes, as many as fit in `room` cells; () if the overview is shown."""
        past = self.console.fleet.past
        newest = past.newest(1)
        if self.overview.display or not newest:
            return ()
        if newest[0] is not self._totalled:
            self._totalled = newest[0]
            self._totals_said = fleet_views.total_lines(past, self.console.glyphs)
        ends = accumulate(map(measure_runs, self._totals_said))
        fitting = [one for one, end in zip(self._totals_said, ends, strict=True) if end < room]
        return [run for one in fitting for run in one]

    # ---- actions

    def on_vtable_opened(self, message: VTable.Opened) -> None:
        self.table.go(self.table.index)  # keeps the cursor on this row for the way back
        self.console.open_node(message.row)

    def on_vtable_moved(self) -> None:
        self._show_map()

    def on_vtable_heading(self, message: VTable.Heading) -> None:
        title = message.title
        if title == self.view.sort[0]:
            self.action_reverse()
        elif title in fleet_views.SORTS or fleet_views.find_column(title):
            self.look(replace(self.view, sort=(title,), reversed=False))

    def on_cell_map_chosen(self, message: CellMap.Chosen) -> None:
        name = list(self._states)[message.place]
        if name in self.table.rows:
            self.table.go(self.table.rows.index(name))

    def details(self) -> tuple[str, Sequence[Runs]]:
        """The reasons of the node under the cursor, in lines that the filter has left free."""
        node = self._states.get(self.table.cursor)
        few = len(self.table.rows) + SHARED + LEAST_DETAILS < self.size.height
        if node is None or self.overview.display or self.console.moment is not None or not few:
            return "", ()
        from rankdeck.ui import node_page  # behind the first picture

        width = self.size.width - 2 * len(INDENT)
        _, *reasons = node_page.reason_lines(node, width, self.console.glyphs) or [[]]
        return printable_line(node.name), [shift_runs(line, MARGIN) for line in reasons]

    def action_describe(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        if self.table.cursor:
            self.on_vtable_opened(VTable.Opened(self.table.cursor))

    def look(self, view: FleetView, name: str | None = None) -> None:
        """Show this view; `name` is the name under which it is saved, ""
        for none, None: the same as before.
        """
        self.view = view
        self.list_filter.put(view.filter)
        if name is not None:
            self.view_name, self._kept = name, view
        self.on_resize()
        self._map_seen = ()
        self._rearrange()
        self._show_map()

    def action_sort(self) -> None:
        self.look(replace(self.view, sort=(next_choice(fleet_views.SORTS, self.view.sort[0]),)))

    def action_reverse(self) -> None:
        self.look(replace(self.view, reversed=not self.view.reversed))

    def action_metric(self) -> None:
        self.look(replace(self.view, map=next_choice(fleet_views.MAPS, self.view.map)))

    def action_copy(self) -> None:
        nodes = self.targets
        if nodes:
            self.console.copy(fold_nodes(nodes), printable_line(nodes_phrase(nodes)))

    # ---- marks, and what is done with the marked nodes

    @property
    def marked(self) -> tuple[str, ...]:
        """The marked nodes, in the order of the cluster file."""
        return tuple(name for name in self._states if name in self.marks)

    @property
    def targets(self) -> tuple[str, ...]:
        """The marked nodes, else the one under the cursor."""
        here = (self.table.cursor,) if self.table.cursor else ()
        return self.marked or here

    def mark(self, rows: Iterable[str]) -> None:
        """Mark exactly these nodes."""
        super().mark(rows)
        self._show_info()

    def matching(self, text: str) -> list[str]:
        """The nodes that this filter keeps; raises QueryError."""
        matches = query.parse_query(text)
        return [name for name in self._states if matches(self._instant.subject(name))]

    def action_run(self) -> None:
        ask_command(self)

    def without_effect(self) -> Iterable[str]:
        if not self.targets:
            yield from ("open", "describe", "logs", "run", "shell", "processes", "mark", "copy")
        if not is_acknowledgeable(self.console, self.targets):
            yield "acknowledge"
        yield from self.idle_steps()

    def action_acknowledge(self) -> None:
        ask_to_acknowledge(self)

    def answered(self, text: str | None) -> None:
        run_answer(self, text)

    def _narrowed(self) -> None:
        self.look(replace(self.view, filter=self.list_filter.text))

    def _rearrange(self) -> None:
        self._arrange()
        self.table.refresh()
        self._show_info()
