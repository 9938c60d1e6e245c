"""What can be done with a job: start, cancel, look into it, start it again, replay it."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, cast

from rankdeck.errors import RankdeckError
from rankdeck.model.text import printable
from rankdeck.ui.screens import base

if TYPE_CHECKING:
    from rankdeck.images.copy import CopyState
    from rankdeck.model.job import JobSpec
    from rankdeck.ui.app import RankdeckApp
    from rankdeck.ui.screens.inspect import InspectScreen
    from rankdeck.ui.screens.job import JobScreen
    from rankdeck.ui.screens.jobs import JobsScreen
    from rankdeck.ui.screens.launch import LaunchScreen

SPEED = 4.0
"""Times as fast as it was."""


def shown(deck: "RankdeckApp") -> str:
    """The id of the job on the screen, or under the cursor; "" where there is none."""
    if job := job_screen(deck):
        return job.job_id
    screen = deck.deck_screen
    jobs = screen is not None and screen.screen_name == "jobs"
    return cast("JobsScreen", screen).table.cursor if jobs else ""


def job_screen(deck: "RankdeckApp") -> "JobScreen | None":
    """The job on top of everything else, if there is one."""
    screen = deck.deck_screen
    job = screen is not None and screen.screen_name == "job"
    return cast("JobScreen", screen) if job else None


def launch_screen(deck: "RankdeckApp") -> "LaunchScreen":
    """The form to start jobs from, brought up."""
    deck.goto("launch")
    return cast("LaunchScreen", deck.home("launch"))


def launch(deck: "RankdeckApp", spec: "JobSpec") -> None:
    """Start a job and show it."""
    deck.say(f"starting {printable(spec.name)}…")
    deck.run_worker(_launch(deck, spec), name="launch", group="launch", exclusive=True)


async def _launch(deck: "RankdeckApp", spec: "JobSpec") -> None:
    from rankdeck.images.copy import progress_words

    def tell(progress: "CopyState") -> None:
        copied = printable(progress_words(progress))
        deck.say(f"{printable(spec.name)}: image {copied}")

    await _open(deck, deck.session.launch(spec, tell))


async def _open(deck: "RankdeckApp", made: Awaitable[str]) -> None:
    """Show the job once it is there, or say why it is not."""
    try:
        job_id = await made
    except RankdeckError as error:
        deck.say(printable(str(error)), "bad")
        return
    deck.say("")
    deck.open_job(job_id)


def ask_cancel(deck: "RankdeckApp", job_id: str) -> None:
    """Ask, then end every process of the job."""
    from rankdeck.ui.screens.modals import cancel_question

    try:
        job = deck.session.jobs.job(job_id)
    except RankdeckError as error:
        deck.say(str(error), "warn")
        return
    if job.state.final:
        deck.say(f"{printable(job.id)} has ended already", "warn")
        return

    def answer(yes: bool | None) -> None:
        if yes:
            deck.say(f"ending {printable(job_id)}…", "warn")
            deck.run_worker(_cancel(deck, job_id), name=f"cancel {job_id}")

    deck.push_screen(cancel_question(job), answer)


async def _cancel(deck: "RankdeckApp", job_id: str) -> None:
    from rankdeck.ui.screens.modals import report_note

    try:
        report = await deck.session.cancel(job_id)
    except RankdeckError as error:
        deck.say(printable(str(error)), "bad")
        return
    deck.say("")
    deck.push_screen(report_note(report))


def inspect(deck: "RankdeckApp") -> None:
    """Where its ranks are now; on that screen, look anew."""
    screen = deck.deck_screen
    if screen is not None and screen.screen_name == "inspect":
        cast("InspectScreen", screen).look()
    elif job_id := shown(deck):
        deck.push_screen(base.make("inspect", job_id))


def clone(deck: "RankdeckApp") -> None:
    """Its form and plan, to change and start once more."""
    if job_id := shown(deck):
        job = deck.session.jobs.job(job_id)
        deck.call_after_refresh(launch_screen(deck).clone, job)


def replay(deck: "RankdeckApp", job_id: str = "", speed: float = SPEED) -> None:
    """Read a job back from its nodes and show it as it happened."""
    if not (job_id := job_id or shown(deck)):
        return
    deck.say(f"reading {printable(job_id)} back from its nodes …", "dim")
    work = _open(deck, deck.session.replay(job_id, speed))
    deck.run_worker(work, name="replay", group="replay", exclusive=True)


def show_first(deck: "RankdeckApp") -> None:
    """The job that the console was opened for, or its replay."""
    if not deck.first_job:
        return
    try:
        job_id = deck.session.jobs.find(deck.first_job).id
    except RankdeckError as error:
        deck.say(printable(str(error)), "warn")
        return
    if deck.first_replay:
        replay(deck, job_id, deck.first_replay)
    else:
        deck.call_after_refresh(deck.open_job, job_id)
