"""What each command after `:` does: one function per row of `commands.COMMANDS`."""

from typing import TYPE_CHECKING, cast

from rankdeck.model.text import printable
from rankdeck.ui.screens import base

if TYPE_CHECKING:
    from rankdeck.ui.console_protocol import Console
    from rankdeck.ui.screens.inspect import InspectScreen
    from rankdeck.ui.screens.job import JobScreen
    from rankdeck.ui.screens.jobs import JobsScreen
    from rankdeck.ui.screens.launch import LaunchScreen

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rankdeck.ui import commands, fleet_views, job_actions
from rankdeck.ui.fleet_views import FleetView

if TYPE_CHECKING:
    from rankdeck.ui.console_protocol import Console
    from rankdeck.ui.screens.fleet import FleetScreen


def run(console: "Console", text: str) -> None:
    """Do what was typed; raises CommandError or what the session raises."""
    command, argument = commands.parse(text)
    VERBS[command.name](console, argument)


def choices(console: "Console", argument: str) -> list[str]:
    """What an argument of a command may be."""
    session = console.session
    if argument == "NODE":
        return [node.name for node in session.cluster.nodes]
    if argument == "THEME":
        return sorted(console.palettes)
    if argument == "VIEW":
        return [*fleet_views.Views(console.views_file).all(), "save", "delete"]
    if argument == "COLUMN":
        return fleet_views.names()
    if argument == "SORT":
        return [*fleet_views.SORTS, *fleet_views.names()]
    if argument == "FILE":
        return [str(path) for path in session.job_files()]
    if argument in ("ID", "JOB"):
        return [j.id for j in session.jobs.all() if argument == "ID" or not j.state.final]
    return []


def _node(console: "Console", name: str) -> None:
    if name not in {node.name for node in console.session.cluster.nodes}:
        raise commands.CommandError(f"no node `{printable(name)}` in this cluster")
    console.open_node(name)


def _job(console: "Console", text: str) -> None:
    console.open_job(console.session.jobs.find(text).id)


def _cancel(console: "Console", text: str) -> None:
    screen = job_screen(console)
    if not text and screen:
        text = screen.job_id
    job_actions.ask_cancel(console, console.session.jobs.find(text).id)


def _rank(console: "Console", text: str) -> None:
    screen = job_screen(console)
    if screen is None or not text.isdigit():
        raise commands.CommandError("open a job first, then :rank NUMBER")
    screen.zoom(int(text))


def _launch(console: "Console", text: str) -> None:
    screen = launch_screen(console)
    if text:
        console.call_after_refresh(screen.select, Path(text).expanduser())


def _fleet(console: "Console") -> "FleetScreen":
    console.goto("fleet")
    return cast("FleetScreen", console.home("fleet"))


def _view(console: "Console", text: str) -> None:
    screen, views = _fleet(console), fleet_views.Views(console.views_file)
    word, _, name = text.partition(" ")
    if word == "save":
        views.save(name.strip() or screen.view_name, screen.view)
        screen.look(screen.view, name.strip() or screen.view_name)
        screen.say(f"kept as {printable(screen.view_name)}", "ok")
    elif word == "delete":
        views.delete(name.strip())
        if screen.view_name == name.strip():
            screen.look(screen.view, "")
        screen.say(f"{printable(name)} is forgotten", "ok")
    else:
        screen.look(views.find(text) if text else FleetView(), text)


def _columns(console: "Console", text: str) -> None:
    screen = _fleet(console)
    titles = tuple(fleet_views.column(word).title for word in text.split())
    screen.look(replace(screen.view, columns=titles))


def _sort(console: "Console", text: str) -> None:
    screen = _fleet(console)
    named = [fleet_views.SORTED.get(word.upper(), word) for word in text.split()]
    titles = tuple(
        word if word in fleet_views.SORTS else fleet_views.column(word).title for word in named
    )
    screen.look(replace(screen.view, sort=titles or ("STATE",)))


def _theme(console: "Console", name: str) -> None:
    if name not in console.palettes:
        there = ", ".join(sorted(console.palettes))
        raise commands.CommandError(f"no theme `{printable(name)}`; there are {there}")
    console.choose_theme(name)


def _ascii(console: "Console", text: str) -> None:
    del text
    console.set_alphabet(ascii_only=not console.ascii)
    console.paint_anew()


VERBS: dict[str, Callable[["Console", str], None]] = {
    "fleet": lambda console, _: console.goto("fleet"),
    "node": _node,
    "jobs": lambda console, _: console.goto("jobs"),
    "job": _job,
    "launch": _launch,
    "messages": lambda console, _: console.goto("messages"),
    "events": lambda console, _: console.goto("events"),
    "acceptance": lambda console, _: console.goto("acceptance"),
    "cancel": _cancel,
    "rank": _rank,
    "view": _view,
    "columns": _columns,
    "sort": _sort,
    "theme": _theme,
    "ascii": _ascii,
    "help": lambda console, _: console.action_help(),
    "q": lambda console, _: console.leave(),
}


def shown(console: "Console") -> str:
    """The id of the job on the screen, or under the cursor; "" where there is none."""
    if job := job_screen(console):
        return job.job_id
    screen = _top(console)
    jobs = screen is not None and screen.screen_name == "jobs"
    return cast("JobsScreen", screen).table.cursor if jobs else ""


def _top(console: "Console") -> base.BaseScreen | None:
    return cast("base.BaseScreen | None", console.top_screen)


def job_screen(console: "Console") -> "JobScreen | None":
    """The job on top of everything else, if there is one."""
    screen = _top(console)
    job = screen is not None and screen.screen_name == "job"
    return cast("JobScreen", screen) if job else None


def launch_screen(console: "Console") -> "LaunchScreen":
    """The form to start jobs from, brought up."""
    console.goto("launch")
    return cast("LaunchScreen", console.home("launch"))


def inspect(console: "Console") -> None:
    """Where its ranks are now; on that screen, look anew."""
    screen = _top(console)
    if screen is not None and screen.screen_name == "inspect":
        cast("InspectScreen", screen).look()
    elif job_id := shown(console):
        console.push_screen(base.make("inspect", job_id))


def clone(console: "Console") -> None:
    """Its form and plan, to change and start once more."""
    if job_id := shown(console):
        job = console.session.jobs.job(job_id)
        console.call_after_refresh(launch_screen(console).clone, job)
