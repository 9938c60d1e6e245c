"""Help has the keys of the screen one comes from, in at most two pages; it finds all others."""

import pytest

from rankdeck.ui import actions, themes
from rankdeck.ui.screens.help import BRIEF, TITLES, short_lines
from tests.ui.support import scenes
from tests.ui.test_screens import console, lacks, shows, text_of

PAGE = 24 - 2
"""Lines of the page on a small screen: all but the bars."""


def page(about: str, width: int = 80) -> list[str]:
    lines = short_lines(about, themes.UNICODE, width)
    return ["".join(text for text, _ in line) for line in lines]


@pytest.mark.parametrize("about", TITLES)
def test_the_keys_of_a_screen_take_at_most_two_pages_of_a_small_terminal(about: str) -> None:
    lines = page(about)

    assert len(lines) <= 2 * PAGE
    assert all(len(line) <= 80 for line in lines)
    assert len(page(about, 200)) < len(lines)


@pytest.mark.parametrize("about", TITLES)
def test_every_key_of_a_screen_is_on_its_page_and_no_other_screens(about: str) -> None:
    told = page(about, 75)  # in one column
    shown = {key for line in told if line.startswith("   ") for key in line[3:13].split()}
    mine = {key for one in actions.for_screen(about) for key in one.shown_keys.split()}

    assert mine <= shown | {*"1234567"}
    assert {"1-7"} <= shown
    titles = [line.split("  ")[0] for line in told if line[:1] == " " and line[1:2].isalpha()]
    assert titles == [f" {TITLES[about]}", " Everywhere", " Moving", " Signs"]


def test_what_shares_a_line_are_actions_that_there_are() -> None:
    known = {one.id for one in actions.ACTIONS}

    assert {name for ids in BRIEF for name in ids} <= known


@pytest.mark.parametrize("size", [(200, 50), (80, 24), (60, 15)])
async def test_help_begins_with_the_screen_and_has_everything_on_the_second_question_mark(
    size: tuple[int, int],
) -> None:
    async with console(scenes.training(), size) as (app, pilot):
        await pilot.press("question_mark")
        await shows(app, pilot, " Fleet  ? again: all keys")
        assert "Time stamps: off" not in text_of(app)
        await pilot.press("question_mark")
        await shows(app, pilot, "\n Fleet\n")
        await pilot.press("end")
        await shows(app, pilot, "✗ failed")
        await pilot.press("question_mark")
        await shows(app, pilot, " Fleet  ? again: all keys")


async def test_a_filter_finds_keys_and_commands_of_every_screen() -> None:
    async with console(scenes.training(), (80, 24)) as (app, pilot):
        app.open_job(scenes.JOB)
        await shows(app, pilot, "● 0 node01 running")
        await pilot.press("question_mark")
        await shows(app, pilot, " Job  ? again")
        await pilot.press("slash", *"stderr", "enter")
        await shows(app, pilot, "Only stderr, only stdout, both")
        await lacks(app, pilot, "Wrap long lines")
        await pilot.press("slash", *([*"silence"]), "enter")
        await shows(app, pilot, ":silence")
        await pilot.press("slash", *"qqxx", "enter")
        await shows(app, pilot, "nothing matches")
        await pilot.press("escape")
        await shows(app, pilot, " Job  ? again")
