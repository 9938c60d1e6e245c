"""One log on the whole screen: follows, really stops, searches, wraps."""

from collections.abc import Callable, Iterator

from rich.cells import cell_len, chop_cells
from textual import events

from rankdeck.logs.search import Search
from rankdeck.logs.source import Source
from rankdeck.state.lines import Line
from rankdeck.ui.clean import clean
from rankdeck.ui.widgets.canvas import Canvas, Run, Runs, ends, fit
from rankdeck.ui.widgets.logwall import titled
from rankdeck.ui.widgets.text import shifted

ASIDE = 16


class LogView(Canvas, can_focus=True):
    """Lines of a Source. `follow` is a property of the view: reading on never stops."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.log_source: Source | None = None
        self.title: Runs = ()
        self.follow = True
        self.wrap = False
        self.left = 0
        self.search: Search | None = None
        self.stamp: Callable[[float], str] = lambda at: ""
        self.prefix: Callable[[Line], Run] | None = None
        """What stands before a line, e.g. its rank in a merged log."""
        self._top = 0
        """Number of the first line shown, while not following."""
        self._left_at = 0
        """`total` when following stopped."""
        self._match: int | None = None
        self._seen: tuple[object, ...] = ()
        self._rows: list[Runs] = []

    # ---- told what to show

    def open(self, source: Source, prefix: Callable[[Line], Run] | None = None) -> None:
        """Show this log from its end."""
        self.log_source, self.prefix = source, prefix
        self.follow, self.left, self._match = True, 0, None
        self.find(self.search.text if self.search else "")
        self.repaint()

    def tick(self, title: Runs) -> None:
        """Look whether there is anything new to paint."""
        source = self.log_source
        if source is None:
            return
        searched = self.search is not None and self.search.update(source)
        seen = (
            tuple(title),
            source.total,
            source.partial if self.follow else None,
            self.follow,
        )
        if seen != self._seen or searched:
            self._seen, self.title = seen, title
            self.repaint()

    def repaint(self) -> None:
        """Lay out and paint anew."""
        if self.log_source is not None and self.size.height > 1:
            self._rows = (
                self._follow_rows() if self.follow else self._rows_from(self._top)
            )
        self.refresh()

    # ---- moving

    @property
    def body(self) -> int:
        return max(self.size.height - 1, 1)

    def start_following(self) -> None:
        """To the newest line, and stay there."""
        self.follow, self._match = True, None
        self.repaint()

    def scroll_lines(self, steps: int) -> None:
        """Up or down by lines; up stops following."""
        source = self.log_source
        if source is None:
            return
        if self.follow:
            if steps >= 0:
                return
            self._top = max(source.total - self._tail_lines(), source.first)
            self._stop()
        self._top = min(
            max(self._top + steps, source.first), max(source.total - 1, source.first)
        )
        if steps > 0 and source.total - self._top < self._tail_lines():
            self.start_following()
            return
        self.repaint()

    def _stop(self) -> None:
        assert self.log_source is not None
        if self.follow:
            self.follow, self._left_at = False, self.log_source.total

    def scroll_aside(self, steps: int) -> None:
        self.left = max(self.left + steps, 0)
        self.repaint()

    def on_key(self, event: events.Key) -> None:
        everything = 1 << 40
        steps = {
            "down": 1, "j": 1, "up": -1, "pagedown": self.body - 1, "space": self.body - 1,
            "pageup": 1 - self.body, "b": 1 - self.body, "home": -everything, "g": -everything,
        }.get(event.key)  # fmt: skip
        aside = {"right": ASIDE, "left": -ASIDE, "h": -ASIDE}.get(event.key)
        if steps is not None:
            event.stop()
            self.scroll_lines(steps)
        elif aside is not None:
            event.stop()
            self.scroll_aside(aside)
        elif event.key in ("G", "upper_g"):
            event.stop()
            self.start_following()

    def on_mouse_scroll_down(self) -> None:
        self.scroll_lines(3)

    def on_mouse_scroll_up(self) -> None:
        self.scroll_lines(-3)

    def on_resize(self) -> None:
        self.repaint()

    # ---- searching

    def find(self, text: str) -> None:
        """Mark every match of `text`; "" marks nothing."""
        self.search = Search(text) if text else None
        self._match = None
        if self.search and self.log_source:
            self.search.update(self.log_source)
        self.repaint()

    def jump(self, *, back: bool) -> bool:
        """Go to the next match; False where there is none."""
        if self.search is None or self.log_source is None:
            return False
        bottom = self.log_source.total
        here = (
            self._match
            if self._match is not None
            else (bottom if self.follow else self._top - 1)
        )
        number = self.search.before(here) if back else self.search.after(here)
        if number is None:
            return False
        self._stop()
        self._match = number
        if not self._top <= number < self._top + self.body - 1 or self.wrap:
            self._top = max(number - self.body // 3, self.log_source.first)
        self.repaint()
        return True

    # ---- laying out

    def _tail_lines(self) -> int:
        """How many whole lines the end of the log has room for."""
        return max(self._follow_count, 1)

    _follow_count = 1

    def _follow_rows(self) -> list[Runs]:
        rows: list[Runs] = []
        self._follow_count = 0
        for number, line in self._backwards():
            rows[:0] = self._lay(number, line)
            self._follow_count += 1
            if len(rows) >= self.body:
                break
        return rows[-self.body :]

    def _backwards(self) -> Iterator[tuple[int, Line]]:
        source = self.log_source
        assert source is not None
        if partial := source.partial:
            yield source.total, partial
        for back in range(1, len(source.lines) + 1):
            yield source.total - back, source.lines[-back]

    def _rows_from(self, top: int) -> list[Runs]:
        source = self.log_source
        assert source is not None
        self._top = top = max(top, source.first)
        rows: list[Runs] = []
        start = top - source.first
        for number, line in enumerate(source.lines[start : start + self.body], top):
            rows += self._lay(number, line)
        if len(rows) < self.body and (partial := source.partial):
            rows += self._lay(source.total, partial)
        return rows[: self.body]

    def _lay(self, number: int, line: Line) -> list[Runs]:
        shown = clean(line.text)
        head: list[Run] = [(self.stamp(line.at), "dim")]
        if self.prefix:
            head.append(self.prefix(line))
        room = max(self.size.width - sum(cell_len(text) for text, _ in head) - 1, 10)
        role = "stderr" if line.stream == "err" else "text"
        runs = self._marked(shown, role, chosen=number == self._match)
        if not self.wrap:
            return [[*head, *shifted(runs, self.left)]]
        if cell_len(shown) <= room:
            return [[*head, *runs]]
        pieces = chop_cells(shown, room)
        blank = (" " * sum(cell_len(text) for text, _ in head), "dim")
        return [
            [*(head if not at else [blank]), (piece, role)]
            for at, piece in enumerate(pieces)
        ]

    def _marked(self, shown: str, role: str, *, chosen: bool) -> list[Run]:
        spans = self.search.spans(shown) if self.search else []
        if not spans:
            return [(shown, role)]
        runs: list[Run] = []
        at = 0
        for start, end in spans:
            runs += [(shown[at:start], role), (shown[start:end], "match")]
            at = end
        runs.append((shown[at:], role))
        if chosen:
            runs = [
                (text, name if name == "match" else f"{name}@selection")
                for text, name in runs
            ]
        return runs

    # ---- painting

    def line(self, y: int, width: int) -> Runs:
        if y == 0:
            return self._heading(width)
        return self._rows[y - 1] if y - 1 < len(self._rows) else []

    def _heading(self, width: int) -> Runs:
        status = self._status()
        room = width - sum(cell_len(text) for text, _ in status) - 1
        bar = titled(self.title, max(room, 10), self.glyphs, chosen=True)
        return ends(bar, status, width)

    def _status(self) -> list[Run]:
        source = self.log_source
        if source is None:
            return []
        runs: list[Run] = []
        if self.search:
            runs.append(
                (
                    f" /{fit(self.search.text, min(len(self.search.text), 20))} {self.search.count(self._match)} ",
                    "match",
                )
            )
        if self.follow:
            return [*runs, (" following ", "ok")]
        fresh = source.total - self._left_at
        if fresh:
            runs.append((f" +{fresh:,} new ", "warn"))
        return [*runs, (" stopped, f follows ", "dim")]
