"""The line for typing: commands after `:`, filters and searches after `/`."""

from collections.abc import Callable, Sequence

from rich.segment import Segment
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widgets import Input

REMEMBERED = 50
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

    def ask(self, mode: str, text: str = "", hint: str = "") -> None:
        """Begin to ask; the answer comes as Done."""
        self.mode, self.placeholder = mode, hint
        self.styles.padding = (0, 1, 0, len(self._label))
        self.value = text
        self.cursor_position = len(text)
        self._choices = []
        self._back = 0
        self.display = True
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
        """Hide again."""
        self.display = False

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
