"""What each command after `:` does: one function per row of `commands.COMMANDS`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rankdeck.model.text import printable
from rankdeck.ui import commands, fleet_views, job_actions
from rankdeck.ui.fleet_views import FleetView

if TYPE_CHECKING:
    from rankdeck.ui.app import RankdeckApp
    from rankdeck.ui.screens.fleet import FleetScreen


def run(deck: "RankdeckApp", text: str) -> None:
    """Do what was typed; raises CommandError or what the session raises."""
    command, argument = commands.parse(text)
    VERBS[command.name](deck, argument)


def choices(deck: "RankdeckApp", argument: str) -> list[str]:
    """What an argument of a command may be."""
    session = deck.session
    if argument == "NODE":
        return [node.name for node in session.cluster.nodes]
    if argument == "THEME":
        return sorted(deck.palettes)
    if argument == "VIEW":
        return [*fleet_views.Views(deck.views_file).all(), "save", "delete"]
    if argument == "COLUMN":
        return fleet_views.names()
    if argument == "SORT":
        return [*fleet_views.SORTS, *fleet_views.names()]
    if argument == "FILE":
        return [str(path) for path in session.job_files()]
    if argument in ("ID", "JOB"):
        return [j.id for j in session.jobs.all() if argument == "ID" or not j.state.final]
    return []


def _node(deck: "RankdeckApp", name: str) -> None:
    if name not in {node.name for node in deck.session.cluster.nodes}:
        raise commands.CommandError(f"no node `{printable(name)}` in this cluster")
    deck.open_node(name)


def _job(deck: "RankdeckApp", text: str) -> None:
    deck.open_job(deck.session.jobs.find(text).id)


def _cancel(deck: "RankdeckApp", text: str) -> None:
    screen = job_actions.job_screen(deck)
    if not text and screen:
        text = screen.job_id
    job_actions.ask_cancel(deck, deck.session.jobs.find(text).id)


def _rank(deck: "RankdeckApp", text: str) -> None:
    screen = job_actions.job_screen(deck)
    if screen is None or not text.isdigit():
        raise commands.CommandError("open a job first, then :rank NUMBER")
    screen.zoom(int(text))


def _launch(deck: "RankdeckApp", text: str) -> None:
    screen = job_actions.launch_screen(deck)
    if text:
        deck.call_after_refresh(screen.select, Path(text).expanduser())


def _fleet(deck: "RankdeckApp") -> "FleetScreen":
    deck.goto("fleet")
    return cast("FleetScreen", deck.home("fleet"))


def _view(deck: "RankdeckApp", text: str) -> None:
    screen, views = _fleet(deck), fleet_views.Views(deck.views_file)
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


def _columns(deck: "RankdeckApp", text: str) -> None:
    screen = _fleet(deck)
    titles = tuple(fleet_views.column(word).title for word in text.split())
    screen.look(replace(screen.view, columns=titles))


def _sort(deck: "RankdeckApp", text: str) -> None:
    screen = _fleet(deck)
    named = [fleet_views.SORTED.get(word.upper(), word) for word in text.split()]
    titles = tuple(
        word if word in fleet_views.SORTS else fleet_views.column(word).title for word in named
    )
    screen.look(replace(screen.view, sort=titles or ("STATE",)))


def _theme(deck: "RankdeckApp", name: str) -> None:
    if name not in deck.palettes:
        there = ", ".join(sorted(deck.palettes))
        raise commands.CommandError(f"no theme `{printable(name)}`; there are {there}")
    deck.choose_theme(name)


def _ascii(deck: "RankdeckApp", text: str) -> None:
    del text
    deck.set_alphabet(ascii_only=not deck.ascii)
    deck.paint_anew()


VERBS: dict[str, Callable[["RankdeckApp", str], None]] = {
    "fleet": lambda deck, _: deck.goto("fleet"),
    "node": _node,
    "jobs": lambda deck, _: deck.goto("jobs"),
    "job": _job,
    "launch": _launch,
    "messages": lambda deck, _: deck.goto("messages"),
    "events": lambda deck, _: deck.goto("events"),
    "cancel": _cancel,
    "rank": _rank,
    "view": _view,
    "columns": _columns,
    "sort": _sort,
    "theme": _theme,
    "ascii": _ascii,
    "help": lambda deck, _: deck.action_help(),
    "q": lambda deck, _: deck.leave(),
}
