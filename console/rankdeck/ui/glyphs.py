"""Signs for states, bars and frames, in two alphabets: every state has its own shape."""

from collections.abc import Sequence
from dataclasses import dataclass

from rankdeck.model.health import Level
from rankdeck.model.states import State
from rankdeck.rules.rank_status import RankStatus


@dataclass(frozen=True, slots=True)
class Mark:
    """How one state shows: a sign, and a role of the theme for its colour."""

    glyph: str
    role: str


_ROLES = ("bad", "warn", "unknown", "dim", "ok", "accent")


def worst(marks: Sequence[Mark]) -> Mark:
    """Of marks that share a cell, the one that wants to be looked at."""
    return min(marks, key=lambda mark: _ROLES.index(mark.role))


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One alphabet."""

    levels: dict[Level, str]
    states: dict[State, str]
    spark: str
    """From nothing to full."""
    full: str
    parts: str
    """Fractions of a full cell, smallest first."""
    empty: str
    horizontal: str
    vertical: str
    corners: str
    """Top left, top right, bottom left, bottom right."""
    heavy: str
    """A horizontal line of the focused pane."""
    more: str
    dot: str
    up: str
    down: str
    cursor: str

    def level(self, level: Level) -> Mark:
        return Mark(self.levels[level], LEVEL_ROLES[level])

    def state(self, state: State) -> Mark:
        return Mark(self.states[state], STATE_ROLES[state])

    def standing(self, standing: RankStatus) -> Mark:
        """How a rank shows that wants to be looked at, or was only pulled down."""
        glyph = {
            RankStatus.STALLED: self.levels[Level.WARN],
            RankStatus.VICTIM: self.down,
        }.get(standing, self.states[State.FAILED])
        return Mark(glyph, STANDING_ROLES[standing])


LEVEL_ROLES = {
    Level.OK: "ok",
    Level.UNKNOWN: "unknown",
    Level.WARN: "warn",
    Level.BAD: "bad",
}
STATE_ROLES = {
    State.PENDING: "dim",
    State.RUNNING: "ok",
    State.DONE: "accent",
    State.FAILED: "bad",
    State.CANCELLED: "warn",
    State.LOST: "unknown",
}

STANDING_ROLES = {
    RankStatus.FIRST: "bad",
    RankStatus.FAILED: "bad",
    RankStatus.STALLED: "warn",
    RankStatus.VICTIM: "unknown",
}

UNICODE = Glyphs(
    levels={Level.OK: "●", Level.UNKNOWN: "◌", Level.WARN: "▲", Level.BAD: "✗"},
    states={
        State.PENDING: "·",
        State.RUNNING: "●",
        State.DONE: "✓",
        State.FAILED: "✗",
        State.CANCELLED: "■",
        State.LOST: "◌",
    },
    spark="▁▂▃▄▅▆▇█",
    full="━",
    parts="╸",
    empty="─",
    horizontal="─",
    vertical="│",
    corners="╭╮╰╯",
    heavy="━",
    more="…",
    dot="·",
    up="↑",
    down="↓",
    cursor="▸",
)
ASCII = Glyphs(
    levels={Level.OK: "o", Level.UNKNOWN: "?", Level.WARN: "^", Level.BAD: "X"},
    states={
        State.PENDING: ".",
        State.RUNNING: "o",
        State.DONE: "=",
        State.FAILED: "X",
        State.CANCELLED: "#",
        State.LOST: "?",
    },
    spark="_.-=+*#@",
    full="#",
    parts="",
    empty=".",
    horizontal="-",
    vertical="|",
    corners="++++",
    heavy="=",
    more="~",
    dot="-",
    up="^",
    down="v",
    cursor=">",
)
