"""Where every rank of a job is now: the odd ones first, with their stacks."""

from collections.abc import Iterable
from typing import ClassVar

from textual.widget import Widget

from rankdeck.errors import RankdeckError
from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.text import printable
from rankdeck.rules.lens import Frame, Group, Inspection, Look
from rankdeck.ui import words
from rankdeck.ui.screens.base import DeckScreen
from rankdeck.ui.widgets.canvas import Run, Runs
from rankdeck.ui.widgets.text import TextPage

MOST_LOOKS = 6
"""Ranks of a group that get a line of their own."""
STATES = {
    "R": "runs",
    "S": "sleeps",
    "D": "waits for a device",
    "T": "stopped",
    "t": "traced",
}


class LensScreen(DeckScreen):
    """What `inspect` found."""

    deck_name: ClassVar[str] = "lens"
    paint_period: ClassVar[float] = 1.0

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self.job_id = job_id
        self.page = TextPage(id="lens")
        self._lines: list[Runs] = []

    def body(self) -> Iterable[Widget]:
        return (self.page,)

    @property
    def main(self) -> Widget:
        return self.page

    def on_mount(self) -> None:
        super().on_mount()
        self.look()

    def tick(self) -> None:
        self.page.show(self._lines)

    def look(self) -> None:
        """Look anew."""
        if not self._lines:
            self._lines = [
                [(f" looking at every rank of {printable(self.job_id)} …", "dim")]
            ]
        self.say("looking …", "dim")
        self.run_worker(self._look(), name="inspect", exclusive=True)

    async def _look(self) -> None:
        try:
            found = await self.deck.session.inspect(self.job_id)
        except RankdeckError as error:
            self.say(printable(str(error)), "bad")
            return
        self._lines = lens_lines(found)
        self.say("")
        self.refresh_now()


def lens_lines(found: Inspection) -> list[Runs]:
    """The answer, then each place with its ranks and its stack, the odd ones first."""
    lines: list[Runs] = [
        [
            (f" {printable(found.job)} ", "title"),
            (f" at {words.clock(found.at)}", "dim"),
        ],
        [
            (" answer  ", "warn" if found.odd else "ok"),
            (printable(found.answer), "title"),
        ],
        [],
    ]
    odd = [one for one in found.groups if set(one.ranks) <= set(found.odd)]
    for one in [*odd, *(g for g in found.groups if g not in odd)]:
        lines += _group_lines(one, odd=one in odd)
    lines += [
        [(" not looked at  ", "warn"), (f"{printable(n)}: {printable(why)}", "text")]
        for n, why in found.missing.items()
    ]
    lines += [[(f" {printable(note)}", "dim")] for note in found.notes]
    if found.ras:
        lines += [[], [(" NCCL RAS", "title")]]
        lines += [[(f"   {printable(line)}", "text")] for line in found.ras]
    return lines


def _group_lines(one: Group, *, odd: bool) -> list[Runs]:
    many = words.many(len(one.looks), "rank")
    head: list[Run] = [
        (f" {many} ", "warn" if odd else "text"),
        (printable(one.place), "title"),
        (f"  {fold_ranks(one.ranks)}", "dim"),
    ]
    lines: list[Runs] = [head]
    lines += [_frame_line(frame) for frame in one.stack[:12]]
    lines += [_look_line(look) for look in one.looks[:MOST_LOOKS]]
    if (more := len(one.looks) - MOST_LOOKS) > 0:
        lines.append([(f"     and {more} more", "dim")])
    return [*lines, []]


def _frame_line(frame: Frame) -> Runs:
    name, file, line = frame
    return [
        ("     ", "dim"),
        (f"{printable(name)}  ", "accent"),
        (f"{printable(file)}:{line}", "dim"),
    ]


def _look_line(look: Look) -> Runs:
    silent = "" if look.silent is None else f"silent {words.age(look.silent)}, "
    cpu = "" if look.cpu is None else f"CPU {look.cpu:.0%}, "
    waits = f" in {printable(look.wchan)}" if look.wchan not in ("", "0") else ""
    state = STATES.get(look.state, look.state)
    return [
        (f"     rank {look.rank} ", "text"),
        (f"{printable(look.node)} pid {look.pid}  ", "dim"),
        (f"{silent}{cpu}{state}{waits}  ", "text"),
        (printable(look.last), "stderr"),
    ]
