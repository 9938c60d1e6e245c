"""The dialog in which the operator types what a server asks at a
login: a password, a one-time code.
"""

from textwrap import wrap

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen

from rankdeck.model.safe_text import printable_line
from rankdeck.remote.questions import Answers, LoginQuestion
from rankdeck.ui.screens.modals import MOST_LINES, WIDE, edit_typed
from rankdeck.ui.widgets.canvas import Runs, TextPage

_LONGEST = 1000


def _wrapped(text: str) -> list[str]:
    """The lines of a text, none wider than the dialog."""
    return [part for line in text.split("\n") for part in wrap(printable_line(line), WIDE) or [""]]


class LoginAnswer(ModalScreen[Answers], inherit_bindings=False):
    """What the server says, and a line to type for each of its prompts, one
    after the other; escape gives no answer.
    """

    def __init__(self, question: LoginQuestion) -> None:
        super().__init__()
        self._question = question
        self._answers: tuple[str, ...] = ()
        self._typed = ""
        self.page = TextPage()
        self.page.can_focus = False

    def compose(self) -> ComposeResult:
        with Vertical(id="question") as box:
            box.border_title = "Login"
            yield self.page

    def on_mount(self) -> None:
        self._show()

    def _show(self) -> None:
        asked = self._question
        lines: list[Runs] = [
            [("node   ", "dim"), (printable_line(asked.node), "title")],
            [("login  ", "dim"), (printable_line(asked.whom), "title")],
            [],
        ]
        if asked.again:
            lines += [[("The last answer was refused.", "warn")]]
        lines += [[(part, "warn")] for part in wrap(asked.warning, WIDE)]
        lines += [[(part, "text")] for part in _wrapped(asked.words)]
        prompt = asked.prompts[len(self._answers)]
        *before, last = _wrapped(prompt.text) or [""]
        typed = printable_line(self._typed) if prompt.echo else "*" * len(self._typed)
        lines += [[(part, "text")] for part in before]
        lines += [
            [(f"{last} ", "text"), (typed[-WIDE:], "title"), ("▏", "dim")],
            [],
            [
                ("enter", "key"),
                (" send     ", "text"),
                ("esc", "key"),
                (" stop all questions" if asked.more else " give no answer", "text"),
            ],
            [("It is kept in memory only, until Rankdeck ends.", "dim")],
        ]
        self.query_one("#question").styles.height = min(len(lines), MOST_LINES) + 2
        self.page.show(lines)

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        if event.key == "escape":
            self.dismiss(None)
        elif event.key == "enter":
            self._next()
        else:
            self._typed = edit_typed(self._typed, event, _LONGEST)
            self._show()

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        self._typed = (self._typed + event.text.partition("\n")[0])[:_LONGEST]
        self._show()

    def _next(self) -> None:
        self._answers, self._typed = (*self._answers, self._typed), ""
        if len(self._answers) == len(self._question.prompts):
            self.dismiss(self._answers)
        else:
            self._show()
