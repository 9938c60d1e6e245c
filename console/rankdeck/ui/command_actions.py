"""What each command after `:` does: one function per row of `COMMANDS` in `commands.py`."""

import shlex
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from rankdeck.config.files import expand_path
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.safe_text import printable_line
from rankdeck.rules import query
from rankdeck.schedulers.kubernetes.choose_namespace import change_namespace, known_namespaces
from rankdeck.schedulers.slurm.choose_allocation import change_allocation, known_allocations
from rankdeck.ui import commands, fleet_views, formatting
from rankdeck.ui.fleet_views import FleetView
from rankdeck.ui.operations import (
    ask_cancel,
    copy_file,
    drain_lines,
    fetch_file,
    list_ended,
    nodes_phrase,
    run_on_nodes,
    show_attempt,
    show_last,
    silence_nodes,
    target_nodes,
    write_job_report,
)
from rankdeck.ui.screens import base
from rankdeck.ui.tour import DEMO, ELSEWHERE, ENDED, FILE
from rankdeck.values import replace
from rankdeck_agent.wire import LAUNCHER

if TYPE_CHECKING:
    from rankdeck.model.job import Job
    from rankdeck.ui.protocols import Console
    from rankdeck.ui.screens.events import EventsScreen
    from rankdeck.ui.screens.fleet import FleetScreen
    from rankdeck.ui.screens.inspection import InspectScreen
    from rankdeck.ui.screens.job import JobScreen
    from rankdeck.ui.screens.jobs import JobsScreen
    from rankdeck.ui.screens.launch import LaunchScreen

ANYWAY = "anyway"
"""Argument of `:resume` that also returns nodes that others took out of service."""


def run_typed_command(console: "Console", text: str) -> None:
    """Run the command that was typed; raises CommandError or what the session raises."""
    command, argument = commands.parse_command(text)
    VERBS[command.name](console, argument)


def argument_choices(console: "Console", argument: str) -> list[str]:
    """The possible values of this argument of a command, for completion."""
    if argument in _CHOICES:
        return _CHOICES[argument](console)
    session = console.session
    if session is None:
        return []
    if argument == "FILE":
        return [str(path) for path in session.control.job_files()]
    every = {"ID": True, "JOB": False}.get(argument)
    return [] if every is None else [j.id for j in session.jobs.all() if every or not j.state.final]


_CHOICES: Mapping[str, Callable[["Console"], list[str]]] = {
    "NODE": lambda console: [node.name for node in console.cluster.nodes],
    "THEME": lambda console: sorted(console.palettes),
    "VIEW": lambda console: [*fleet_views.Views(console.views_file).all(), "save", "delete"],
    "COLUMN": lambda _: fleet_views.column_names(),
    "SORT": lambda _: [*fleet_views.SORTS, *fleet_views.column_names()],
    "QUESTION": lambda _: list(QUESTIONS),
    "NAMESPACE": known_namespaces,
    "ALLOCATION": known_allocations,
}
"""Argument of a command -> its values, where they need no open cluster."""


def _node(console: "Console", name: str) -> None:
    if name not in {node.name for node in console.cluster.nodes}:
        raise commands.CommandError(f"no node `{printable_line(name)}` in this cluster")
    console.open_node(name)


def _job(console: "Console", text: str) -> None:
    console.open_job(console.need_session().jobs.find(text).id)


def _cancel(console: "Console", text: str) -> None:
    screen = job_screen(console)
    job = screen.job if screen else None
    if job and job.unit == "task" and text.replace("-", "").replace(",", "").isdigit():
        ask_cancel(console, job.id, _tasks(job, text))
        return
    text = text or shown_job_id(console)
    if not text:
        raise commands.CommandError("write `cancel JOB`, or choose a job on Jobs")
    ask_cancel(console, console.need_session().jobs.find(text).id)


def _attempt(console: "Console", text: str) -> None:
    screen = job_screen(console)
    if screen is None:
        raise commands.CommandError("open a job first")
    if not text:
        screen.view.want(replace(screen.view.wanted, run=None))
        console.say("all runs again")
    elif text.isascii() and text.isdigit() and len(text) < 6:
        show_attempt(console, screen.job_id, screen.view, int(text))
    else:
        raise commands.CommandError("write `attempt N`, from 0; alone: all runs again")


def _tasks(job: "Job", text: str) -> tuple[int, ...]:
    from rankdeck.logs.rank_choice import choose_ranks

    try:
        return choose_ranks(text, job.ranks)
    except ValueError as error:
        raise commands.CommandError(str(error)) from error


def _rank(console: "Console", text: str) -> None:
    screen = job_screen(console)
    if screen is None or not text.isdigit():
        raise commands.CommandError("open a job first, then :rank NUMBER")
    screen.zoom(int(text))


def _nodes(console: "Console") -> tuple[str, ...]:
    """The nodes of `target_nodes`; raises CommandError if there are none."""
    nodes = target_nodes(console)
    if not nodes:
        raise commands.CommandError("no node is marked")
    return nodes


def _launch(console: "Console", text: str) -> None:
    screen = launch_screen(console)
    if text:
        console.call_after_refresh(screen.select, expand_path(text))


def _pager(console: "Console", _: str) -> None:
    screen = job_screen(console)
    if screen is None:
        raise commands.CommandError("open a job first, then a rank of it")
    screen.page()


def _goto(console: "Console", text: str) -> None:
    from rankdeck.logs.goal import goal_of

    try:
        goal_of(text, time.time())
    except ValueError as error:
        raise commands.CommandError(str(error)) from error
    if screen := job_screen(console):
        screen.go_to(text)
    else:
        console.goto("events")
        cast("EventsScreen", console.home("events")).go_to(text)


def _report(console: "Console", text: str) -> None:
    job_id = shown_job_id(console)
    if not job_id:
        raise commands.CommandError("open a job first, or choose one on Jobs")
    path = expand_path(text or f"{job_id}.html").absolute()
    if path.exists() or not path.parent.is_dir():
        why = "is there already" if path.exists() else "cannot be written: no such folder"
        raise commands.CommandError(f"{printable_line(str(path))} {why}")
    write_job_report(console, job_id, path)


def _script(console: "Console", text: str) -> None:
    if not text:
        raise commands.CommandError("write `script FILE`")
    launch_screen(console).script(expand_path(text).absolute())


def _fleet(console: "Console") -> "FleetScreen":
    console.goto("fleet")
    return cast("FleetScreen", console.home("fleet"))


def _view(console: "Console", text: str) -> None:
    screen, views = _fleet(console), fleet_views.Views(console.views_file)
    word, _, name = text.partition(" ")
    if word == "save":
        views.save(name.strip() or screen.view_name, screen.view)
        screen.look(screen.view, name.strip() or screen.view_name)
        screen.say(f"view {screen.view_name} saved", "ok")
    elif word == "delete":
        views.delete(name.strip())
        if screen.view_name == name.strip():
            screen.look(screen.view, "")
        screen.say(f"view {name} deleted", "ok")
    else:
        screen.look(views.find(text) if text else FleetView(), text)


def _columns(console: "Console", text: str) -> None:
    screen = _fleet(console)
    titles = tuple(fleet_views.require_column(word).title for word in text.split())
    screen.look(replace(screen.view, columns=titles))


def _sort(console: "Console", text: str) -> None:
    screen = _fleet(console)
    named = [fleet_views.SORTED.get(word.upper(), word) for word in text.split()]
    titles = tuple(
        word if word in fleet_views.SORTS else fleet_views.require_column(word).title
        for word in named
    )
    screen.look(replace(screen.view, sort=titles or ("STATE",)))


def _sh(console: "Console", text: str) -> None:
    if text:
        run_on_nodes(console, text)
    else:
        show_last(console)


def _mark(console: "Console", text: str) -> None:
    screen = _fleet(console)
    try:
        screen.mark(screen.matching(text))
    except query.QueryError as error:
        raise commands.CommandError(str(error)) from error
    screen.say(f"{nodes_phrase(screen.marked)} marked", "ok")


def _resume(console: "Console", text: str) -> None:
    if text not in ("", ANYWAY):
        raise commands.CommandError(f"write `resume`, or `resume {ANYWAY}`")
    from rankdeck.schedulers.slurm.questions import ask_service

    ask_service(console, "resume", _nodes(console), anyway=text == ANYWAY)


def _drain(console: "Console", text: str) -> None:
    nodes, cluster = _nodes(console), console.cluster
    if cluster.can.queue and cluster.options.get("login"):
        from rankdeck.schedulers.slurm.questions import ask_service

        ask_service(console, "drain", nodes, text)
        return
    lines = drain_lines(cluster.can, nodes, text)
    if not lines:
        raise commands.CommandError("no scheduler here takes nodes out of service")
    from rankdeck.ui.screens.modals import lines_to_copy

    question = lines_to_copy("Take these nodes out of service", lines)
    copied = formatting.format_many(len(lines), "line")
    console.ask(question, lambda: console.copy("\n".join(lines), copied))


def _change(do: str) -> Callable[["Console", str], None]:
    """The command that does this to the chosen jobs of Slurm."""

    def change(console: "Console", text: str) -> None:
        from rankdeck.schedulers.slurm.questions import ask_change, chosen_jobs

        if bool(text) != (do == "timelimit"):
            raise commands.CommandError(f"write `{do}{' 02:00:00' if do == 'timelimit' else ''}`")
        ask_change(console, do, chosen_jobs(console), text)

    return change


QUESTIONS = {
    "job": True,
    "priority": True,
    "efficiency": True,
    "shares": False,
    "controller": False,
}
"""What Slurm can be asked -> whether about the chosen jobs."""


def _slurm(console: "Console", text: str) -> None:
    from rankdeck.schedulers.slurm.questions import ask_slurm, chosen_jobs

    what = text or "job"
    if what not in QUESTIONS:
        raise commands.CommandError(f"write `slurm` and one of {', '.join(QUESTIONS)}")
    ask_slurm(console, what, chosen_jobs(console) if QUESTIONS[what] else ())


def show_scheduler(console: "Console") -> None:
    """Show what Slurm says of the job under the cursor, or on screen, or that it has none."""
    try:
        _slurm(console, "job")
    except commands.CommandError as error:
        console.say(str(error), "warn")


def _cp(console: "Console", text: str) -> None:
    words = shlex.split(text)
    if not 1 <= len(words) <= 2:
        raise commands.CommandError("write `cp FILE [PATH]`, or `cp :FILE [FOLDER]` from nodes")
    nodes = _nodes(console)
    if words[0].startswith(":"):
        folder = expand_path(words[1] if len(words) > 1 else ".").absolute()
        fetch_file(console, nodes, words[0][1:], folder)
    else:
        copy_file(console, nodes, expand_path(words[0]), *words[1:])


def _theme(console: "Console", name: str) -> None:
    if name not in console.palettes:
        there = ", ".join(sorted(console.palettes))
        raise commands.CommandError(f"no theme `{printable_line(name)}`; there are {there}")
    console.choose_theme(name)


def _ascii(console: "Console", _: str) -> None:
    console.set_alphabet(ascii_only=not console.ascii)
    console.paint_anew()


def toggle_tour(console: "Console") -> None:
    """Begin the tour on the demo, or end it."""
    files = console.need_session().control.job_files()
    here = console.cluster.name == DEMO and any(file.stem == FILE for file in files)
    if not here and console.tour.place is None:
        console.say(ELSEWHERE, "warn")
        return
    console.tour.toggle()
    console.goto("fleet")
    console.say("" if console.tour.place is not None else ENDED, "dim")


VERBS: dict[str, Callable[["Console", str], None]] = {
    "fleet": lambda console, _: console.goto("fleet"),
    "node": _node,
    "jobs": lambda console, _: console.goto("jobs"),
    "job": _job,
    "ended": lambda console, _: list_ended(console),
    "launch": _launch,
    "messages": lambda console, _: console.goto("messages"),
    "events": lambda console, _: console.goto("events"),
    "acceptance": lambda console, _: console.goto("acceptance"),
    "scaling": lambda console, _: console.goto("scaling"),
    "swap": lambda console, text: swap_ranks(console, text.strip()),
    "cancel": _cancel,
    "rank": _rank,
    "attempt": _attempt,
    "pager": _pager,
    "goto": _goto,
    "report": _report,
    "edit": lambda console, _: launch_screen(console).edit(),
    "script": _script,
    "sh": _sh,
    "mark": _mark,
    "silence": lambda console, text: silence_nodes(console, _nodes(console), text),
    "drain": _drain,
    "resume": _resume,
    **{do: _change(do) for do in ("hold", "release", "requeue", "timelimit")},
    "slurm": _slurm,
    "namespace": change_namespace,
    "allocation": change_allocation,
    "cp": _cp,
    "view": _view,
    "columns": _columns,
    "sort": _sort,
    "theme": _theme,
    "ascii": _ascii,
    "tour": lambda console, _: toggle_tour(console),
    "help": lambda console, _: console.action_help(),
    "q": lambda console, _: console.leave(),
}


def shown_job_id(console: "Console") -> str:
    """The id of the job on the screen, or under the cursor; "" if there is none."""
    if job := job_screen(console):
        return job.job_id
    screen = _top(console)
    jobs = screen is not None and screen.screen_name == "jobs"
    return cast("JobsScreen", screen).table.cursor if jobs else ""


def swap_ranks(console: "Console", limit: str = "") -> None:
    """Find out whether the program or the node is to blame for what went wrong in this job."""
    from rankdeck.ui.swap_proof import ask_swap

    if job_id := shown_job_id(console):
        ask_swap(console, job_id, limit)
    else:
        console.say("no job here: choose one on Jobs", "warn")


def _top(console: "Console") -> base.BaseScreen | None:
    return cast("base.BaseScreen | None", console.top_screen)


def job_screen(console: "Console") -> "JobScreen | None":
    """The job screen if it is on top; else None."""
    screen = _top(console)
    job = screen is not None and screen.screen_name == "job"
    return cast("JobScreen", screen) if job else None


def launch_screen(console: "Console") -> "LaunchScreen":
    """Show the launch screen and return it; raises NotOpenError if there is no session."""
    console.need_session()
    console.goto("launch")
    return cast("LaunchScreen", console.home("launch"))


def show_inspection(console: "Console") -> None:
    """Show where the ranks of the shown job are now; on the inspect screen, ask again."""
    screen = _top(console)
    if screen is not None and screen.screen_name == "inspect":
        cast("InspectScreen", screen).look()
    elif job_id := shown_job_id(console):
        jobs = console.need_session().jobs
        job = jobs.job(job_id) if jobs.knows(job_id) else None
        if job and job.state.final and not job.unproven:
            console.say(f"{job_id} has ended: none of its ranks runs now", "warn")
            return
        console.push_screen(base.make_screen("inspect", job_id))


def show_logs(console: "Console") -> None:
    """Show the merged output of the job under the cursor, or of the newest job on
    the chosen nodes; on a job, its launcher's.
    """
    if job := job_screen(console):
        job.zoom(LAUNCHER)
        return
    nodes = set(target_nodes(console))
    newest = (job for job in console.need_session().jobs.all() if nodes & set(job.nodes))
    job_id = shown_job_id(console) or next((one.id for one in newest), "")
    if not job_id or not console.need_session().jobs.knows(job_id):
        console.say("no job of ours ran there", "dim")
        return
    console.open_job(job_id)
    ranks = f"node={fold_nodes(sorted(nodes))}" if nodes else ""
    console.call_after_refresh(lambda: (screen := job_screen(console)) and screen.read_logs(ranks))


def show_processes(console: "Console") -> None:
    """Show the processes on the nodes of `target_nodes`; on a job, what each rank uses.

    Raises NotOpenError.
    """
    console.need_session()
    job = job_screen(console)
    if job is not None and job.job is not None:
        console.push_screen(base.make_screen("processes", job.job.nodes, job.job_id))
    elif nodes := target_nodes(console):
        console.push_screen(base.make_screen("processes", nodes))


def launch_on(console: "Console") -> None:
    """Show the launch screen for a job on exactly the nodes of `target_nodes`."""
    if nodes := target_nodes(console):
        console.call_after_refresh(launch_screen(console).use_only, nodes)


def show_clone(console: "Console") -> None:
    """Show the launch screen with the values of the shown job, to change and start again."""
    if job_id := shown_job_id(console):
        job = console.need_session().jobs.job(job_id)
        console.call_after_refresh(launch_screen(console).clone, job)
