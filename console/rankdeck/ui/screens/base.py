"""What all screens share: the bar on top, keys below, the prompt, a paint timer."""

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget

from rankdeck.ui import actions, commands
from rankdeck.ui.snapshots import step
from rankdeck.ui.widgets.bars import KeyBar, TopBar
from rankdeck.ui.widgets.input import Prompt

if TYPE_CHECKING:
    from rankdeck.ui.app import RankdeckApp


PAINT = 0.25
"""Seconds between two looks at the model."""


class BaseScreen(Screen[None], inherit_bindings=False):
    """One screen. Subclasses give `body`, `tick`, and a method per action."""

    screen_name: ClassVar[str] = ""
    paint_period: ClassVar[float] = PAINT

    def __init_subclass__(cls) -> None:
        cls.BINDINGS = list(actions.bindings(cls.screen_name))
        super().__init_subclass__()

    def __init__(self) -> None:
        super().__init__()
        self.top_bar = TopBar(self.screen_name)
        self.key_bar = KeyBar(self.screen_name)
        self.prompt = Prompt(self._complete)

    @property
    def deck(self) -> "RankdeckApp":
        return cast("RankdeckApp", self.app)  # pyright: ignore[reportUnknownMemberType]

    @property
    def is_current(self) -> bool:
        """Whether it can be seen, if only behind a question.

        Textual means the screen under an opaque one as well, and paints all anew whenever that changes.
        """
        return self.deck.deck_screen is self

    def body(self) -> Iterable[Widget]:
        """The widgets between the two bars."""
        raise NotImplementedError

    def tick(self) -> None:
        """Look at the model, tell the widgets what to show."""
        raise NotImplementedError

    @property
    def main(self) -> Widget:
        """The widget that has the keys."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        yield self.top_bar
        yield from self.body()
        yield self.prompt
        yield self.key_bar

    def on_mount(self) -> None:
        self.set_interval(self.paint_period, self._tick_if_seen, name="tick")
        self.main.focus()
        self.call_after_refresh(self.refresh_now)

    def on_screen_resume(self) -> None:
        self.main.focus()
        self.refresh_now()

    def _tick_if_seen(self) -> None:
        if self.is_current:
            self.refresh_now()

    def refresh_now(self) -> None:
        """Bring the screen up to the model."""
        if self.is_mounted:
            self.top_bar.tick()
            self.tick()

    def say(self, text: str, role: str = "text") -> None:
        """Show a sentence in the place of the keys."""
        self.key_bar.say(text, role)

    # ---- the prompt

    def _complete(self, text: str) -> list[str]:
        found = commands.complete(text, self.deck.choices)
        if len(found) > 1:
            self.say("   ".join(found[:12]), "dim")
        return found

    def action_command(self) -> None:
        self.say("")
        self.prompt.ask(":", hint="command, tab completes")

    def on_prompt_typed(self, message: Prompt.Typed) -> None:
        if message.mode == ":":
            self._complete(message.text)
        else:
            self.typed(message.text)

    def on_prompt_done(self, message: Prompt.Done) -> None:
        self.say("")
        self.main.focus()
        if message.mode != ":":
            self.answered(message.text)
        elif message.text:
            self.deck.run_command(message.text)

    def typed(self, text: str) -> None:
        """A filter or a search is being typed."""

    def answered(self, text: str | None) -> None:
        """A filter or a search is there; None: given up."""

    # ---- back in time

    def action_pause(self) -> None:
        """Hold the picture, or come back to now."""
        now = self.deck.session.fleet.wall()
        self.deck.moment = now if self.deck.moment is None else None
        self.refresh_now()

    def action_step(self, frames: int) -> None:
        """So many pictures further; back where it is negative."""
        self.deck.moment = step(self.deck.session.fleet, self.deck.moment, frames)
        self.refresh_now()

    # ---- everywhere

    def take_back(self) -> bool:
        """Undo what hides a part of this screen; whether there was something."""
        return False

    def action_back(self) -> None:
        self.say("")
        if not self.take_back():
            self._return()

    def action_leave(self) -> None:
        if not self._return():
            self.deck.leave()

    def _return(self) -> bool:
        """To the screen before, and from the main screens to the fleet; False where there is none."""
        if not self.deck.at_home:
            self.deck.pop_screen()
            return True
        home = self.screen_name == "fleet"
        self.deck.goto("fleet")
        return not home


SCREENS = {
    "fleet": "FleetScreen",
    "jobs": "JobsScreen",
    "launch": "LaunchScreen",
    "messages": "MessagesScreen",
    "events": "EventsScreen",
    "node": "NodeScreen",
    "job": "JobScreen",
    "inspect": "InspectScreen",
    "help": "HelpScreen",
}
"""Class by name; its module is called as the screen is."""


def kind(name: str) -> "type[BaseScreen]":
    """The class of the screen of that name."""
    module = import_module(f"rankdeck.ui.screens.{name}")
    return cast("type[BaseScreen]", getattr(module, SCREENS[name]))


def make(name: str, *arguments: Any) -> "BaseScreen":  # noqa: ANN401 - as its class says
    """A new screen of that name."""
    return kind(name)(*arguments)
