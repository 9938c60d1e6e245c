"""The tour of the demo: a table of steps, and how far the user is."""

from collections.abc import Callable

from rankdeck.values import Value

DEMO = "demo"
"""The cluster of the tour."""
FILE = "fail-rank2"
"""The job that the tour starts."""
ELSEWHERE = "the tour starts a job that fails: it is for `rankdeck demo`"
ENDED = "the tour is over"


class OnScreen(Value):
    """What the tour checks about the screen."""

    screen: str
    filter: str = ""
    view: str = ""
    """The view of the job screen."""
    failed: bool = False
    """The job has ended, and it is known who failed first."""


def _is(**wanted: object) -> Callable[[OnScreen], bool]:
    return lambda seen: all(getattr(seen, name) == value for name, value in wanted.items())


class TourStep(Value):
    """One step: what to do now, why, and when that is done."""

    do: str
    why: str
    is_done: Callable[[OnScreen], bool]


STEPS = (
    TourStep("enter", "the worst node stands first; enter opens the one under the cursor", _is(screen="node")),
    TourStep("esc", "its numbers, and each reason: what was seen, what it means, what to do", _is(screen="fleet")),
    TourStep("/ cpu>0 enter", "every list has a filter: a part of a name, or numbers", _is(screen="fleet", filter="cpu>0")),
    TourStep("esc", "only the nodes that match are left; esc takes back one thing at a time", _is(screen="fleet", filter="")),
    TourStep("3", "a job is a file; Launch shows what it would do before it does it", _is(screen="launch")),
    TourStep("/ fail enter", "on the right form, health of the nodes, files and commands", _is(screen="launch", filter="fail")),
    TourStep("enter", "this asks the nodes first, then starts the job: rank 2 of it will fail", _is(screen="job")),
    TourStep("wait", "each rank has a tile; over them who failed first, why, what to try", _is(failed=True)),
    TourStep("c", "equal lines once, with the ranks that wrote them: the odd rank stands out", _is(view="collapsed")),
    TourStep("M", "all ranks by time, the nodes between them; ? has the other keys", _is(view="merged")),
)  # fmt: skip
OVER = "that was the tour: ? has all keys of a screen, : all commands, q leaves and jobs go on"


class Tour:
    """The current step of the tour, `place` (from 0); None if the tour is off."""

    def __init__(self) -> None:
        self.place: int | None = None

    def toggle(self) -> None:
        """Begin at the first step, or end the tour."""
        self.place = 0 if self.place is None else None

    def look(self, seen: OnScreen) -> bool:
        """Go on to the next step if this one is done; returns whether this was the last step."""
        if self.place is None or not STEPS[self.place].is_done(seen):
            return False
        over = self.place + 1 == len(STEPS)
        self.place = None if over else self.place + 1
        return over
