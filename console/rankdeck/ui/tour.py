"""The tour of the demo: ten things worth knowing, each on the real screen and done by its real key."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from rankdeck.ui import actions
from rankdeck.ui.widgets.canvas import Canvas, Runs

if TYPE_CHECKING:
    from rankdeck.ui.console_protocol import Console
    from rankdeck.ui.screens.base import BaseScreen
    from rankdeck.ui.screens.job import JobScreen

DEMO = "demo"
"""The cluster that it is for."""
FILE = "fail-rank2"
"""The job that the tour starts."""
ELSEWHERE = "the tour starts a job that fails: it is for `rankdeck demo`"


@dataclass(frozen=True, slots=True)
class TourStep:
    """One thing worth knowing: what to do now, why, and when it is done."""

    do: str
    why: str
    is_done: Callable[["BaseScreen"], bool]


def _on(name: str) -> Callable[["BaseScreen"], bool]:
    return lambda screen: screen.screen_name == name


def _shows(view: str) -> Callable[["BaseScreen"], bool]:
    return lambda screen: _on("job")(screen) and cast("JobScreen", screen).now.name == view


def _has_failed(screen: "BaseScreen") -> bool:
    job = cast("JobScreen", screen).job if _on("job")(screen) else None
    return job is not None and job.state.final and job.first_failure is not None


def _filters(name: str, text: str) -> Callable[["BaseScreen"], bool]:
    return lambda screen: _on(name)(screen) and screen.list_filter.text == text


STEPS = (
    TourStep("enter", "the worst node stands first; enter opens the one under the cursor", _on("node")),
    TourStep("esc", "its numbers, and each reason: what was seen, what it means, what to do", _on("fleet")),
    TourStep("/ cpu>0 enter", "every list has a filter: a part of a name, or numbers", _filters("fleet", "cpu>0")),
    TourStep("esc", "only the nodes that match are left; esc takes back one thing at a time", _filters("fleet", "")),
    TourStep("3", "a job is a file; Launch shows what it would do before it does it", _on("launch")),
    TourStep("/ fail enter", "on the right form, health of the nodes, files and commands", _filters("launch", "fail")),
    TourStep("enter", "this asks the nodes first, then starts the job: rank 2 of it will fail", _on("job")),
    TourStep("wait", "each rank has a tile; over them who failed first, why, what to try", _has_failed),
    TourStep("c", "equal lines once, with the ranks that wrote them: the odd rank stands out", _shows("collapsed")),
    TourStep("M", "all ranks by time, the nodes between them; ? has the other keys", _shows("merged")),
)  # fmt: skip
OVER = "that was the tour: ? has all keys of a screen, : all commands, q leaves and jobs go on"


class Tour:
    """How far somebody is on the tour; `place` is None where nobody is on it."""

    def __init__(self) -> None:
        self.place: int | None = None

    def toggle(self, console: "Console") -> None:
        """Begin at the first step, or end it."""
        files = console.session.job_files()
        if self.place is None and not (
            console.session.cluster.name == DEMO and any(one.stem == FILE for one in files)
        ):
            console.say(ELSEWHERE, "warn")
            return
        begins = self.place is None
        self.place = 0 if begins else None
        console.goto("fleet")
        if not begins:
            console.say("the tour is over", "dim")

    def look(self, screen: "BaseScreen") -> None:
        """Go on to the next step where this one is done."""
        if self.place is None or not STEPS[self.place].is_done(screen):
            return
        self.place += 1
        if self.place == len(STEPS):
            self.place = None
            screen.say(OVER, "ok")


class TourBar(Canvas):
    """The step of the tour, over the keys; nothing where there is none."""

    surface = "bar"

    def __init__(self) -> None:
        super().__init__()
        self._place: int | None = None
        self.display = False

    def show(self, place: int | None) -> None:
        """Show this step."""
        if place != self._place:
            self._place, self.display = place, place is not None
            self.refresh()

    def line(self, y: int, width: int) -> Runs:
        if self._place is None:
            return []
        step = STEPS[self._place]
        if y:
            return [(f"   {step.why}", "text@bar")]
        ends = f"   :tour ends it, {actions.key('command')} and {actions.key('help')} work as ever"
        return [
            (f" tour {self._place + 1} of {len(STEPS)}  ", "title@bar"),
            (step.do, "key@bar"),
            (ends if width > len(ends) + 40 else "   :tour ends it", "dim@bar"),
        ]
