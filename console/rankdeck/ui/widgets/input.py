"""Lines for typing: commands, filters and searches, and the fields of a form."""

from collections.abc import Callable, Mapping, Sequence

from rich.segment import Segment
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

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
        """Change the text; False if the key is none of ours."""
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
        head: list[Run] = [(f" {label:<{self._width}}", "key" if here else "dim")]
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


REMEMBERED = 50
REPLACED = ("/", "&", "V", "r")
"""Modes in which what is typed takes the place of the text before; an arrow key begins to change that."""
Complete = Callable[[str], Sequence[str]]


class Prompt(Input):
    """Hidden until asked for; tab completes, escape gives up."""

    class Typed(Message):
        """The text changed."""

        def __init__(self, mode: str, text: str) -> None:
            super().__init__()
            self.mode, self.text = mode, text

    class Done(Message):
        """Enter, or escape (`text` None)."""

        def __init__(self, mode: str, text: str | None) -> None:
            super().__init__()
            self.mode, self.text = mode, text

    def __init__(self, complete: Complete) -> None:
        super().__init__(compact=True, select_on_focus=False)
        self.cursor_blink = False
        self.display = False
        self.mode = ":"
        self._complete = complete
        self._choices: list[str] = []
        self._said: dict[str, list[str]] = {}
        self._back = 0
        self._before: Widget | None = None
        """What had the keys before."""

    def ask(self, mode: str, text: str = "", hint: str = "") -> None:
        """Begin to ask; the answer comes as Done."""
        self.mode, self.placeholder = mode, hint
        self.styles.padding = (0, 1, 0, len(self._label))
        self.value = text
        self.cursor_position = len(text)
        if mode in REPLACED:
            self.select_all()
        self._choices = []
        self._back = 0
        self.display = True
        if not self.has_focus:
            self._before = self.screen.focused
        # At once, before keys that were typed with the one that asks; and again in the queue,
        # behind a view that was opened for it.
        self.screen.set_focus(self)
        self.focus()

    @property
    def _label(self) -> str:
        """What stands before the text: a sign as it was typed, or a word."""
        return self.mode if len(self.mode) == 1 else f" {self.mode.strip()}: "

    def render_lines(self, crop: Region) -> list[Strip]:
        """The line with its label, for which the padding on the left has room."""
        strips = super().render_lines(crop)
        label = self._label[crop.x : crop.right]
        if not label or not strips:
            return strips
        before = Strip([Segment(label, self.rich_style)])
        rest = strips[0].crop(len(label), crop.width)
        return [Strip.join([before, rest]), *strips[1:]]

    def end(self) -> None:
        """Hide again, and give the keys back."""
        self.display = False
        self.screen.set_focus(self._before)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.display:
            self.post_message(self.Typed(self.mode, self.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.end()
        self._remember()
        self.post_message(self.Done(self.mode, self.value))

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape" or (event.key == "backspace" and not self.value):
            event.stop()
            event.prevent_default()
            self.end()
            self.post_message(self.Done(self.mode, None))
        elif event.key == "tab":
            event.stop()
            event.prevent_default()
            self._next_choice()
        elif event.key in ("up", "down"):
            event.stop()
            event.prevent_default()
            self._recall(1 if event.key == "up" else -1)

    def _remember(self) -> None:
        said = self._said.setdefault(self.mode, [])
        if self.value.strip() and self.value not in said[-1:]:
            said.append(self.value)
            del said[:-REMEMBERED]

    def _recall(self, steps: int) -> None:
        """What was typed before in this mode; down comes back to the newest."""
        said = self._said.get(self.mode, [])
        self._back = min(max(self._back + steps, 0), len(said))
        self.value = said[-self._back] if self._back else ""
        self.cursor_position = len(self.value)

    def _next_choice(self) -> None:
        if self.mode != ":":
            return
        if self.value not in self._choices:
            self._choices = list(self._complete(self.value))
            at = 0
        else:
            at = (self._choices.index(self.value) + 1) % len(self._choices)
        if self._choices:
            self.value = self._choices[at]
            self.cursor_position = len(self.value)
