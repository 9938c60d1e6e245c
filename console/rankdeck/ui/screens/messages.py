"""The messages screen: log records of Rankdeck itself, newest last."""

import textwrap
from collections.abc import Iterable
from typing import ClassVar

from textual.widget import Widget

from rankdeck.model.text import printable
from rankdeck.ui import formatting
from rankdeck.ui.screens.base import BaseScreen, ListFilter
from rankdeck.ui.widgets.canvas import Runs, TextPage, fit, length

NO_MATCH = "no message matches the filter; esc shows all"
SIGNS = {
    "error": ("✗ error", "bad"),
    "critical": ("✗ error", "bad"),
    "warning": ("▲ warn ", "warn"),
}
PLAIN = {
    "error": ("X error", "bad"),
    "critical": ("X error", "bad"),
    "warning": ("^ warn ", "warn"),
}


class MessagesScreen(BaseScreen):
    """Log records of Rankdeck."""

    screen_name: ClassVar[str] = "messages"

    def __init__(self) -> None:
        super().__init__()
        self._seen: tuple[object, ...] = ()
        self.list_filter = ListFilter(self, "words", self.tick, language=False)
        self.page = TextPage()

    def body(self) -> Iterable[Widget]:
        return (self.page,)

    @property
    def main(self) -> Widget:
        return self.page

    def tick(self) -> None:
        messages = self.console.session.messages
        seen = (
            messages,
            messages.total,
            self.list_filter.text,
            self.console.glyphs,
            self.size.width,
        )
        if seen == self._seen:
            return
        self._seen = seen
        at_end = self.page.top >= self.page.last_top
        signs = PLAIN if self.console.ascii else SIGNS
        lines: list[Runs] = []
        for record in messages.records:
            text = printable(f"{record.source}  {record.text}")
            if self.list_filter.text.lower() not in text.lower():
                continue
            sign, role = signs.get(record.level, ("  info ", "dim"))
            head: Runs = [
                (f" {formatting.clock(record.at)}  ", "dim"),
                (sign, role),
                (
                    f"  {fit(printable(record.source), 14, self.console.glyphs.more)}  ",
                    "accent",
                ),
            ]
            lines += _wrapped(head, printable(record.text), self.size.width)
        nothing = NO_MATCH if self.list_filter.text else "nothing to report"
        self.page.show(lines or [[(f" {nothing}", "dim")]])
        if at_end:
            self.page.scroll_lines(len(lines))


def _wrapped(head: Runs, text: str, width: int) -> list[Runs]:
    """A message with its text in a column of its own, as many lines as it takes."""
    blank = " " * length(head)
    first, *others = textwrap.wrap(text, max(width - len(blank) - 1, 20)) or [""]
    rest: list[Runs] = [[(blank, "dim"), (line, "text")] for line in others]
    return [[*head, (first, "text")], *rest]
