"""One meaning for each key: the table of actions is held to it, and Help to the table."""

import pytest

from rankdeck.ui import actions, movement, themes
from rankdeck.ui.app import RankdeckApp
from rankdeck.ui.screens import base
from rankdeck.ui.screens.help import help_lines
from tests.support.cases import each
from tests.ui.support import scenes
from tests.ui.test_screens import console, shows, until

SAME_IN_SPIRIT = {
    "enter": "goes on with what is chosen",
    "slash": "looks for words",
    "t": "the tour, on Help alone, where nothing has a time",
}
"""Keys whose action each screen has its own word for."""
PAGE, CELLS = 10, 8
NAMED = [
    key
    for action in actions.ACTIONS
    for key in action.keys.split(",")
]  # fmt: skip


def is_move(key: str) -> bool:
    return (
        movement.key_steps(key, PAGE) is not None
        or movement.key_sidestep(key, CELLS) is not None
        or movement.key_grid_step(key) is not None
    )


@each(sorted(set(NAMED)))
def test_a_key_means_the_same_on_every_screen(key: str) -> None:
    meanings = {one.id for one in actions.ACTIONS if key in one.keys.split(",")}

    assert len(meanings) == 1 or key in SAME_IN_SPIRIT
    assert not is_move(key)


def test_an_action_stands_in_the_table_once() -> None:
    ids = [action.id for action in actions.ACTIONS]

    assert sorted(set(ids)) == sorted(ids)


@pytest.mark.parametrize("screen", actions.EVERYWHERE)
def test_on_each_screen_a_key_does_one_thing(screen: str) -> None:
    keys = [key for a in actions.for_screen(screen) for key in a.keys.split(",")]

    assert sorted(set(keys)) == sorted(keys)


@pytest.mark.parametrize("about", actions.EVERYWHERE)
def test_help_has_every_key_of_every_screen(about: str) -> None:
    lines = ["".join(text for text, _ in line) for line in help_lines(about, themes.UNICODE)]
    for action in actions.ACTIONS:
        told = [line for line in lines if action.help in line]
        assert any(action.shown_keys in line for line in told), action


def test_help_has_every_key_that_moves() -> None:
    told = " ".join(key for key, _ in movement.MOVES).split()
    every = [*map(chr, range(33, 127)), "space", "pageup", "pagedown", "home", "end"]
    for key in filter(is_move, every):
        assert actions.key_label(key) in told


@pytest.mark.parametrize("screen", actions.EVERYWHERE)
def test_every_action_can_be_done_on_its_screens(screen: str) -> None:
    for action in actions.for_screen(screen):
        of_the_app = action.id in actions.OF_THE_APP
        place = RankdeckApp if of_the_app else base.screen_kind(screen)
        assert hasattr(place, f"action_{action.id.partition('(')[0]}"), action


LEADS_AWAY = {
    "leave",
    "back",
    "help",
    "command",
    "redraw",
    "inspect",
    "clone",
    "replay",
    "swap",
    "cancel",
    "at_node",
    "processes",
    "describe",
}


@pytest.mark.left_out("M", "c")
@pytest.mark.long
@pytest.mark.parametrize("view", ["w", "c", "M"])
async def test_every_key_of_the_job_screen_can_be_pressed_in_every_view(
    view: str,
) -> None:
    async with console(scenes.failing(), (100, 30)) as (app, pilot):
        app.open_job(scenes.JOB)
        await shows(app, pilot, "failed first")
        for action in actions.for_screen("job"):
            if action.id.startswith("goto_") or action.id in LEADS_AWAY:
                continue
            await pilot.press("w", view, action.keys.split(",")[0])
            if app.screen.prompt.display:
                await pilot.press("escape")
            await pilot.pause()
            assert app.screen.screen_name == "job", action

        await pilot.press("w")
        await shows(app, pilot, "✗ 5 node02 exit 1")


async def test_plus_and_minus_change_the_tiles_and_the_lines_around_a_filter() -> None:
    stage = scenes.training()
    async with console(stage, (100, 30)) as (app, pilot):
        app.open_job(scenes.JOB)
        await shows(app, pilot, "page 1/2")
        assert len(stage.watched[-1][1]) == 12
        await pilot.press("minus")
        await until(pilot, lambda: len(stage.watched[-1][1]) == 9, "still 12 tiles")
        await pilot.press("plus")
        await until(pilot, lambda: len(stage.watched[-1][1]) == 12, "still 9 tiles")
        await pilot.press("enter", "plus")
        await shows(app, pilot, "choose lines first: & keeps some")
        await pilot.press("ampersand", *"150", "enter")
        await shows(app, pilot, "1 of 30 lines")
        await pilot.press("plus")
        await shows(app, pilot, "1 lines around each one")
        await shows(app, pilot, "3 of 30 lines")
        await pilot.press("minus")
        await shows(app, pilot, "1 of 30 lines")
