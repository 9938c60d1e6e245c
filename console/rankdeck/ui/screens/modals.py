"""Dialogs: questions before something is done, and reports afterwards."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.timer import Timer

from rankdeck.errors import HostKeyError, UntrustedError
from rankdeck.model.nodeset import fold_nodes, fold_ranks
from rankdeck.model.safe_text import printable_line
from rankdeck.ui import formatting
from rankdeck.ui.actions import key_label
from rankdeck.ui.formatting import seconds_since
from rankdeck.ui.screens.base import BaseScreen
from rankdeck.ui.widgets.canvas import Run, Runs, TextPage, break_runs

if TYPE_CHECKING:
    from rankdeck.model.cancel_report import CancelReport
    from rankdeck.model.job import Job
    from rankdeck.ui.protocols import Console


ALONE = 0.05
"""Seconds for which a yes must stay the only key: a paste has more."""
PASTED = "keys that come together are a paste: nothing was done"
MOST_LINES = 16
_MOST_USES = 8
_LONGEST_WORD = 260
WIDE = 70
"""Width of a line in a question, in cells."""


class Question(ModalScreen[bool], inherit_bindings=False):
    """Some lines and two answers; escape is the safe answer."""

    yes: ClassVar[tuple[str, ...]] = ("enter", "y")
    """The keys for yes, and for no; the first is shown."""
    no: ClassVar[tuple[str, ...]] = ("escape", "n", "q")

    def __init__(self, title: str, lines: Sequence[Runs], yes: str, no: str = "") -> None:
        """`yes` and `no` say what these answers do."""
        super().__init__()
        self.title = title
        self.page = TextPage()
        answers: list[Run] = [(key_label(self.yes[0]), "key"), (f" {yes}", "text")]
        if no:
            answers += [("     ", "text"), (key_label(self.no[0]), "key"), (f" {no}", "text")]
        self._lines: list[Runs] = [*lines, [], answers]

    @property
    def console(self) -> "Console":
        return cast("Console", self.app)  # pyright: ignore[reportUnknownMemberType]

    def compose(self) -> ComposeResult:
        with Vertical(id="question") as box:
            box.border_title = printable_line(str(self.title))
            yield self.page

    def on_mount(self) -> None:
        box = self.query_one("#question")
        box.styles.height = min(len(self._lines), MOST_LINES) + 2

        self.page.show(self._lines)
        self.page.focus()

    def on_key(self, event: events.Key) -> None:
        if event.key in self.yes or event.key in self.no:
            event.stop()
            self.dismiss(event.key in self.yes)


class ChangeQuestion(Question):
    """A question before something is ended or changed: its letter says yes, enter says no.

    Keys that come together are a paste, and answer nothing.
    """

    yes: ClassVar[tuple[str, ...]] = ("y",)
    no: ClassVar[tuple[str, ...]] = ("enter", "escape", "n", "q")

    def __init__(self, title: str, lines: Sequence[Runs], yes: str, no: str) -> None:
        super().__init__(title, lines, yes, no)
        self._lines.append([])
        self._agreed: Timer | None = None

    def on_key(self, event: events.Key) -> None:
        """What it does not handle goes on to `Question`."""
        answers = event.key in (*self.yes, *self.no)
        together = self._agreed is not None or (answers and self.console.pasted)
        if not together and event.key not in self.yes:
            return
        event.stop()
        event.prevent_default()
        if not together:
            self._agreed = self.set_timer(ALONE, self._agree)
            return
        if self._agreed is not None:
            self._agreed.stop()
        self._agreed = None
        self._lines[-1] = [(PASTED, "warn")]
        self.page.show(self._lines)

    def _agree(self) -> None:
        self.dismiss(True)


class Whole(Question):
    """The full text of what does not fit on a line."""

    yes: ClassVar[tuple[str, ...]] = ("y",)
    no: ClassVar[tuple[str, ...]] = ("escape", "enter", "q", "d")

    def __init__(self, title: str, lines: Sequence[Runs]) -> None:
        super().__init__(title, lines, "copy", "back")
        self._whole = lines

    def on_mount(self) -> None:
        room = self.size
        width = max(min(room.width - 8, 140), 40)
        self._lines[:-2] = [piece for line in self._whole for piece in break_runs(line, width - 4)]
        super().on_mount()
        box = self.query_one("#question")
        box.styles.width = width
        box.styles.height = min(len(self._lines) + 2, room.height - 2)

    def on_key(self, event: events.Key) -> None:
        if event.key in self.yes:
            text_of_all = "\n".join(
                "".join(text for text, _ in line).rstrip() for line in self._whole
            )
            self.console.copy(text_of_all, "all of it")


def row_lines(cells: Sequence[tuple[str, str]]) -> list[Runs]:
    """The lines that show a row of a table, one for each column."""
    wide = max((len(title) for title, _ in cells), default=0)
    return [
        [(f"{title.lower():<{wide}}  ", "dim"), (printable_line(text, 4000), "text")]
        for title, text in cells
        if text
    ]


def cancel_question(job: "Job", tasks: Sequence[int] = ()) -> ChangeQuestion:
    """The question whether to end this job, or these tasks of an array."""
    how, proof = job.plan.can.proof
    running = sum(not rank.state.final for rank in job.ranks)
    which = fold_ranks(tasks) if tasks else f"{running} of {len(job.ranks)} not ended"
    if job.state.final:
        which = f"ended; not proven that nothing is left on {fold_nodes(job.unproven)}"
    lines: list[Runs] = [
        [("job    ", "dim"), (printable_line(job.id), "title")],
        *(
            [[("owner  ", "dim"), (printable_line(job.plan.owner), "warn")]]
            if job.plan.owner
            else []
        ),
        [(f"{job.unit}s  ", "dim"), (which, "text")],
        [("nodes  ", "dim"), (printable_line(fold_nodes(job.nodes)) or "not chosen yet", "text")],
        [("age    ", "dim"), (formatting.format_duration(seconds_since(job.created)), "text")],
        [],
        [(f"TERM now, KILL after {job.plan.grace:g} s, then {how}", "text")],
        [(proof, "text")],
    ]
    title = "Cancel these tasks?" if tasks else "Cancel this job?"
    return ChangeQuestion(title, lines, "cancel the job", "keep it running")


class TypedQuestion(Question):
    """A question about something that is hard to undo: a word must be
    typed, enter alone does nothing.
    """

    def __init__(self, title: str, lines: Sequence[Runs], word: str) -> None:
        super().__init__(title, lines, "do it")
        self._lines.append([])
        self._word, self._typed = word, ""
        self.page.can_focus = False
        self._show_typed()

    def _show_typed(self) -> None:
        right = self._typed == self._word
        self._lines[-2:] = [
            [("type ", "text"), (printable_line(self._word), "key"), (": ", "text"), (self._typed, "title"), ("▏", "dim")],
            [("enter", "key" if right else "dim"), (" do it     ", "text" if right else "dim"), ("esc", "key"), (" do nothing", "text")],
        ]  # fmt: skip
        self.page.show(self._lines)

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        if event.key == "escape":
            self.dismiss(False)
        elif event.key == "enter":
            if self._typed == self._word:
                self.dismiss(True)
        elif event.key in ("up", "down"):
            self.page.move(1 if event.key == "down" else -1)
        else:
            self._typed = edit_typed(self._typed, event, _LONGEST_WORD)
            self._show_typed()


def edit_typed(typed: str, event: events.Key, longest: int) -> str:
    """What stands in a line without a cursor after this key: one sign more or less, or none."""
    if event.key == "backspace":
        return typed[:-1]
    if event.key == "ctrl+u":
        return ""
    if event.character and event.is_printable and len(typed) < longest:
        return typed + event.character
    return typed


def lines_to_copy(title: str, lines: Sequence[str]) -> Question:
    """Commands for the user to run elsewhere; yes copies them."""
    shown: list[Runs] = [[(printable_line(line), "text")] for line in lines]
    shown += [[], [("Rankdeck runs none of these.", "dim")]]
    return Question(title, shown, "copy them", "close")


def report_note(report: "CancelReport") -> Question:
    """The dialog that says what the cancel has verified."""
    lines: list[Runs] = [[("job  ", "dim"), (printable_line(report.job), "title")], []]
    if not report.left and not report.unverified:
        lines.append([("nothing left", "ok"), (": no process of the job on any node", "text")])
    lines += [
        [
            ("left  ", "bad"),
            (f"{printable_line(left.node)} pid {left.pid}  ", "text"),
            (printable_line(left.command), "dim"),
        ]
        for left in report.left
    ]
    lines += [
        [
            ("not verified  ", "warn"),
            (f"{printable_line(node)}: ", "text"),
            (printable_line(why), "dim"),
        ]
        for node, why in report.unverified.items()
    ]
    title = "Cancelled" if not report.left else "Cancelled, but not everything is gone"
    return Question(title, lines, "close")


class TrustQuestion(ChangeQuestion):
    """A question whether to trust something.

    It may open by itself under somebody's hands: enter does nothing.
    """

    no: ClassVar[tuple[str, ...]] = ("n", "escape", "q")


def file_question(error: UntrustedError) -> TrustQuestion:
    """The question whether a file may read other files outside its folder."""
    lines: list[Runs] = [[(printable_line(error.file), "title")], []]
    lines += [
        [(f"line {p.line}  ", "dim"), (printable_line(f"{p.path}: {p.text}"), "text")]
        for p in error.problems[:_MOST_USES]
    ]
    if more := error.problems[_MOST_USES:]:
        lines.append([(f"and {len(more)} more", "warn")])
    return TrustQuestion("This file would run or read", lines, "agree and remember", "refuse")


def host_key_question(error: HostKeyError) -> TrustQuestion:
    """The question whether to trust a node's host key."""
    lines: list[Runs] = [
        [("node         ", "dim"), (printable_line(error.node), "title")],
        [("fingerprint  ", "dim"), (printable_line(error.fingerprint) or "not told", "accent")],
        [],
        [(printable_line(error.why), "text")],
    ]
    changed = not error.line
    if changed:
        lines.append([("Not the known key: possible man-in-the-middle attack.", "bad")])
    title = "The key of this node has changed" if changed else "Unknown host key"
    return TrustQuestion(title, lines, "trust it and remember", "refuse")


MODE = "acknowledge"
USUAL = "4h "


def ask_acknowledgement(screen: BaseScreen) -> None:
    """Ask how long and why to acknowledge; the answer goes to the screen's `answered`."""
    screen.prompt.ask(MODE, USUAL)
    screen.say("how long, and why: 4h cable is ordered", "dim")
