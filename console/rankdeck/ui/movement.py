"""Keys that move the cursor in lists, logs and grids, or go through choices."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


FAR = 1 << 40
"""A step that is longer than any list or log."""
MOVES: tuple[tuple[str, str], ...] = (
    ("j k / arrows", "line by line; on the wall: from tile to tile"),
    ("g G / home end", "first, last"),
    ("pgup pgdn / b / ctrl+b ctrl+f", "a page"),
    ("ctrl+u ctrl+d", "half a page"),
    ("left right", "scroll a log sideways"),
    ("tab shift+tab", "the next tile of the wall, the next part of a screen"),
    ("ctrl+p", "all actions of this screen, by name"),
    ("mouse", "click selects, click again opens, wheel scrolls; shift-drag selects text"),
)
"""Keys that move in lists, logs and the wall, for the help screen."""


def key_steps(key: str, page: int) -> int | None:
    """How many lines down this key moves, up if negative; `page` is a page in lines.

    None for other keys.
    """
    return {
        "down": 1, "j": 1, "up": -1, "k": -1, "pagedown": page, "ctrl+f": page, "pageup": -page, "b": -page,
        "ctrl+b": -page, "ctrl+d": max(page // 2, 1), "ctrl+u": -max(page // 2, 1),
        "home": -FAR, "g": -FAR, "end": FAR, "G": FAR, "upper_g": FAR,
    }.get(key)  # fmt: skip


def key_sidestep(key: str, step: int) -> int | None:
    """How many cells to the right this key moves, left if negative; None for other keys."""
    return {"right": step, "left": -step}.get(key)


def key_grid_step(key: str) -> tuple[int, int] | None:
    """The step in a grid for this key: columns, rows; None for other keys."""
    return {
        "left": (-1, 0), "right": (1, 0), "down": (0, 1), "j": (0, 1), "up": (0, -1), "k": (0, -1),
    }.get(key)  # fmt: skip


def next_choice(choices: Sequence[T], now: T) -> T:
    """The choice after `now`, for a key that goes through all: after the
    last, and for an unknown one, the first.
    """
    at = choices.index(now) if now in choices else -1
    return choices[(at + 1) % len(choices)]
