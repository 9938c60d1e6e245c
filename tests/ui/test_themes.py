"""Themes that ship can be read by everybody, and a bad one breaks nothing."""

import itertools
from pathlib import Path

import pytest
from rich.color import Color

from rankdeck.ui import themes
from rankdeck.ui.themes import ASCII, UNICODE

SHIPPED, FAULTS = themes.load_themes([themes.shipped_folder()])
COLOURED = [palette for palette in SHIPPED.values() if not palette.mono]
TEXTS = (
    "text",
    "dim",
    "title",
    "accent",
    "key",
    "ok",
    "warn",
    "bad",
    "unknown",
    "stderr",
    "simulated",
)
# Machado, Oliveira, Fernandes 2009, severity 1.
SIGHT = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deutan": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritan": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
Vector = tuple[float, float, float]


def linear(colour: str) -> Vector:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return r, g, b


def luminance(colour: str) -> float:
    r, g, b = linear(colour)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def seen_as(colour: str, sight: str) -> Vector:
    rgb = linear(colour)
    r, g, b = (
        min(max(sum(m * c for m, c in zip(row, rgb, strict=True)), 0), 1) for row in SIGHT[sight]
    )
    return r, g, b


def lab(rgb: Vector) -> Vector:
    r, g, b = rgb
    xyz = (
        (0.4124564 * r + 0.3575761 * g + 0.1804375 * b) / 0.95047,
        0.2126729 * r + 0.7151522 * g + 0.0721750 * b,
        (0.0193339 * r + 0.1191920 * g + 0.9503041 * b) / 1.08883,
    )
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def distance(one: str, other: str, sight: str) -> float:
    a, b = lab(seen_as(one, sight)), lab(seen_as(other, sight))
    return sum((p - q) ** 2 for p, q in zip(a, b, strict=True)) ** 0.5


def test_the_shipped_themes_are_all_there() -> None:
    assert not FAULTS
    assert {"dark", "light", "high-contrast", "mono"} <= set(SHIPPED)


@pytest.mark.parametrize("palette", COLOURED, ids=lambda p: p.name)
def test_every_text_stands_out_from_what_it_lies_on(palette: themes.Palette) -> None:
    for role, surface in itertools.product(TEXTS, ("background", "bar", "selection")):
        assert contrast(palette.colour(role), palette.surfaces[surface]) >= 4.5, (
            role,
            surface,
        )


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("palette", COLOURED, ids=lambda p: p.name)
def test_states_are_told_apart_by_every_eye(palette: themes.Palette, sight: str) -> None:
    for one, other in itertools.combinations(("ok", "warn", "bad"), 2):
        assert distance(palette.colour(one), palette.colour(other), sight) >= 20, (
            one,
            other,
        )


@pytest.mark.parametrize("palette", COLOURED, ids=lambda p: p.name)
def test_colours_are_the_same_on_256_colour_terminals(palette: themes.Palette) -> None:
    for colour in (
        *palette.surfaces.values(),
        *(palette.colour(role) for role in TEXTS),
    ):
        number = themes.exact_colour(Color.parse(colour)).number
        assert number is not None, colour
        assert number >= 16


@pytest.mark.parametrize("ramp", themes.RAMPS)
@pytest.mark.parametrize("palette", COLOURED, ids=lambda p: p.name)
def test_a_ramp_goes_from_the_ground_to_what_stands_out(palette: themes.Palette, ramp: str) -> None:
    ground = palette.surfaces["background"]
    colours = [palette.colour(f"{ramp}{step}") for step in range(themes.RAMP_STEPS)]
    contrasts = [contrast(colour, ground) for colour in colours]

    assert contrasts[-1] > 2.4 * contrasts[0]
    assert contrasts[0] >= 1.9
    assert ramp == "hot" or contrasts == sorted(contrasts)
    assert all(themes.exact_colour(Color.parse(colour)).number is not None for colour in colours)
    assert ramp == "hot" or palette.colour("bad") not in colours


def test_a_theme_without_ramps_draws_plots_in_one_colour(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(with_value("accent", '"#00ffff"'))

    mine = themes.read_theme(tmp_path / "x.yaml")

    assert {mine.colour(f"calm{step}") for step in range(themes.RAMP_STEPS)} == {"#00ffff"}


def test_mono_keeps_states_apart_without_any_colour() -> None:
    mono = SHIPPED["mono"]
    styles = [mono.style(role) for role in ("ok", "warn", "bad")]

    assert all(style.color is None and style.bgcolor is None for style in styles)
    assert len(set(styles)) == 3


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_every_state_has_a_shape_of_its_own(glyphs) -> None:
    assert len(set(glyphs.levels.values())) == len(glyphs.levels)
    assert len(set(glyphs.states.values())) == len(glyphs.states)


def with_value(name: str, value: str) -> str:
    """A theme in which a colour or role has this value, as written in YAML."""
    surfaces = dict.fromkeys(themes.SURFACES, '"#121212"')
    roles = dict.fromkeys(themes.ROLES, '"#d0d0d0"')
    (surfaces if name in surfaces else roles)[name] = value
    rows = [", ".join(f"{key}: {text}" for key, text in one.items()) for one in (surfaces, roles)]
    return f"name: x\n# a colleague's\nsurfaces: {{{rows[0]}}}\nroles: {{{rows[1]}}}\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name: x\nroles: [", "x.yaml:3:1: file: not YAML"),
        ("- a", "x.yaml:1:1: file: expected a table"),
        (with_value("bar", "nocolour"), "x.yaml:3:40: surfaces.bar: not a colour: `nocolour`"),
        (with_value("bar", "'rgb(1 2,3,4)'"), "surfaces.bar: not a colour: `rgb(1 2,3,4)`"),
        (with_value("text", "2001-99-99"), "x.yaml:4:15: roles.text: expected text, found a date"),
        (with_value("text", "7" * 6000), "roles.text: expected text, found a number `7777"),
        (with_value("text", "nostyle"), "roles.text: not a style"),
        (with_value("text", "'bold rgb(1 2,3,4)'"), "roles.text: not a style"),
        (with_value("text", r'"link \e[2J"'), "roles.text: a style has no link"),
        (with_value("text", "[" * 10_000), "nested too deeply"),
        (with_value("bar", "'#000000'") + "ramps: {calm: ['#111111']}", "ramps.calm: a ramp has 6"),
        ("name: x\nmono: true\nroles: {text: ''}", "roles: `dim` is missing (and 11 more)"),
    ],
)
def test_a_bad_theme_is_a_sentence_and_the_others_stay(
    tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "x.yaml").write_text(text)

    found, wrong = themes.load_themes([themes.shipped_folder(), tmp_path])

    assert set(found) == set(SHIPPED)
    assert len(wrong) == 1
    assert complaint in wrong[0]


@pytest.mark.parametrize(
    ("environment", "answer"),
    [
        ({"NO_COLOR": "1"}, True),
        ({"TERM": "vt100"}, True),
        ({"TERM": "tmux-256color"}, False),
    ],
)
def test_no_color_and_old_terminals_get_no_colour(
    environment: dict[str, str], answer: bool
) -> None:
    assert themes.wants_no_colour(environment) is answer


def test_a_frame_is_never_reversed_or_underlined_also_without_colours() -> None:
    for palette in SHIPPED.values():
        for role in themes.ROLES:
            framed, plain = palette.style(f"{themes.EDGE}{role}"), palette.style(role)
            assert not (palette.mono and (framed.reverse or framed.underline))
            assert framed.color == plain.color
