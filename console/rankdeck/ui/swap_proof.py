"""The swap proof on screen: its plan and question, what each run showed, the answer."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rankdeck.model.health import parse_duration
from rankdeck.model.safe_text import printable_line
from rankdeck.swap.table import plan_lines, result_line, start_question, verdict_lines
from rankdeck.swap.values import LIMIT, Blame, Swap
from rankdeck.ui.actions import action_key
from rankdeck.ui.operations import errors_shown, in_background, is_off, say_stopping
from rankdeck.ui.screens.modals import WIDE, ChangeQuestion
from rankdeck.ui.widgets.canvas import Runs, break_runs

if TYPE_CHECKING:
    from rankdeck.ui.protocols import Console

_ROLES = {Blame.UNDECIDED: "warn", Blame.PROGRAM: "title", Blame.NODE: "title", Blame.BOTH: "title"}


def ask_swap(console: "Console", job_id: str, limit: str = "") -> None:
    """Plan the swap proof of a job and ask whether to start it; while one goes on, whether to stop
    it. `limit` is the most that a run may take, such as `30m`.
    """
    now = console.need_session().swaps.current
    if now is not None and now.going:
        console.ask(
            ChangeQuestion("Stop this swap proof?", _broken(_so_far(now)), "stop", "go on"),
            lambda: _stop(console),
        )
        return
    try:
        seconds = parse_duration(limit) if limit else LIMIT
    except ValueError as error:
        console.say(str(error), "warn")
        return
    with errors_shown(console):
        job = console.need_session().jobs.job(job_id)
        if job.plan.spec is None or not is_off(console, "launch", job.plan.spec):
            console.say(f"looking at the nodes of {job_id} …", "dim")
            in_background(console, "swap", _plan(console, job_id, seconds), "warn")


async def _plan(console: "Console", job_id: str, limit: float) -> None:
    swap = await console.need_session().swaps.plan(job_id, limit)
    console.say("")
    lines = _broken([*plan_lines(swap.plan), "", start_question(swap.plan)])
    title = "Is it the program or the node?"
    console.ask(ChangeQuestion(title, lines, "start", "not now"), lambda: _start(console))


def _start(console: "Console") -> None:
    key = action_key("swap")
    port = console.need_session().swaps
    port.changed = lambda: _tell(console, port.current)
    console.say(f"the swap proof runs; {key} shows how far it is, and stops it", "dim")
    in_background(console, "swap run", _run(console), exclusive=False)


def _stop(console: "Console") -> None:
    stopping = say_stopping(console, console.need_session().swaps.stop())
    in_background(console, "swap stop", stopping, exclusive=False)


def _tell(console: "Console", swap: Swap | None) -> None:
    if swap is not None and swap.results and not swap.running:
        console.say(printable_line(result_line(len(swap.results), swap.results[-1])))


async def _run(console: "Console") -> None:
    swap = await console.need_session().swaps.start()
    if swap.ended:
        console.say("")
        console.show_whole("Swap proof", list(answer_runs(swap)))


def answer_runs(swap: Swap) -> Iterable[Runs]:
    """The answer, the runs and the plan, as lines of a screen."""
    first, *more = verdict_lines(swap)
    blame = swap.verdict.blame if swap.verdict else Blame.UNDECIDED
    yield [(printable_line(first), _ROLES[blame])]
    yield from ([(printable_line(line, 1000), "text")] for line in more)
    yield []
    yield from _texts(result_line(number, one) for number, one in enumerate(swap.results, 1))
    yield []
    yield from ([(text, "dim") for text, _ in runs] for runs in _texts(plan_lines(swap.plan)))


def _so_far(swap: Swap) -> Iterable[str]:
    yield f"{swap.plan.job}: run {swap.running or len(swap.results)} of at most {len(swap.plan.runs)}"
    yield from (result_line(number, one) for number, one in enumerate(swap.results, 1))
    yield ""
    yield "The job of the run is cancelled with proof."


def _texts(lines: Iterable[str]) -> Iterable[Runs]:
    return ([(printable_line(line, 1000), "text")] for line in lines)


def _broken(lines: Iterable[str]) -> Sequence[Runs]:
    return [piece for runs in _texts(lines) for piece in break_runs(runs, WIDE)]
