"""What screens and widgets may use of the app: `rankdeck.ui.app.RankdeckApp` is the real one."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from textual.screen import Screen

from rankdeck.model.health import Level
from rankdeck.ui.session_protocol import SessionProtocol
from rankdeck.ui.themes import Glyphs, Palette
from rankdeck.ui.tour import Tour


class Theme(Protocol):
    """How things are drawn: all that a widget needs to know of the app."""

    palette: Palette
    glyphs: Glyphs
    ascii: bool
    """Draw with ASCII only."""


class Console(Theme, Protocol):
    """What screens may use of the app."""

    session: SessionProtocol
    opened: bool
    """Whether `session` is the real one, not its stand-in."""
    trouble: str
    """Why the session failed; "" while it has not."""
    palettes: dict[str, Palette]
    summary: Counter[Level]
    """How many nodes are at each level."""
    moment: float | None
    """Epoch seconds that Fleet and Node show; None: now."""
    views_file: Path
    tour: Tour
    first_job: str
    first_replay: float

    @property
    def top_screen(self) -> Screen[None] | None:
        """The topmost screen that is not a dialog."""
        ...

    @property
    def at_home(self) -> bool:
        """Whether a main screen is shown, with nothing on top of it."""
        ...

    def say(self, text: str, role: str = "text") -> None:
        """Show a sentence in the last line, in the colour of `role`."""
        ...

    def copy(self, text: str, what: str) -> None:
        """Copy `text` to the clipboard and say that `what` was copied."""
        ...

    def show_whole(self, title: str, lines: Sequence[Sequence[tuple[str, str]]]) -> None:
        """Show the full text of what is under the cursor, on top of the screen."""
        ...

    def goto(self, name: str) -> None:
        """Show the main screen of that name, with nothing on top of it."""
        ...

    def home(self, name: str) -> Screen[None]:
        """The main screen of that name; made on first use."""
        ...

    def open_node(self, name: str, at: float | None = None) -> None:
        """Show a node; with `at` (epoch seconds), mark what happened there around that time."""
        ...

    def open_job(self, job_id: str) -> None: ...

    def run_command(self, text: str) -> None:
        """Carry out the command that was typed after `:`."""
        ...

    def choices(self, argument: str) -> list[str]:
        """The possible values of this argument of a command, for completion."""
        ...

    def choose_theme(self, name: str) -> None: ...

    def set_alphabet(self, *, ascii_only: bool) -> None: ...

    def paint_anew(self) -> None: ...

    def use_mouse(self, *, on: bool) -> None:
        """Take the mouse, or leave it to the terminal so that the user can select text."""
        ...

    async def lend_terminal(self, argv: Sequence[str], note: str) -> int:
        """Give the terminal to another program until it ends; returns its exit status."""
        ...

    def catch_up(self) -> None:
        """Take over what the session has judged since the last call, and tell the session what is on screen."""
        ...

    def action_help(self) -> None: ...

    def leave(self) -> None:
        """End the console."""
        ...

    # ---- of textual.app.App

    def push_screen(
        self, screen: Screen[Any], callback: Callable[[Any], None] | None = None
    ) -> object: ...

    def pop_screen(self) -> object: ...

    def run_worker(
        self,
        work: Awaitable[None],
        name: str = "",
        group: str = "default",
        *,
        exclusive: bool = False,
    ) -> object: ...

    def call_after_refresh(self, callback: Callable[..., Any], *args: Any) -> bool: ...  # noqa: ANN401 - as Textual's
