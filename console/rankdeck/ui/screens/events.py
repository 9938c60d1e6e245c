"""The events screen: what happened on all nodes, newest first."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.widget import Widget

from rankdeck.logs.goal import GOALS, goal_of
from rankdeck.model.health import Occurrence, with_device
from rankdeck.model.safe_text import printable_line
from rankdeck.rules import query
from rankdeck.ui import formatting, snapshots
from rankdeck.ui.event_times import draw_event_times
from rankdeck.ui.operations import acknowledge_reasons, unknown_reasons
from rankdeck.ui.screens import modals
from rankdeck.ui.screens.base import BaseScreen, Details, ListFilter, no_match
from rankdeck.ui.screens.modals import row_lines
from rankdeck.ui.widgets.canvas import Runs, TextPage
from rankdeck.ui.widgets.vtable import Column, VTable
from rankdeck_agent.rules.levels import Level, Sentence

NOTHING_YET = "nothing has happened on the nodes since this console was opened"
TALL = 30
"""On screens of at least so many lines, the times of the events are above the list."""
SHOWN = 2000
"""Most events in the table."""


class EventsScreen(BaseScreen):
    """The event log of the fleet as a table."""

    screen_name: ClassVar[str] = "events"
    needs_session: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[str, Occurrence] = {}
        self._seen: tuple[object, ...] = ()
        self._drawn: tuple[object, ...] = ()
        """What the times above the list were drawn from."""
        hint = "words, age<2h, state=bad, node=n[01-04], check=disk.full"
        self.list_filter = ListFilter(self, hint, self._narrowed)
        self.main = self.table = VTable(self._columns(), empty=NOTHING_YET, on_top=True)
        self.below = Details(self.table)
        self.table.sorted_by = ("TIME",)
        self.times = TextPage(id="times", can_focus=False, wraps=False)
        self.times.display = False

    def body(self) -> Iterable[Widget]:
        return self.times, self.table

    def _columns(self) -> tuple[Column, ...]:
        return (
            Column("TIME", 8, lambda row, _: [(formatting.format_clock(self._rows[row].at), "dim")], keep=9),
            Column("NODE", 14, lambda row, _: [(printable_line(self._rows[row].node), "text")], keep=8),
            Column("STATE", 9, lambda row, _: self._level(row), keep=10),
            Column("KIND", 5, lambda row, _: [(self._rows[row].kind, "dim")], keep=4),
            Column("CHECK", 16, lambda row, _: [(printable_line(self._rows[row].check), "accent")], keep=6),
            Column("WHAT", 12, lambda row, _: self._what(row), keep=7, grow=True, least=50),
        )  # fmt: skip

    def _level(self, row: str) -> Runs:
        return self._level_of(self._rows[row])

    def _level_of(self, one: Occurrence) -> Runs:
        level = one.level
        if level is Level.OK and one.kind == "event":
            return [(f"{self.console.glyphs.dot} info", "dim")]
        mark = self.console.glyphs.level(level)
        return [(f"{mark.glyph} {level.word}", mark.role)]

    def _what(self, row: str) -> Runs:
        return [(formatting.describe_occurrence(self._rows[row]), "text")]

    def tick(self) -> None:
        journal = self.console.fleet.event_log
        text = self.list_filter.text
        # A filter by age leaves out more and more as time passes.
        passing = int(self.console.fleet.wall()) if "age" in text else 0
        seen = (journal, journal.total, text, passing)
        if seen == self._seen:
            self._show_times()
            return
        self._seen = seen
        newest = list(journal.newest)[-SHOWN:]
        # Numbered from the first event on, so that a row keeps its name when others come.
        numbered = zip(range(journal.total, 0, -1), reversed(newest), strict=False)
        # A node may tell late what happened earlier.
        named = sorted(numbered, key=lambda pair: -pair[1].at)
        self._rows = {str(n): one for n, one in named if self.list_filter.matches(_subject(one))}
        self.table.show(list(self._rows))
        self.table.refresh()
        self._show_times()

    def _show_times(self) -> None:
        """Show when the listed events were, where there is room above the list."""
        width, height = self.size
        now = self.console.fleet.wall()
        drawn = (self._seen, self.size, self.console.ascii, int(now))
        if drawn == self._drawn:
            return
        self._drawn = drawn
        listed = list(self._rows.values()) if height >= TALL else []
        lines = draw_event_times(listed, now, width, self.console.glyphs)
        self.times.display = bool(lines)
        self.times.styles.height = len(lines) + 1
        self.times.show(lines)

    def without_effect(self) -> Iterable[str]:
        one = self._rows.get(self.table.cursor)
        if one is None:
            return ("open", "describe", "goto", "copy", "acknowledge")
        return () if self._stands(one) else ("acknowledge",)

    def _stands(self, one: Occurrence) -> bool:
        """Whether the event is still a reason that is not acknowledged."""
        fleet = self.console.fleet
        return fleet.knows(one.node) and (one.node, one.check, one.device) in (
            unknown_reasons(self.console, (one.node,))
        )

    def whole(self) -> tuple[str, Sequence[Runs]]:
        row = self.table.cursor
        one = self._rows.get(row)
        if one is None:
            return "", ()
        *cells, (title, _) = self.table.whole(row)
        return "Event", row_lines([*cells, (title, with_device(one.device, one.text, one.check))])

    def details(self) -> tuple[str, Sequence[Runs]]:
        """What it means and what to do, what the row cuts, and what else the node told."""
        row = self.table.cursor
        one = self._rows.get(row)
        if one is None:
            return "", ()
        sentence = Sentence.of(one.text)
        cut = self.table.unseen(row)
        seen = with_device(one.device, one.seen, one.check) if "WHAT" in dict(cut) else ""
        cells = [("what", seen), ("means", sentence.means), ("do", sentence.action)]
        lines = row_lines([*cells, *(cell for cell in cut if cell[0] != "WHAT")])
        others = self._of_node(row, one.node, self.below_room - len(lines) - 2)
        return "Event", [*lines, *others]

    def _of_node(self, row: str, node: str, room: int) -> list[Runs]:
        """The other events of this node that are listed, those next to `row` in time first to have
        room; [] if there is none.
        """
        mine = [name for name, one in self._rows.items() if one.node == node]
        at = mine.index(row)
        near = sorted(range(len(mine)), key=lambda place: abs(place - at))[1:]  # itself is nearest
        shown = {mine[place] for place in near[: max(room, 0)]}
        if not shown:
            return []
        lines = [self._short_line(self._rows[name]) for name in mine if name in shown]
        return [[], [(f"also on {printable_line(node)}", "dim")], *lines]

    def _short_line(self, one: Occurrence) -> Runs:
        state: Runs = self._level_of(one)
        return [
            (f"{formatting.format_clock(one.at)}  ", "dim"),
            *[(f"{text:<8}", role) for text, role in state],
            (formatting.describe_occurrence(one), "text"),
        ]

    # ---- actions

    def action_copy(self) -> None:
        if one := self._rows.get(self.table.cursor):
            self.console.copy(with_device(one.device, one.text, one.check), "this event")

    def action_goto(self) -> None:
        self.prompt.ask("#", "", GOALS)

    def go_to(self, text: str) -> None:
        """Go to the row or time that `text` names: for a time, to the
        newest event that is not later.
        """
        try:
            goal = goal_of(text, self.console.fleet.wall())
        except ValueError as error:
            self.say(str(error), "warn")
            return
        rows = list(self._rows.values())
        if not rows:
            return
        if goal.at is None:
            place = goal.row(len(rows))
        else:
            place = next((n for n, one in enumerate(rows) if one.at <= goal.at), len(rows) - 1)
        self.table.go(place)

    def on_vtable_opened(self, message: VTable.Opened) -> None:
        self._open(message.row)

    def action_open(self) -> None:
        self._open(self.table.cursor)

    def _open(self, row: str) -> None:
        """Open the node as it was at the time of the event."""
        if one := self._rows.get(row):
            self.console.moment = snapshots.step_moment(self.console.fleet, one.at, 0)
            self.console.open_node(one.node, one.at)

    def action_acknowledge(self) -> None:
        one = self._rows.get(self.table.cursor)
        if one is not None and self._stands(one):
            modals.ask_acknowledgement(self)
        else:
            self.refuse("nothing to acknowledge: this is over, or acknowledged already")

    def _narrowed(self) -> None:
        self.table.empty = no_match("event") if self.list_filter.text else NOTHING_YET
        self.refresh_now()

    def answered(self, text: str | None) -> None:
        if text and self.prompt.mode == "#":
            self.go_to(text)
        elif text and (one := self._rows.get(self.table.cursor)):
            acknowledge_reasons(self, text, [(one.node, one.check, one.device)])


def _subject(one: Occurrence) -> query.Subject:
    text = f"{one.node} {one.kind} {one.check} {one.device} {one.text}"
    checks = frozenset({one.check})
    return query.Subject(text, one.level.word, lambda metric: None, one.node, checks, at=one.at)
