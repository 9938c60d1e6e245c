"""On terminals with sixteen colours all text can be read, whatever the theme; the
Linux console gets signs that its font has.
"""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.color import Color, ColorType
from rich.style import Style

from rankdeck.ui import themes
from rankdeck.ui.app import RankdeckApp
from rankdeck.ui.basic_colours import VGA, XTERM, colour_contrast, in_sixteen
from rankdeck.ui.themes import CELL, LINUX, RAMP_STEPS, RAMPS, ROLES, SURFACES
from rankdeck.ui.widgets.canvas import PLAIN, in_console_font
from tests.ui.support import scenes
from tests.ui.support.scenes import JOB
from tests.ui.test_screens import console, shows, text_of
from tests.ui.test_themes import COLOURED

COLOURS = st.tuples(*[st.integers(0, 255)] * 3).map(lambda rgb: Color.from_rgb(*rgb))
STEPS = tuple(f"{ramp}{step}" for ramp in RAMPS for step in range(RAMP_STEPS))
ALSO = "→←↑↓▲►•○◘■"
"""Signs of the console's font (VGA) that Python's cp437 does not know."""


def numbers(style: Style) -> tuple[int, int]:
    """The numbers of text and ground of the sixteen, as they are sent: bold
    text of a dark colour is shown bright.
    """
    sent = in_sixteen(style)
    assert sent.color is not None
    assert sent.bgcolor is not None
    text, ground = sent.color.number, sent.bgcolor.number
    assert text is not None
    assert ground is not None
    assert ground < 8
    return (text + 8 if sent.bold and text < 8 else text), ground


def is_legible(style: Style) -> bool:
    text, ground = numbers(style)
    return all(colour_contrast(kind[text], kind[ground]) >= 4.5 for kind in (VGA, XTERM))


@given(COLOURS, COLOURS, st.booleans())
def test_any_text_on_any_ground_can_be_read(text: Color, ground: Color, bold: bool) -> None:
    assert is_legible(Style(color=text, bgcolor=ground, bold=bold))


@pytest.mark.parametrize("palette", COLOURED, ids=lambda p: p.name)
def test_every_role_of_every_theme_can_be_read_also_in_the_chosen_row(palette) -> None:
    roles = [*ROLES, *STEPS, *(f"{CELL}{role}" for role in (*STEPS, "warn", "bad"))]
    for role, surface in itertools.product(roles, SURFACES):
        assert is_legible(palette.style(role, surface)), (role, surface)
    chosen, plain = (numbers(palette.style("text", one)) for one in ("selection", "background"))
    assert chosen[1] != plain[1]


@pytest.mark.parametrize("palette", COLOURED, ids=lambda p: p.name)
def test_what_is_bad_does_not_look_like_what_is_well(palette) -> None:
    ok, warn, bad = (numbers(palette.style(role))[0] for role in ("ok", "warn", "bad"))

    assert palette.name == "light" or len({ok, warn, bad}) == 3


@pytest.mark.long
@pytest.mark.parametrize("theme", [palette.name for palette in COLOURED])
async def test_screens_on_sixteen_colours_can_be_read(theme: str) -> None:
    async with console(scenes.failing(), (120, 40), theme=theme) as (app, pilot):
        app.few_colours = True
        app.paint_anew()
        for key in ("1", "2", "3", "5", "question_mark"):
            await pilot.press("escape", key)
            await pilot.pause(0.3)
            strips = app.screen._compositor.render_strips()
            styles = {
                segment.style for strip in strips for segment in strip if segment.text.strip()
            }
            assert styles
            for style in styles:
                assert style is not None
                assert style.color is not None
                assert style.color.type is ColorType.STANDARD
                assert is_legible(style)


def is_in_console_font(text: str) -> bool:
    try:
        "".join(sign for sign in text if sign not in ALSO).encode("cp437")
    except UnicodeEncodeError:
        return False
    return True


def test_the_linux_console_gets_signs_that_its_font_has(monkeypatch: pytest.MonkeyPatch) -> None:
    signs = "".join(PLAIN)
    drawn = [LINUX.acknowledged, LINUX.steps, LINUX.fill, LINUX.full, LINUX.empty, LINUX.corners]
    drawn += [LINUX.heavy, LINUX.more, LINUX.cursor, *LINUX.levels.values(), *LINUX.states.values()]

    assert is_in_console_font(in_console_font(signs))
    assert len(in_console_font(signs)) == len(signs)
    assert is_in_console_font("".join(drawn))
    assert themes.terminal_glyphs({"TERM": "linux"}, ascii_only=False) is LINUX
    assert themes.terminal_glyphs({"TERM": "linux"}, ascii_only=True) is themes.ASCII
    assert themes.terminal_glyphs({"TERM": "xterm-256color"}, ascii_only=False) is themes.UNICODE


@pytest.mark.long
async def test_screens_on_the_linux_console_have_only_signs_of_its_font(monkeypatch) -> None:
    monkeypatch.setenv("TERM", "linux")
    async with console(scenes.failing(), (120, 40)) as (app, pilot):
        assert isinstance(app, RankdeckApp)
        for key in ("1", "2", "3", "4", "5", "6"):
            await pilot.press(key)
            await pilot.pause(0.3)
            assert is_in_console_font(text_of(app)), [c for c in text_of(app) if not is_in_console_font(c)]  # fmt: skip
        app.open_job(JOB)
        await shows(app, pilot, "failed first")
        odd = {sign for sign in text_of(app) if not is_in_console_font(sign)}
        assert odd == set()
