"""What a user may do in Slurm: ask it about jobs; hold, release and requeue
them, change their limits; take nodes out of service and give them back.

Each change shows its exact command line first; nothing runs unless the user agrees.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from rankdeck.model.safe_text import printable_line
from rankdeck.ui.commands import CommandError
from rankdeck.ui.formatting import format_many
from rankdeck.ui.operations import in_background, nodes_phrase
from rankdeck.ui.screens import base
from rankdeck.ui.screens.modals import WIDE, ChangeQuestion, Question, TypedQuestion, Whole
from rankdeck.ui.widgets.canvas import Runs, break_runs

if TYPE_CHECKING:
    from rankdeck.schedulers.orders import JobChange, OrderChange, SchedulerPages, ServiceChange
    from rankdeck.ui.protocols import Console

_Change = TypeVar("_Change", bound="OrderChange")
_Ask = Callable[[str], Awaitable[_Change]]
"""Sends an order to Slurm; with "" only to learn its command line, with that line to run it."""
_MOST_LEFT = 8
TITLES = {
    "hold": "Hold back?",
    "release": "Release?",
    "requeue": "Stop, and put back into the queue?",
    "timelimit": "Change the time limit?",
    "drain": "Take out of service?",
    "resume": "Give back to Slurm?",
}
"""What is done with jobs or nodes -> the title of the question."""


def chosen_jobs(console: "Console") -> tuple[str, ...]:
    """Slurm's names of the marked jobs, else of the one under the cursor or on
    screen; raises CommandError if there are none.
    """
    screen = cast("base.BaseScreen | None", console.top_screen)
    names = screen.chosen_jobs if screen is not None else ()
    if not names:
        raise CommandError("choose a job of Slurm on Jobs first, or open one")
    return names


# ---- questions that Slurm answers


def ask_slurm(console: "Console", what: str, jobs: Sequence[str] = ()) -> None:
    """Show on a page what Slurm itself says; see `Session.ask_slurm`."""

    async def ask() -> None:
        answer = await console.need_session().queue.ask(what, jobs)
        if answer.error or not (answer.pages or answer.efficiency):
            console.say(answer.error or "Slurm says nothing of it", "warn")
            return
        console.say("")
        console.push_screen(Whole(_title(what, jobs), page_lines(answer)))

    console.say("asking Slurm …", "dim")
    in_background(console, "slurm", ask(), "warn")


def _title(what: str, jobs: Sequence[str]) -> str:
    names = jobs[0] if len(jobs) == 1 else format_many(len(jobs), "job")
    return f"Slurm: {what} {names if jobs else ''}".rstrip()


def page_lines(answer: "SchedulerPages") -> list[Runs]:
    """The lines of a page: how jobs used what they had, and each command with what it printed."""
    lines: list[Runs] = []
    for one in answer.efficiency:
        lines += [*([(printable_line(line), "text")] for line in one.lines), []]
    for page in answer.pages:
        lines.append([(printable_line(page.line), "title")])
        lines += [[(printable_line(line), "text")] for line in page.lines]
        lines += [[(printable_line(page.error), "warn")]] if page.error else []
        lines.append([])
    return lines[:-1]


# ---- changes


def ask_change(console: "Console", do: str, jobs: Sequence[str], to: str = "") -> None:
    """Find the command line that would do this to these jobs, ask, then run it."""
    from rankdeck.schedulers.orders import JobOrder

    order = JobOrder(do=do, jobs=tuple(jobs), to=to)

    async def ask(agreed: str) -> "JobChange":
        return await console.need_session().queue.change_jobs(order, agreed)

    console.say("asking Slurm …", "dim")
    work = _propose(console, ask, lambda change: change_question(do, change), _jobs_now)
    in_background(console, "change", work)


def ask_service(
    console: "Console", do: str, nodes: tuple[str, ...], why: str = "", *, anyway: bool = False
) -> None:
    """Find the command line that would `drain` or `resume` these nodes, ask, then run it."""
    from rankdeck.schedulers.orders import ServiceOrder

    order = ServiceOrder(do=do, nodes=nodes, why=why, anyway=anyway)

    async def ask(agreed: str) -> "ServiceChange":
        return await console.need_session().queue.change_service(order, agreed)

    console.say(f"asking Slurm about {nodes_phrase(nodes)} …", "dim")
    work = _propose(console, ask, lambda change: service_question(do, change), _nodes_now)
    in_background(console, "change", work)


async def _propose(
    console: "Console",
    ask: "_Ask[_Change]",
    question: Callable[[_Change], Question],
    outcome: Callable[[_Change], str],
) -> None:
    """Learn the command line, put the question, and run the line if the user agrees."""
    change = await ask("")
    if change.error or not change.line:
        console.say(_why_nothing(change), "warn")
        return
    console.say("")
    line = change.line

    async def carry_out() -> None:
        done = await ask(line)
        if not done.done:
            console.say(_why_nothing(done), "bad")
            return
        answer = f"; Slurm: {done.said}" if done.said else ""
        console.say(printable_line(f"{outcome(done)}{answer}"), "ok")

    def begin() -> None:
        console.say(f"{line} …", "dim")
        in_background(console, "change", carry_out(), exclusive=False)

    console.ask(question(change), begin)


def change_question(do: str, change: "JobChange") -> ChangeQuestion:
    """The question whether to run this command for jobs in Slurm, how many
    it changes, and which it leaves alone.
    """
    return ChangeQuestion(
        TITLES[do], _change_lines(change, change.hit_words), "do it", "do nothing"
    )


def service_question(do: str, change: "ServiceChange") -> TypedQuestion:
    """The question whether to run this command for nodes in Slurm,
    and which nodes it leaves alone.
    """
    lines = _change_lines(change, format_many(len(change.nodes), "node"))
    return TypedQuestion(TITLES[do], lines, printable_line(change.word))


def _change_lines(change: "OrderChange", hits: str) -> list[Runs]:
    """The command line, what it hits, and what it leaves alone."""
    lines: list[Runs] = list(break_runs([(printable_line(change.line), "title")], WIDE))
    lines += [[], [(f"It is run on the login node, as you: {hits}.", "text")]]
    left = list(change.left_alone.items())
    for name, why in left[:_MOST_LEFT]:
        lines += break_runs([(printable_line(f"{name} is left alone: {why}"), "warn")], WIDE)
    if more := left[_MOST_LEFT:]:
        lines.append([(f"and {len(more)} more are left alone", "warn")])
    return lines


def _jobs_now(change: "JobChange") -> str:
    job, now = next(iter(change.now.items()), ("", ""))
    more = f", and {len(change.now) - 1} more" if len(change.now) > 1 else ""
    return f"{job}: {now}{more}"


def _nodes_now(change: "ServiceChange") -> str:
    states = dict.fromkeys(change.now.values())
    return f"{nodes_phrase(change.nodes)}: {', '.join(states)}"


def _why_nothing(change: "OrderChange") -> str:
    """Why the command does not run: the reason for the first node or job,
    and how many more there are.
    """
    if change.error or not change.left_alone:
        return printable_line(f"not run: {change.error or 'nothing to do'}")
    name, why = next(iter(change.left_alone.items()))
    more = f"; and {len(change.left_alone) - 1} more" if len(change.left_alone) > 1 else ""
    return printable_line(f"not run: {name}: {why}{more}")
