"""The help screen: first the keys of the screen it is about, in short; once more `?`, or
with a filter, all keys, commands, filters and signs. Made from the tables that the console uses.
"""

import re
import textwrap
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import ClassVar

from rankdeck.model.rank import RankStatus, State
from rankdeck.model.safe_text import printable_line
from rankdeck.ui import actions, command_actions, commands, movement
from rankdeck.ui.screens.base import BaseScreen, ListFilter
from rankdeck.ui.themes import Glyphs
from rankdeck.ui.widgets.canvas import Run, Runs, TextPage, break_runs, join_blocks
from rankdeck.ui.widgets.grid import section_head
from rankdeck_agent.rules.levels import Level

KEYS = 20
"""Width of the column of keys in cells; longer keys have a line of their own."""
TITLES = {
    "fleet": "Fleet", "node": "Node", "jobs": "Jobs", "job": "Job", "launch": "Launch", "messages": "Messages",
    "events": "Events", "inspect": "Inspect", "sh": "Command on nodes", "processes": "Processes", "acceptance": "Acceptance", "pair": "Pair of an acceptance run",
    "scaling": "Scaling",
}  # fmt: skip


BRIEF: Mapping[tuple[str, ...], str] = {
    ("goto_fleet", "goto_jobs", "goto_launch", "goto_messages", "goto_events", "goto_acceptance", "goto_scaling"): "The screens above",
    ("search",): "Find a text in the logs",
    ("next_match", "previous_match"): "Next match, previous one",
    ("failure", "previous_error"): "Next error, previous one",
    ("filter_in", "filter_out"): "Only lines with, without",
    ("streams",): "Only stderr, only stdout",
    ("follow",): "Follow the newest line",
    ("stamps",): "Time of each line",
    ("wall",): "A tile for each rank",
    ("collapsed",): "Equal lines once",
    ("merged",): "All ranks in one log",
    ("diff",): "What differs",
    ("inspect",): "Where every rank is now",
    ("zoom",): "One rank, and back",
    ("previous_page", "next_page"): "Page back, forward",
    ("more", "fewer"): "More on a page, fewer",
    ("step(-1)", "step(1)", "step(-10)", "step(10)"): "Steps in time",
    ("copy", "copy_path"): "Copy lines, path of log",
    ("copy",): "Copy this",
    ("cancel",): "Cancel: end the job",
    ("metric",): "Colours of the map",
    ("command",): "A command, tab completes",
    ("back",): "Clear the filter, go back",
    ("help",): "These keys; again: all",
    ("ranks",): "Choose ranks",
    ("goto",): "Go to a line or a time",
    ("fold",): "Fold equal lines, files",
    ("events",): "With events of nodes",
    ("at_node",): "Node of this line",
    ("mark", "mark_all"): "Mark this one, all shown",
    ("mark", "next_mark"): "Mark; go to the next mark",
    ("lofi",): "Only the lines, to select",
    ("logs",): "Logs of the job",
    ("describe",): "All about this row",
    ("scheduler",): "What Slurm says",
    ("launch_on",): "Start a job on this node",
    ("run",): "Run a command on nodes",
    ("open",): "Open this row",
    ("rank_shell",): "Shell in the container",
    ("tour",): "The tour of the demo",
    ("keep",): "Keep the others running",
    ("suspend_process",): "Stop, until `fg`",
    ("sort", "reverse"): "Order, reverse order",
    ("pin",): "Pin, on every page",
}  # fmt: skip
"""Actions that share a line of the short page -> what it says; of others the first
clause of their help.
"""
PAIRED = 76
"""On screens of at least this many cells the short page has two columns or more."""
COLUMN = 38
"""Least cells of a column."""
KEY = 9
"""Cells of the keys on the short page."""


class HelpScreen(BaseScreen):
    """The help page of the screen `about`."""

    screen_name: ClassVar[str] = "help"

    def __init__(self, about: str = "fleet") -> None:
        super().__init__()
        self._about = about
        self.main = self.page = TextPage(wraps=False)
        self._whole = False
        self.list_filter = ListFilter(
            self, "words: a key, what it does, a command", self._narrowed, language=False
        )

    def action_tour(self) -> None:
        command_actions.toggle_tour(self.console)

    def show_more(self) -> None:
        """Show all that there is, or again only the keys of the screen."""
        self._whole = not self._whole
        self._narrowed()

    def _narrowed(self) -> None:
        self.page.top = 0
        self.refresh_now()

    def tick(self) -> None:
        glyphs, width, text = self.console.glyphs, self.size.width, self.list_filter.text
        if text:
            found = matching_lines(self._about, text, glyphs, width)
            self.page.show(found or [[], [(f" nothing matches `{printable_line(text)}`", "dim")]])
        elif self._whole:
            self.page.show(help_lines(self._about, glyphs, width))
        else:
            self.page.show(short_lines(self._about, glyphs, width))


def short_lines(about: str, glyphs: Glyphs, width: int = 80) -> list[Runs]:
    """The keys of one screen, in as many columns as fit."""
    here = actions.for_screen(about)
    own = [one for one in here if one.screens != actions.EVERYWHERE]
    everywhere = [one for one in here if one.screens == actions.EVERYWHERE]
    more = f"{actions.action_key('help')} again: all keys and commands"
    find = f"{actions.action_key('filter')} finds among them"
    return [
        [],
        section_head(TITLES.get(about, about), f"{more}; {find}"),
        *_in_columns(_brief(own), width),
        [],
        section_head("Everywhere"),
        *_in_columns(_brief(everywhere), width),
        [],
        section_head("Moving"),
        *_in_columns(SHORT_MOVES, width),
        *_signs(glyphs, width)[:-1],
    ]


SHORT_MOVES = (
    ("j k", "Lines, as the arrows"),
    ("g G", "First, last"),
    ("pgdn", "A page (ctrl+d: half)"),
    ("tab", "The next tile or part"),
    ("ctrl+p", "All actions, by name"),
    ("mouse", "Click; again: open"),
)


def _brief(some: Sequence[actions.Action]) -> list[tuple[str, str]]:
    """(keys, a few words) for each of these actions, those that belong together as one."""
    rows: list[tuple[str, str]] = []
    done: set[str] = set()
    here = {one.id: one for one in some}
    for one in some:
        if one.id in done:
            continue
        groups = (row for row in BRIEF.items() if one.id in row[0] and here.keys() >= {*row[0]})
        ids, words = next(groups, ((one.id,), ""))
        together = [here[other] for other in ids]
        done.update(other.id for other in together)
        keys = [other.shown_keys for other in together]
        text = words or re.split(r"[;:(]|, ", one.help)[0].strip()
        rows.append((" ".join(keys) if len(keys) < MANY else f"{keys[0]}-{keys[-1]}", text))
    return rows


MANY = 5
"""So many keys in one line are shown as `1-6`."""


def _in_columns(rows: Sequence[tuple[str, str]], width: int) -> list[Runs]:
    """Rows of a key and what it does, downwards in columns of the same height."""
    columns = max(width // COLUMN, 1) if width >= PAIRED else 1
    cells = width // columns
    blocks: list[list[Runs]] = []
    high = -(-len(rows) // columns)
    for at in range(0, len(rows), max(high, 1)):
        blocks.append([])
        for key, text in rows[at : at + high]:
            head: Run = (f"   {key:<{KEY}} ", "key")
            blocks[-1] += break_runs([head, (text, "text")], max(cells - 1, 20))
    return join_blocks(blocks, cells - 1, "…") if len(blocks) > 1 else [*chain(*blocks)]


def matching_lines(about: str, text: str, glyphs: Glyphs, width: int) -> list[Runs]:
    """The rows of the whole page that have all these words, with their headings."""
    words = text.casefold().split()
    lines: list[Runs] = []
    for title, rows in _sections(about):
        found = [
            row for row in rows if all(w in f"{title} {' '.join(row)}".casefold() for w in words)
        ]
        lines += _section(title, found, width) if found else []
    return lines


def help_lines(about: str, glyphs: Glyphs, width: int = 200) -> list[Runs]:
    """The lines of the whole page."""
    sections = (_section(title, rows, width) for title, rows in _sections(about))
    return [*chain.from_iterable(sections), *_signs(glyphs, width)]


def _sections(about: str) -> list[tuple[str, Sequence[tuple[str, str]]]]:
    """Headings with their rows: first of the screen `about`, last commands and filters."""
    everywhere = [action for action in actions.ACTIONS if action.screens == actions.EVERYWHERE]
    order = sorted(TITLES, key=lambda name: name != about)
    sections: list[tuple[str, Sequence[tuple[str, str]]]] = []
    for name in order:
        own = [action for action in actions.for_screen(name) if action not in everywhere]
        if own:
            sections.append((TITLES[name], [(one.shown_keys, one.help) for one in own]))
        if name == order[0]:
            everybody = [(one.shown_keys, one.help) for one in everywhere]
            sections.append(("Everywhere", everybody))
    typed = [(f":{c.name} {c.argument}", c.help) for c in commands.COMMANDS]
    return [
        *sections,
        ("Moving", movement.MOVES),
        ("Commands", typed),
        ("Filters", commands.FILTERS),
    ]


def _section(title: str, rows: Sequence[tuple[str, str]], width: int) -> list[Runs]:
    lines: list[Runs] = [[], section_head(title)]
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
    return [[], section_head("Signs"), *rows, []]
