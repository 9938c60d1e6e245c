"""Where every rank of a job is now: the odd ones first, with their stacks."""

import textwrap
from collections.abc import Sequence
from typing import ClassVar

from rankdeck.errors import RankdeckError
from rankdeck.model.nodeset import fold, fold_ranks
from rankdeck.model.text import printable
from rankdeck.rules.inspect import Frame, Inspection, Look, StackGroup
from rankdeck.ui import formatting
from rankdeck.ui.screens.base import BaseScreen
from rankdeck.ui.widgets.canvas import Run, Runs, TextPage

MOST_ODD, MOST_LOOKS = 6, 2
"""Ranks of a group that get a line of their own: of an odd group, of any other."""
ANSWER = 9
"""Columns before the answer."""
STATES = {"R": "runs", "S": "sleeps", "D": "waits for a device", "T": "stopped", "t": "traced"}


class InspectScreen(BaseScreen):
    """What `inspect` found."""

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
            self.page.show(inspect_lines(self._found, self.size.width))
        else:
            looking = f" looking at every rank of {printable(self.job_id)} …"
            self.page.show([[(looking, "dim")]])

    def action_copy(self) -> None:
        if self._found is None:
            self.refuse("nothing was found yet")
            return
        lines = inspect_lines(self._found, self.size.width)
        told = "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
        self.console.copy(told, "where every rank is")

    def look(self) -> None:
        """Look again."""
        self.say("looking …", "dim")
        self.run_worker(self._look(), name="inspect", exclusive=True)

    async def _look(self) -> None:
        try:
            found = await self.console.session.inspect(self.job_id)
        except RankdeckError as error:
            self.say(str(error), "bad")
            return
        self._found = found
        self.say("")
        self.refresh_now()


def inspect_lines(found: Inspection, width: int) -> list[Runs]:
    """The answer, then each place with its ranks and its stack, the odd ones first."""
    lines: list[Runs] = [
        [(f" {printable(found.job)} ", "title"), (f" at {formatting.clock(found.at)}", "dim")],
        *_answer_lines(found, width),
        [],
    ]
    odd = [one for one in found.groups if set(one.ranks) <= set(found.odd)]
    for one in [*odd, *(g for g in found.groups if g not in odd)]:
        lines += _group_lines(one, odd=one in odd, alike=not odd)
    lines += [
        [(" not looked at  ", "warn"), (f"{printable(n)}: {printable(why)}", "text")]
        for n, why in found.missing.items()
    ]
    lines += [[(f" {printable(note)}", "dim")] for note in _together(found.notes)]
    if found.ras:
        lines += [[], [(" NCCL RAS", "title")]]
        lines += [[(f"   {printable(line)}", "text")] for line in found.ras]
    return lines


def _together(notes: Sequence[str]) -> list[str]:
    """`node: text`, one line for all nodes with the same text."""
    told: dict[str, list[str]] = {}
    for note in notes:
        node, _, text = note.partition(": ")
        told.setdefault(text, []).append(node)
    return [f"{fold(nodes)}: {text}" for text, nodes in told.items()]


def _answer_lines(found: Inspection, width: int) -> list[Runs]:
    """The answer, in as many lines as it needs."""
    rows = textwrap.wrap(printable(found.answer), max(width - ANSWER - 1, 20)) or [""]
    head: Run = (" answer  ", "warn" if found.odd else "ok")
    blank: Run = (" " * ANSWER, "text")
    return [[blank if at else head, (row, "title")] for at, row in enumerate(rows)]


def _group_lines(one: StackGroup, *, odd: bool, alike: bool) -> list[Runs]:
    who = fold_ranks(one.ranks)
    alone = len(one.looks) == 1
    many = "rank" if alone else f"{len(one.looks):,} ranks"
    head: list[Run] = [
        (f" {many} {who} ", "warn" if odd else "ok"),
        (f" {printable(one.place)}", "title"),
    ]
    nodes = tuple(dict.fromkeys(look.node for look in one.looks))
    head.append((f"  on {printable(fold(nodes))}", "dim"))
    lines: list[Runs] = [head]
    lines += [_frame_line(frame) for frame in one.stack[:12]]
    most = MOST_ODD if odd or alike else MOST_LOOKS
    quietest = sorted(one.looks, key=lambda look: -(look.silent or 0.0))
    lines += [_look_line(look) for look in quietest[:most]]
    if (more := len(one.looks) - most) > 0:
        lines.append([(f"     and {more:,} more", "dim")])
    return [*lines, []]


def _frame_line(frame: Frame) -> Runs:
    name, file, line = frame
    return [
        ("     ", "dim"),
        (f"{printable(name)}  ", "accent"),
        (f"{printable(file)}:{line}", "dim"),
    ]


def _look_line(look: Look) -> Runs:
    silent = "" if look.silent is None else f"silent {formatting.age(look.silent)}, "
    cpu = "" if look.cpu is None else f"CPU {look.cpu:.0%}, "
    waits = f" in {printable(look.wchan)}" if look.wchan not in ("", "0") else ""
    state = STATES.get(look.state, look.state)
    return [
        (f"     rank {look.rank} ", "text"),
        (f"{printable(look.node)} pid {look.pid}  ", "dim"),
        (f"{silent}{cpu}{state}{waits}  ", "text"),
        (printable(look.last), "stderr"),
    ]
