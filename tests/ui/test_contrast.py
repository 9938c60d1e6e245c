"""All text of all screens, as it is painted, stands out from what it
lies on, in every theme with colours.
"""

import pytest
from rich.segment import Segment
from textual.geometry import Region

from rankdeck.ui.app import RankdeckApp
from tests.ui.support import sample, scenes
from tests.ui.support.scenes import JOB
from tests.ui.test_screens import console, shows, type_in, until
from tests.ui.test_themes import COLOURED, contrast

LEAST = 4.5
"""WCAG 2.1, AA, for text."""


def painted(app: RankdeckApp) -> list[Segment]:
    """Everything with letters that the widgets of the top screen paint."""
    found: list[Segment] = []
    for widget in app.screen.walk_children():
        if widget.is_attached and widget.display and widget.region and not list(widget.children):
            whole = Region(0, 0, *widget.outer_size)
            found += [segment for strip in widget.render_lines(whole) for segment in strip]
    return [one for one in found if any(map(str.isalnum, one.text))]


def faint(app: RankdeckApp) -> list[str]:
    """What is painted with too little contrast."""
    wrong: list[str] = []
    for text, style, _ in painted(app):
        assert style is not None
        assert style.color is not None, text
        assert style.bgcolor is not None, text
        fore, back = (colour.get_truecolor().hex for colour in (style.color, style.bgcolor))
        if contrast(*((back, fore) if style.reverse else (fore, back))) < LEAST:
            wrong.append(f"{fore} on {back}: {text}")
    return wrong


@pytest.mark.left_out("light", "high-contrast")
@pytest.mark.long
@pytest.mark.parametrize("theme", [palette.name for palette in COLOURED])
async def test_every_screen_can_be_read(theme: str) -> None:
    async with console(scenes.failing(), (120, 40), theme=theme) as (app, pilot):
        for key in ("1", "2", "3", "4", "5", "6", "question_mark", "colon", "slash", "ctrl+p"):
            await pilot.press("escape", "1", key)
            await pilot.pause(0.3)
            await until(pilot, lambda: bool(painted(app)), "nothing is painted")

            assert faint(app) == [], key


@pytest.mark.long
@pytest.mark.parametrize("theme", [palette.name for palette in COLOURED])
async def test_a_job_its_cancel_dialog_and_a_typed_search_can_be_read(theme: str) -> None:
    async with console(scenes.failing(), (120, 40), theme=theme) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "failed first")
        assert faint(app) == []
        await pilot.press("x")
        await shows(app, pilot, "cancel")
        assert faint(app) == []
        await pilot.press("escape", "slash", *"loss", "enter", "slash")
        await shows(app, pilot, "/loss")
        assert faint(app) == []
        await pilot.press("escape", "ctrl+p")
        await type_in(pilot, "ma")
        await shows(app, pilot, "mark")
        assert faint(app) == []


@pytest.mark.parametrize("theme", [palette.name for palette in COLOURED])
async def test_the_palette_has_the_grounds_of_the_theme(theme: str) -> None:
    stage, _ = sample.fleet(3)
    async with console(stage, (120, 40), theme=theme) as (app, pilot):
        await pilot.press("ctrl+p")
        await shows(app, pilot, "Search for commands")
        await shows(app, pilot, "acknowledge  a")
        grounds = {
            style.bgcolor.get_truecolor().hex
            for _, style, _ in painted(app)
            if style is not None and style.bgcolor is not None and not style.reverse
        }

    cursor = app.palette.colour("text")
    assert grounds <= {*app.palette.surfaces.values(), cursor}
