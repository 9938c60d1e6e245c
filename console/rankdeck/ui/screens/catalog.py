"""The screens by name, each read from disk when it is first shown: the first picture needs one."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from rankdeck.ui.screens.base import DeckScreen

SCREENS = {
    "fleet": "FleetScreen",
    "jobs": "JobsScreen",
    "launch": "LaunchScreen",
    "messages": "MessagesScreen",
    "events": "EventsScreen",
    "node": "NodeScreen",
    "job": "JobScreen",
    "lens": "LensScreen",
    "help": "HelpScreen",
}
"""Class by name; its module is called as the screen is."""


def kind(name: str) -> "type[DeckScreen]":
    """The class of the screen of that name."""
    module = import_module(f"rankdeck.ui.screens.{name}")
    return cast("type[DeckScreen]", getattr(module, SCREENS[name]))


def make(name: str, *arguments: Any) -> "DeckScreen":  # noqa: ANN401 - as its class says
    """A new screen of that name."""
    return kind(name)(*arguments)
