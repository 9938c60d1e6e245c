"""What screens and widgets may use of the app."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from textual.screen import Screen

from rankdeck.ui.themes import Glyphs, Palette
from rankdeck.ui.tour import Tour
from rankdeck.ui.unseen_ends import UnseenEnds
from rankdeck_agent.rules.levels import Level

if TYPE_CHECKING:
    from rankdeck.model.cluster import Cluster
    from rankdeck.session import Session
    from rankdeck.state.fleet import Fleet


class Theme(Protocol):
    """How things are drawn: all that a widget needs to know about the app."""

    palette: Palette
    glyphs: Glyphs
    ascii: bool
    """Draw with ASCII only."""


class Console(Theme, Protocol):
    """What screens may use of the app."""

    cluster: Cluster
    """The cluster as its file describes it."""
    first_cluster: Cluster
    """The cluster for which the console was started, before any `change_cluster`."""
    session: Session | None
    """The open cluster; None until it is open. Its requests: `need_session`."""
    trouble: str
    """Why the session failed; "" if it has not."""
    palettes: dict[str, Palette]
    """Name -> theme."""
    summary: Counter[Level]
    """How many nodes are at each level."""
    acknowledged: frozenset[str]
    """The nodes that are well only because what is wrong was acknowledged."""
    unseen_ends: UnseenEnds
    """The ends of jobs that the operator has not seen."""
    moment: float | None
    """The time that the fleet and node screens show, in epoch seconds; None: now."""
    views_file: Path
    """The file of the saved fleet views."""
    tour: Tour
    """The tour of the demo."""
    first_job: str
    """The job to open first; "" for none."""
    first_replay: float
    """The speed of the replay of `first_job`; 0: no replay."""

    @property
    def fleet(self) -> Fleet:
        """The state of all nodes; until the cluster is open, one in which no node was heard.

        Read only.
        """
        ...

    @property
    def why_closed(self) -> str:
        """Why there is no session, one sentence; "" if there is one."""
        ...

    def need_session(self) -> Session:
        """The session; raises NotOpenError if there is none."""
        ...

    @property
    def top_screen(self) -> Screen[None] | None:
        """The topmost screen that is not a dialog."""
        ...

    @property
    def at_home(self) -> bool:
        """Whether a main screen is shown, with nothing on top of it."""
        ...

    @property
    def pasted(self) -> bool:
        """Whether the key that is being handled came with others, faster than a person types."""
        ...

    def say(self, text: str, role: str = "text") -> None:
        """Show a sentence in the last line, in the colour of `role`."""
        ...

    def ask(self, question: Screen[bool], act: Callable[[], None]) -> None:
        """Ask a question, and call `act` if the answer is yes."""
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

    def open_job(self, job_id: str) -> None:
        """Show a job; for a saved replay, start it again."""
        ...

    def run_command(self, text: str) -> None:
        """Carry out the command that was typed after `:`."""
        ...

    def choices(self, argument: str) -> list[str]:
        """The possible values of this argument of a command, for completion."""
        ...

    def choose_theme(self, name: str) -> None:
        """Change the colours to the theme of that name, which must be in `palettes`."""
        ...

    def set_alphabet(self, *, ascii_only: bool) -> None:
        """Draw with ASCII only, or with all signs; call `paint_anew` afterwards."""
        ...

    def paint_anew(self) -> None:
        """Repaint everything."""
        ...

    def use_mouse(self, *, on: bool) -> None:
        """Take the mouse, or leave it to the terminal so that the user can select text."""
        ...

    async def lend_terminal(self, argv: Sequence[str], note: str) -> int:
        """Give the terminal to another program until it ends; returns its exit status."""
        ...

    def catch_up(self) -> None:
        """Count the levels of nodes that changed since the last call, and tell
        the session which nodes are on screen.
        """
        ...

    def action_help(self) -> None:
        """Show the help, beginning with the present screen."""
        ...

    def leave(self) -> None:
        """End the console."""
        ...

    def change_cluster(self, cluster: Cluster) -> None:
        """Close this cluster, then show another in its place. Jobs go on."""
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
