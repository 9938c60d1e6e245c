"""A few lines of `name  text` that are typed into; told at every key."""

from collections.abc import Mapping, Sequence

from textual import events
from textual.message import Message

from rankdeck.ui.widgets.canvas import Canvas, Run, Runs


class Form(Canvas, can_focus=True):
    """Fields, one a line; up and down choose one, other keys edit it."""

    class Changed(Message):
        """Some text is another one now."""

    def __init__(self, labels: Sequence[tuple[str, str]], *, id: str) -> None:
        super().__init__(id=id)
        self._labels = tuple(labels)
        self._width = max(len(label) for _, label in labels) + 2
        self.values: dict[str, str] = {key: "" for key, _ in labels}
        self._field = 0
        self._cursor = 0
        self.styles.height = len(labels)

    def fill(self, values: Mapping[str, str]) -> None:
        """Begin with these texts."""
        self.values = {key: values.get(key, "") for key, _ in self._labels}
        self._cursor = len(self._text)
        self.refresh()

    @property
    def _key(self) -> str:
        return self._labels[self._field][0]

    @property
    def _text(self) -> str:
        return self.values[self._key]

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def on_key(self, event: events.Key) -> None:
        if event.key in ("up", "down"):
            self._choose(1 if event.key == "down" else -1)
        elif event.key in ("left", "right", "home", "end"):
            ends = {"home": 0, "end": len(self._text)}
            step = {"left": -1, "right": 1}.get(event.key, 0)
            at = ends.get(event.key, self._cursor + step)
            self._cursor = min(max(at, 0), len(self._text))
        elif not self._edit(event):
            return
        event.stop()
        event.prevent_default()
        self.refresh()

    def _choose(self, steps: int) -> None:
        self._field = (self._field + steps) % len(self._labels)
        self._cursor = len(self._text)

    def _edit(self, event: events.Key) -> bool:
        """Change the text; False where the key is none of ours."""
        before, after = self._text[: self._cursor], self._text[self._cursor :]
        if event.key == "backspace":
            before = before[:-1]
        elif event.key == "delete":
            after = after[1:]
        elif event.key == "ctrl+u":
            before = ""
        elif event.character and event.is_printable:
            before += event.character
        else:
            return False
        self._cursor = len(before)
        if before + after != self._text:
            self.values[self._key] = before + after
            self.post_message(self.Changed())
        return True

    def on_click(self, event: events.Click) -> None:
        if event.y < len(self._labels):
            self._field = event.y
            self._cursor = len(self._text)
            self.refresh()

    def line(self, y: int, width: int) -> Runs:
        if y >= len(self._labels):
            return []
        key, label = self._labels[y]
        here = self.has_focus and y == self._field
        head: list[Run] = [
            (f" {label:<{self._width}}", "key" if here else "dim"),
        ]
        text = self.values[key]
        if not here:
            return [*head, (text, "text")]
        # The cursor stays in sight however long the text is.
        start = max(0, self._cursor - (width - self._width - 3))
        at = text[self._cursor : self._cursor + 1] or " "
        return [
            *head,
            (text[start : self._cursor], "title"),
            (at, "title@selection"),
            (text[self._cursor + 1 :], "title"),
        ]
