"""The messages screen: log records of Rankdeck itself, newest first."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rankdeck.model.safe_text import printable_line
from rankdeck.state.fleet_history import LogMessage
from rankdeck.ui import formatting
from rankdeck.ui.screens.base import BaseScreen, Details, ListFilter, last_line_first, no_match
from rankdeck.ui.screens.job_glance import JobGlance
from rankdeck.ui.screens.modals import row_lines
from rankdeck.ui.widgets.canvas import Runs
from rankdeck.ui.widgets.vtable import Column, VTable
from rankdeck_agent.rules.levels import Level

NOTHING = "nothing to report"
SIGNS = {
    "error": (Level.BAD, "error"),
    "critical": (Level.BAD, "error"),
    "warning": (Level.WARN, "warn"),
}
"""Level of a log record -> the level whose sign it gets, and the word for it."""
WIDE, FROM, MOST_FROM = 120, 14, 40
"""From a screen of WIDE cells on, sources have up to MOST_FROM cells instead of FROM."""


class MessagesScreen(BaseScreen):
    """Log records of Rankdeck as a table."""

    screen_name: ClassVar[str] = "messages"
    needs_session: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[str, LogMessage] = {}
        self._seen: tuple[object, ...] = ()
        self.list_filter = ListFilter(self, "words", self.refresh_now, language=False)
        self._glance = JobGlance(self)
        self.main = self.table = VTable(self._columns(FROM), empty=NOTHING, on_top=True)
        self.below = Details(self.table)
        self.table.sorted_by = ("TIME",)

    def _columns(self, source: int) -> tuple[Column, ...]:
        return (
            Column("TIME", 8, lambda row, _: [(formatting.format_clock(self._rows[row].at), "dim")], keep=9),
            Column("LEVEL", 7, lambda row, _: self._level(row), keep=10),
            Column("FROM", source, lambda row, _: [(printable_line(self._rows[row].source), "accent")], keep=6),
            Column("WHAT", 12, lambda row, _: self._what(row), keep=11, grow=True, least=50),
        )  # fmt: skip

    def _level(self, row: str) -> Runs:
        known = SIGNS.get(self._rows[row].level)
        if known is None:
            return [("  info", "dim")]
        mark = self.console.glyphs.level(known[0])
        return [(f"{mark.glyph} {known[1]}", mark.role)]

    def _what(self, row: str) -> Runs:
        return [(printable_line(self._rows[row].text, 4000), "text")]

    def tick(self) -> None:
        messages, text = self.console.need_session().messages, self.list_filter.text
        seen = (messages, messages.total, text, self.console.ascii)
        if seen == self._seen:
            return
        self._seen = seen
        # Numbered from the first message on, so that a row keeps its name when others come.
        numbered = zip(range(messages.total, 0, -1), reversed(messages.records), strict=False)
        self._rows = {
            str(n): one for n, one in numbered if text.lower() in f"{one.source} {one.text}".lower()
        }
        self._fit_sources()
        self.table.empty = no_match("message") if text else NOTHING
        self.table.show(list(self._rows))
        self.table.refresh()

    def _fit_sources(self) -> None:
        longest = max((len(one.source) for one in self._rows.values()), default=0)
        wide = self.size.width >= WIDE
        self.table.columns = self._columns(min(max(longest, FROM), MOST_FROM) if wide else FROM)

    def on_resize(self) -> None:
        self._fit_sources()
        self.table.refresh()

    def without_effect(self) -> Iterable[str]:
        if not self.table.cursor:
            yield from ("open", "describe", "copy")
        elif not (self._job or self._node):
            yield "open"

    @property
    def _source(self) -> str:
        """Who sent the message under the cursor."""
        one = self._rows.get(self.table.cursor)
        return one.source if one else ""

    @property
    def _job(self) -> str:
        """The job that it is about; "" if it is about none."""
        return self._source if self.console.need_session().jobs.knows(self._source) else ""

    @property
    def _node(self) -> str:
        return self._source if self.console.fleet.knows(self._source) else ""

    def whole(self) -> tuple[str, Sequence[Runs]]:
        row = self.table.cursor
        return "Message", row_lines(self.table.whole(row)) if row else ()

    def details(self) -> tuple[str, Sequence[Runs]]:
        row = self.table.cursor
        title, lines = last_line_first(
            ("Message", row_lines(self.table.unseen(row)) if row else ())
        )
        if not self._job:
            return title, lines
        above: list[Runs] = [*lines, []] if lines else []
        job = self.console.need_session().jobs.job(self._job)
        return "Job", [*above, *self._glance.lines(job, len(above))]

    def on_vtable_opened(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        """Open the job or the node that the message is about, else the whole message."""
        if self._job:
            self.console.open_job(self._job)
        elif self._node:
            at = self._rows[self.table.cursor].at
            self.console.open_node(self._node, at)
        else:
            self.action_describe()

    def action_copy(self) -> None:
        if one := self._rows.get(self.table.cursor):
            self.console.copy(
                f"{printable_line(one.source)}  {printable_line(one.text)}", "this message"
            )
