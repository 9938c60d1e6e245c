"""The differences that are sent show the same picture as sending everything."""

import sys

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import get_character_cell_size
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style

from rankdeck.ui import terminal
from rankdeck.ui.terminal import TerminalPicture

WIDTH, HEIGHT = 24, 5
STYLES = [
    Style(),
    Style(bold=True),
    Style(color="red", bgcolor="#303030"),
    Style(reverse=True, color="#5fafff"),
]
TEXT = st.text(st.sampled_from("abc ●─漢字é"), max_size=WIDTH)
RUN = st.tuples(TEXT, st.sampled_from(STYLES))
PIECE = st.tuples(st.integers(0, WIDTH - 1), st.integers(0, HEIGHT - 1), st.lists(RUN, max_size=4))


def screen_of(stream: str) -> list[list[tuple[str, str, str, bool, bool]]]:
    screen = pyte.Screen(WIDTH, HEIGHT)
    screen.reset_mode(7)  # no wrap at the right edge
    pyte.Stream(screen).feed(stream)
    return [
        [
            (c.data, c.fg, c.bg, c.bold, c.reverse)
            for c in (screen.buffer[y][x] for x in range(WIDTH))
        ]
        for y in range(HEIGHT)
    ]


def blank() -> list[tuple[int, int, list[Segment]]]:
    return [(0, y, [Segment(" " * WIDTH)]) for y in range(HEIGHT)]


def cut(x: int, runs: list[tuple[str, Style]]) -> list[Segment]:
    """Segments that end before the right edge, as the compositor gives them."""
    room, segments = WIDTH - x, []
    for text, style in runs:
        kept = ""
        for character in text:
            if Segment(kept + character).cell_length > room:
                break
            kept += character
        room -= Segment(kept).cell_length
        segments.append(Segment(kept, style))
    return segments


@given(st.lists(st.lists(PIECE, max_size=5), max_size=5))
def test_differences_paint_what_everything_paints(
    frames: list[list[tuple[int, int, list[tuple[str, Style]]]]],
) -> None:
    kept = TerminalPicture(WIDTH, HEIGHT)
    by_difference = kept.update(blank(), ColorSystem.EIGHT_BIT)
    in_full = by_difference
    for frame in frames:
        pieces = [(x, y, cut(x, runs)) for x, y, runs in frame]
        by_difference += kept.update(pieces, ColorSystem.EIGHT_BIT)
        for piece in pieces:
            in_full += TerminalPicture(WIDTH, HEIGHT).update([piece], ColorSystem.EIGHT_BIT)

    assert screen_of(by_difference) == screen_of(in_full)


def test_painting_the_same_again_sends_nothing() -> None:
    frame = TerminalPicture(WIDTH, HEIGHT)
    piece = (2, 1, [Segment("● node01", Style(color="red"))])
    frame.update([piece], ColorSystem.TRUECOLOR)

    assert frame.update([piece], ColorSystem.TRUECOLOR) == ""


def test_one_changed_digit_is_a_few_bytes() -> None:
    frame = TerminalPicture(WIDTH, HEIGHT)
    frame.update([(0, 0, [Segment("CPU   42%  rack 17")])], ColorSystem.TRUECOLOR)

    assert len(frame.update([(0, 0, [Segment("CPU   43%  rack 17")])], ColorSystem.TRUECOLOR)) < 12


@pytest.mark.long
def test_signs_that_are_taken_to_be_of_one_cell_are_that_for_textual_too() -> None:
    signs = [chr(code) for code in range(32, sys.maxunicode + 1) if terminal._EVEN(chr(code))]

    assert len(signs) > 600
    assert [sign for sign in signs if get_character_cell_size(sign) != 1] == []
    assert terminal._EVEN("●━╸─ sim0001 · 12%…")
    assert not any(map(terminal._EVEN, ("◽", "漢", "e\u0301")))
