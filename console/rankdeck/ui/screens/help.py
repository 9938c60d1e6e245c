"""The help screen: keys, commands, filters and signs, made from the
tables that the console itself uses.
"""

import textwrap
from collections.abc import Sequence
from typing import ClassVar

from rankdeck.model.health import Level
from rankdeck.model.job import State
from rankdeck.model.rank import RankStatus
from rankdeck.ui import actions, command_actions
from rankdeck.ui.screens.base import BaseScreen
from rankdeck.ui.themes import Glyphs
from rankdeck.ui.widgets.canvas import Run, Runs, TextPage, break_runs

KEYS = 20
"""Width of the column of keys in cells; longer keys have a line of their own."""
TITLES = {
    "fleet": "Fleet", "node": "Node", "jobs": "Jobs", "job": "Job", "launch": "Launch", "messages": "Messages",
    "events": "Events", "inspect": "Inspect", "sh": "Command on nodes", "processes": "Processes", "acceptance": "Acceptance", "pair": "Pair of an acceptance run",
}  # fmt: skip


class HelpScreen(BaseScreen):
    """The help page; it begins with the keys of the screen `about`."""

    screen_name: ClassVar[str] = "help"

    def __init__(self, about: str = "fleet") -> None:
        super().__init__()
        self._about = about
        self.main = self.page = TextPage()

    def action_tour(self) -> None:
        command_actions.toggle_tour(self.console)

    def tick(self) -> None:
        self.page.show(help_lines(self._about, self.console.glyphs, self.size.width))


def help_lines(about: str, glyphs: Glyphs, width: int = 200) -> list[Runs]:
    """The lines of the whole page."""
    everywhere = [action for action in actions.ACTIONS if action.screens == actions.EVERYWHERE]
    order = sorted(TITLES, key=lambda name: name != about)
    lines: list[Runs] = []
    for name in order:
        own = [action for action in actions.for_screen(name) if action not in everywhere]
        if own:
            lines += _section(
                TITLES[name], [(action.shown_keys, action.help) for action in own], width
            )
        if name == order[0]:
            everybody = [(action.shown_keys, action.help) for action in everywhere]
            lines += _section("Everywhere", everybody, width)
    lines += _section("Moving", actions.MOVES, width)
    typed = [(f":{c.name} {c.argument}", c.help) for c in actions.COMMANDS]
    lines += _section("Commands", typed, width)
    lines += _section("Filters", actions.FILTERS, width)
    return lines + _signs(glyphs, width)


def _section(title: str, rows: Sequence[tuple[str, str]], width: int) -> list[Runs]:
    lines: list[Runs] = [[], [(f" {title}", "title")]]
    for key, text in rows:
        beside = len(key) < KEYS
        pieces = textwrap.wrap(text, max(width - KEYS - 4, 20))
        if not beside:
            lines.append([(f"   {key}", "key")])
        for at, piece in enumerate(pieces):
            shown = key if beside and not at else ""
            lines.append([(f"   {shown:<{KEYS}}", "key"), (piece, "text")])
    return lines


def _signs(glyphs: Glyphs, width: int) -> list[Runs]:
    levels: list[Run] = [("   nodes  ", "dim")]
    for level in Level:
        mark = glyphs.level(level)
        levels.append((f"{mark.glyph} {level.word}   ", mark.role))
    mark = glyphs.node(Level.OK, acknowledged=True)
    levels.append((f"{mark.glyph} acknowledged", mark.role))
    states: list[Run] = [("   ranks  ", "dim")]
    for state in State:
        mark = glyphs.state(state)
        states.append((f"{mark.glyph} {state}   ", mark.role))
    judged: list[Run] = [("          ", "dim")]
    for status in (RankStatus.STALLED, RankStatus.VICTIM):
        mark = glyphs.status(status)
        judged.append((f"{mark.glyph} {status}   ", mark.role))
    rows = [piece for line in (levels, states, judged) for piece in break_runs(line, width)]
    return [[], [(" Signs", "title")], *rows, []]
