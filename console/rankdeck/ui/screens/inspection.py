"""The screen of `inspect`: where every rank of a job is now."""

import textwrap
from collections.abc import Mapping
from typing import ClassVar

from textual.geometry import Size

from rankdeck.model.nodeset import fold_nodes, fold_ranks
from rankdeck.model.safe_text import printable_line
from rankdeck.rules.inspect import Frame, Inspection, Look, StackGroup
from rankdeck.ui import formatting
from rankdeck.ui.operations import in_background
from rankdeck.ui.screens.base import BaseScreen
from rankdeck.ui.themes import Glyphs
from rankdeck.ui.widgets.canvas import Run, Runs, TextPage
from rankdeck.ui.widgets.grid import INDENT, section_head
from rankdeck.ui.widgets.rank_strip import draw_ranks
from rankdeck_agent.rules.levels import Level

MOST_ODD, MOST_LOOKS = 6, 2
"""Most ranks of a group that get a line of their own: in an odd group, in any other group."""
STRIP = 6
"""Most lines of the strip of ranks."""
TALL = 30
"""On screens of fewer lines the strip has one line."""
ANSWER = 9
"""Width of the column before the answer."""
STATES = {"R": "runs", "S": "sleeps", "D": "waits for a device", "T": "stopped", "t": "traced"}


class InspectScreen(BaseScreen):
    """The result of `inspect`: where every rank of a job is now."""

    screen_name: ClassVar[str] = "inspect"
    paint_period: ClassVar[float] = 1.0

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self.job_id = job_id
        self.main = self.page = TextPage(id="inspect")
        self._found: Inspection | None = None

    def on_mount(self) -> None:
        super().on_mount()
        self.look()

    def tick(self) -> None:
        if self._found is not None:
            self.page.show(_inspect_lines(self._found, self.size, self.console.glyphs))
        else:
            looking = f" looking at every rank of {printable_line(self.job_id)} …"
            self.page.show([[(looking, "dim")]])

    def action_copy(self) -> None:
        if self._found is None:
            self.refuse("nothing was found yet")
            return
        lines = _inspect_lines(self._found, self.size, self.console.glyphs)
        copied = "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
        self.console.copy(copied, "where every rank is")

    def look(self) -> None:
        """Ask the nodes again."""
        self.say("looking …", "dim")
        in_background(self, "inspect", self._look())

    async def _look(self) -> None:
        self._found = await self.console.need_session().control.inspect(self.job_id)
        self.say("")
        self.refresh_now()


def _inspect_lines(found: Inspection, size: Size, glyphs: Glyphs) -> list[Runs]:
    """The lines of the page: the answer, then each group of ranks
    with its stack, the odd ones first.
    """
    lines: list[Runs] = [
        [
            (f" {printable_line(found.job)} ", "title"),
            (f" at {formatting.format_clock(found.at)}", "dim"),
        ],
        *_answer_lines(found, size.width),
        *_strip_lines(found, size, glyphs),
        [],
    ]
    odd = [one for one in found.groups if set(one.ranks) <= set(found.odd)]
    for one in [*odd, *(g for g in found.groups if g not in odd)]:
        lines += _group_lines(one, odd=one in odd, alike=not odd)
    lines += [
        [(" not looked at  ", "warn"), (f"{printable_line(n)}: {printable_line(why)}", "text")]
        for n, why in found.missing.items()
    ]
    lines += [[(f" {printable_line(note)}", "dim")] for note in _note_lines(found.notes)]
    if found.ras:
        lines += [[], section_head("NCCL RAS")]
        lines += [[(f"   {printable_line(line)}", "text")] for line in found.ras]
    return lines


def _strip_lines(found: Inspection, size: Size, glyphs: Glyphs) -> list[Runs]:
    """All ranks in their order, those that are not where the others are marked; [] for one rank."""
    looks = sorted((look for one in found.groups for look in one.looks), key=lambda o: o.rank)
    if len(looks) < 2:
        return []
    marks = [glyphs.level(Level.WARN if look.rank in found.odd else Level.OK) for look in looks]
    ranks = [(look.rank, look.node) for look in looks]
    if size.height < TALL:
        return draw_ranks(ranks, marks, (size.width, 1), glyphs)
    strip = draw_ranks(ranks, marks, (size.width, STRIP), glyphs)
    return [[], *strip] if strip else []


def _note_lines(notes: Mapping[str, str]) -> list[str]:
    """What was not available, one line for all nodes with the same note."""
    nodes: dict[str, list[str]] = {}
    for node, note in notes.items():
        nodes.setdefault(note, []).append(node)
    return [f"{fold_nodes(some)}: {note}" for note, some in nodes.items()]


def _answer_lines(found: Inspection, width: int) -> list[Runs]:
    """The answer in as many lines as it needs."""
    rows = textwrap.wrap(printable_line(found.answer), max(width - ANSWER - 1, 20)) or [""]
    head: Run = (" answer  ", "warn" if found.odd else "ok")
    blank: Run = (" " * ANSWER, "text")
    return [[blank if at else head, (row, "title")] for at, row in enumerate(rows)]


def _group_lines(one: StackGroup, *, odd: bool, alike: bool) -> list[Runs]:
    who = fold_ranks(one.ranks)
    alone = len(one.looks) == 1
    many = "rank" if alone else f"{len(one.looks):,} ranks"
    head: list[Run] = [
        (f" {many} {who} ", "warn" if odd else "ok"),
        (f" {printable_line(one.place)}", "title"),
    ]
    nodes = tuple(dict.fromkeys(look.node for look in one.looks))
    head.append((f"  on {printable_line(fold_nodes(nodes))}", "dim"))
    lines: list[Runs] = [head]
    lines += [_frame_line(frame) for frame in one.stack[:12]]
    most = MOST_ODD if odd or alike else MOST_LOOKS
    quietest = sorted(one.looks, key=lambda look: -(look.silent or 0.0))
    for look in quietest[:most]:
        lines.append(_look_line(look))
        if look.pairs:
            lines.append([(f"{INDENT}  {printable_line(look.pairs_text)}", "dim")])
    if (more := len(one.looks) - most) > 0:
        lines.append([(f"{INDENT}and {more:,} more", "dim")])
    return [*lines, []]


def _frame_line(frame: Frame) -> Runs:
    name, file, line = frame
    return [
        (INDENT, "dim"),
        (f"{printable_line(name)}  ", "accent"),
        (f"{printable_line(file)}:{line}", "dim"),
    ]


def _look_line(look: Look) -> Runs:
    silent = "" if look.silent is None else f"silent {formatting.format_age(look.silent)}, "
    cpu = "" if look.cpu is None else f"CPU {look.cpu:.0%}, "
    waits = f" in {printable_line(look.wchan)}" if look.wchan not in ("", "0") else ""
    state = STATES.get(look.state, look.state)
    return [
        (f"{INDENT}rank {look.rank} ", "text"),
        (f"{printable_line(look.node)} pid {look.pid}  ", "dim"),
        (f"{silent}{cpu}{state}{waits}  ", "text"),
        (printable_line(look.last), "stderr"),
    ]
