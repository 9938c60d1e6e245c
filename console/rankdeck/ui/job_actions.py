"""What can be done with a job: start, cancel, look into it, start it again, replay it."""

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rankdeck.errors import RankdeckError
from rankdeck.model.nodeset import fold, fold_ranks
from rankdeck.model.text import printable

if TYPE_CHECKING:
    from pathlib import Path

    from rankdeck.images.copy import CopyState
    from rankdeck.model.job import JobSpec
    from rankdeck.model.schedulers import Attempt
    from rankdeck.ui.console_protocol import Console
    from rankdeck.ui.widgets.logview import LogView

SPEED = 4.0
"""A replay runs so many times as fast as the job."""


def is_off(console: "Console", need: str, what: "JobSpec | str") -> bool:
    """Whether this user may not do it; if so, say why."""
    why = console.session.why_not(need, what)
    if why:
        console.say(why, "warn")
    return bool(why)


def launch(console: "Console", spec: "JobSpec") -> None:
    """Start a job and show it."""
    if is_off(console, "launch", spec):
        return
    console.say(f"starting {spec.name}…")
    console.run_worker(_launch(console, spec), name="launch", group="launch", exclusive=True)


async def _launch(console: "Console", spec: "JobSpec") -> None:
    from rankdeck.images.copy import progress_words

    def tell(progress: "CopyState | str") -> None:
        if isinstance(progress, str):
            console.say(printable(progress), "bad")
            return
        copied = printable(progress_words(progress))
        console.say(f"{spec.name}: image {copied}")

    await _open(console, console.session.launch(spec, tell))


async def _open(console: "Console", made: Awaitable[str]) -> None:
    """Show the job once it has started, or say why it has not."""
    try:
        job_id = await made
    except RankdeckError as error:
        console.say(str(error), "bad")
        return
    console.say("")
    console.open_job(job_id)


def attach(console: "Console", name: str) -> None:
    """Follow a job that others started, and show it."""
    if is_off(console, "follow", name):
        return
    console.say(f"reading {name} …", "dim")
    work = _open(console, console.session.attach(name))
    console.run_worker(work, name="attach", group="attach", exclusive=True)


def list_ended(console: "Console") -> None:
    """Also list jobs that ended, from Slurm's accounting, which is asked once."""
    console.goto("jobs")
    console.say("asking Slurm's accounting …", "dim")
    console.run_worker(_list_ended(console), name="ended", group="ended", exclusive=True)


async def _list_ended(console: "Console") -> None:
    try:
        why = await console.session.list_ended()
    except RankdeckError as error:
        why = str(error)
    console.say(why, "warn")


def ask_cancel(console: "Console", job_id: str, tasks: Sequence[int] = ()) -> None:
    """Ask, then end every process of the job, or of these tasks of an array."""
    from rankdeck.ui.screens.modals import cancel_question

    try:
        job = console.session.jobs.job(job_id)
    except RankdeckError as error:
        console.say(str(error), "warn")
        return
    if job.state.final and not job.unproven:
        console.say(f"{job.id} has ended already", "warn")
        return
    if is_off(console, "cancel", job.id):
        return

    def answer(yes: bool | None) -> None:
        if yes:
            console.say(f"ending {job_id}…", "warn")
            console.run_worker(_cancel(console, job_id, tasks), name=f"cancel {job_id}")

    console.push_screen(cancel_question(job, tasks), answer)


async def _cancel(console: "Console", job_id: str, tasks: Sequence[int]) -> None:
    from rankdeck.ui.screens.modals import report_note

    try:
        session = console.session
        report = await (session.cancel_tasks(job_id, tasks) if tasks else session.cancel(job_id))
    except RankdeckError as error:
        console.say(str(error), "bad")
        return
    console.say("")
    console.push_screen(report_note(report))


def show_attempt(console: "Console", job_id: str, view: "LogView", number: int) -> None:
    """Show only what was written in this run (from 0) of the job, and where and how that run ended."""
    work = _show_attempt(console, job_id, view, number)
    console.run_worker(work, name="attempt", group="attempt", exclusive=True)


async def _show_attempt(console: "Console", job_id: str, view: "LogView", number: int) -> None:
    try:
        run = await console.session.log_run(job_id, number)
    except RankdeckError as error:
        console.say(str(error), "warn")
        return
    view.want(replace(view.wanted, run=(number, run)))
    slurm = console.session.jobs.job(job_id).slurm
    earlier = [one for one in slurm.attempts if one.number == number] if slurm else []
    console.say(attempt_words(earlier[0]) if earlier else f"attempt {number}, the newest")


def attempt_words(attempt: "Attempt") -> str:
    """`attempt 0 on n[1-2]: a node failed; rank 3 failed, exit code 1`."""
    ranks = fold_ranks(attempt.failed)
    code = "" if attempt.exit_code is None else f", exit code {attempt.exit_code}"
    failed = f"; rank {ranks} failed{code}" if ranks else ""
    where = f" on {fold(attempt.nodes)}" if attempt.nodes else ""
    return f"attempt {attempt.number}{where}: {attempt.text}{failed}"


def replay(console: "Console", job_id: str, speed: float = SPEED) -> None:
    """Read a job back from its nodes and show it as it happened."""
    console.say(f"reading {job_id} back from its nodes …", "dim")
    work = _open(console, console.session.replay(job_id, speed))
    console.run_worker(work, name="replay", group="replay", exclusive=True)


def forget(console: "Console", job_id: str) -> None:
    """Drop a replay from the list; the job itself stays."""
    try:
        console.session.forget(job_id)
    except RankdeckError as error:
        console.say(str(error), "warn")
        return
    console.say("the replay is forgotten, the job itself is not", "ok")


def report(console: "Console", job_id: str, path: "Path") -> None:
    """Write everything about a job into this new file."""
    console.say(f"collecting all about {job_id} …", "dim")
    console.run_worker(_report(console, job_id, path), name="report", group="report")


async def _report(console: "Console", job_id: str, path: "Path") -> None:
    try:
        missing = await console.session.report(job_id, path, page=path.suffix == ".html")
    except RankdeckError as error:
        console.say(str(error), "bad")
        return
    console.say(f"written: {path}", "ok")
    for node, why in list(missing.items())[:1]:
        more = f"; and {len(missing) - 1} more" if len(missing) > 1 else ""
        console.say(f"not in it: {node}: {why}{more}", "warn")


def show_first(console: "Console") -> None:
    """The job that the console was opened for, or its replay."""
    if not console.first_job:
        return
    try:
        job_id = console.session.jobs.find(console.first_job).id
    except RankdeckError as error:
        console.say(str(error), "warn")
        return
    if console.first_replay:
        replay(console, job_id, console.first_replay)
    else:
        console.call_after_refresh(console.open_job, job_id)
