"""Plots have the resolution of the terminal, keep gaps apart from
zero, and say what their axes mean.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.ui import formatting
from rankdeck.ui.themes import ASCII, LINUX, UNICODE
from rankdeck.ui.widgets.canvas import in_ascii, measure_runs
from rankdeck.ui.widgets.plots import (
    Figure,
    Scale,
    columns_of,
    draw_columns,
    draw_frame,
    draw_plot,
    draw_spark,
    round_up,
)

ALPHABETS = (UNICODE, LINUX, ASCII)
NUMBERS = st.lists(st.none() | st.floats(-10, 1e12), max_size=60)


def drawn(values, room, glyphs, scale=None) -> list[str]:
    return [
        "".join(text for text, _ in line)
        for line in draw_plot(values, room, glyphs, scale or Scale(100.0))
    ]


def test_a_cell_of_braille_shows_two_numbers_in_four_heights_of_each_line() -> None:
    assert drawn([0, 25, 50, 75, 100, None], (3, 1), UNICODE) == ["⣠⣶⡇"]
    assert drawn([0, 25, 50, 75, 100, None], (3, 2), UNICODE) == [" ⣠⡇", "⣰⣿⡇"]


def test_blocks_and_ascii_have_a_column_for_each_number() -> None:
    assert drawn([0, None, 50, 100], (5, 2), LINUX) == ["   ▄█", " ▄ ██"]
    assert drawn([0, None, 50, 100], (5, 2), ASCII) == ["   _^", " _ ::"]
    assert drawn([0, None, 100], (4, 1), ASCII) == [" _ -"]


def test_the_newest_number_is_at_the_right_edge_and_the_oldest_go_first() -> None:
    assert drawn([0, 0, 100, 100], (4, 1), UNICODE) == ["  ⣀⣿"]
    assert drawn([100, 100, 0, 0], (1, 1), UNICODE) == ["⣀"]


@pytest.mark.parametrize("glyphs", ALPHABETS)
@given(values=NUMBERS, width=st.integers(1, 20), rows=st.integers(1, 9), top=st.floats(0, 1e9))
def test_a_plot_fills_its_room_and_only_a_gap_is_blank(glyphs, values, width, rows, top) -> None:
    lines = draw_plot(values, (width, rows), glyphs, Scale(top))

    assert len(lines) == rows
    assert all(measure_runs(line) == width for line in lines)
    foot = "".join(text for text, _ in lines[-1])
    shown = values[-columns_of(width, glyphs) :]
    each = columns_of(1, glyphs)
    cells = [None] * (columns_of(width, glyphs) - len(shown)) + list(shown)
    for at, sign in enumerate(foot):
        read = any(value is not None for value in cells[at * each : at * each + each])
        assert (sign != " ") == read


@given(NUMBERS)
def test_a_plot_in_ascii_is_ascii(values) -> None:
    for line in drawn(values, (30, 3), ASCII):
        assert line.isascii()
        assert in_ascii(line) == line


def test_nearly_equal_numbers_look_nearly_equal() -> None:
    """9.8 and 10.1 % differed by a light cap on a pale fill, which looked like much."""
    one, other = (drawn([number] * 2, (1, 8), UNICODE) for number in (9.8, 10.1))

    assert sum(a != b for a, b in zip(one, other, strict=True)) <= 1


def test_colours_go_from_calm_to_hot_with_the_height_and_with_the_number() -> None:
    high = [line[0][1] for line in draw_plot([100] * 8, (4, 6), UNICODE, Scale(100, ramp="hot"))]
    flat = draw_spark([0, 0, 50, 50, 100, 100], 3, UNICODE, Scale(100))

    assert high == ["hot5", "hot4", "hot3", "hot2", "hot1", "hot0"]
    assert [role for _, role in flat] == ["calm0", "calm3", "calm5"]
    assert {role for _, role in draw_spark([1, 9], 1, UNICODE, Scale(9, ramp="simulated"))} == {
        "simulated"
    }


@pytest.mark.parametrize("glyphs", ALPHABETS)
def test_full_lines_of_blocks_below_each_other_never_fuse_to_a_slab(glyphs) -> None:
    (one,) = drawn([100.0] * 9, (4, 1), glyphs)
    assert glyphs.fill not in one or glyphs.braille
    cores = "".join(text for text, _ in draw_columns([0, None, 100], glyphs, Scale(100.0)))
    assert cores[1] == " "
    assert cores[2] != glyphs.steps[-1]


@pytest.mark.parametrize(("number", "end"), [(0, 0), (3551, 4000), (1, 1), (0.011, 0.02), (8.1, 10), (1e12, 1e12)])  # fmt: skip
def test_an_axis_ends_at_a_round_number(number: float, end: float) -> None:
    assert round_up(number) == pytest.approx(end)


@pytest.mark.parametrize("glyphs", ALPHABETS)
@pytest.mark.parametrize(("width", "height"), [(40, 12), (30, 5), (29, 3), (60, 8)])
def test_a_figure_fills_its_room_and_names_its_axes(glyphs, width: int, height: int) -> None:
    figure = Figure("CPU", "82%", [82.0] * 99, formatting.format_percent, 1.0, Scale(100.0))

    lines = draw_frame(figure, (width, height), glyphs)

    assert len(lines) == height
    assert all(measure_runs(line) == width for line in lines)
    text = ["".join(part for part, _ in line) for line in lines]
    assert "CPU" in text[0]
    assert "82%" in text[0]
    assert "now" in text[-1]
    assert f"-{columns_of(width - 10, glyphs)} s" in text[-1]
    assert "100%" in text[1]
    assert ("50%" in "".join(text[1:])) == (height >= 7)
    assert height == 3 or " 0%" in text[-2]


def test_an_axis_of_nothing_but_zeros_says_zero_once() -> None:
    figure = Figure("NETWORK", "0b/s", [0.0] * 9, formatting.format_traffic, 1.0, Scale(0.0))

    lines = draw_frame(figure, (40, 9), UNICODE)

    said = ["".join(text for text, _ in line)[1:8].strip() for line in lines[1:-1]]
    assert said == [""] * 6 + ["0b/s"]
