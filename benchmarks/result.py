"""The result of a benchmark: our number, the other tool's, the goal, and the ratio that was
reached before, which a file of this folder keeps.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FIGURES = Path(__file__).with_name("figures.json")
"""Row of a report -> the ratio that was reached."""
SLACK = 1.15
"""A ratio is lost if it is larger than this many times the one that is kept."""


class MissingError(Exception):
    """A peer or program that is not installed; the text says how to get it."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One line of the report. `budget` is the goal of `judged`: the ratio, or the value itself."""

    name: str
    value: float
    unit: str
    peer: str = ""
    peer_value: float | None = None
    budget: float | None = None
    on_ratio: bool = True
    note: str = ""
    limit: str = ""
    """What is known to keep the value from being smaller; "": nothing is."""

    @property
    def ratio(self) -> float | None:
        if self.peer_value is None or self.peer_value <= 0:
            return None
        return self.value / self.peer_value

    @property
    def row(self) -> str:
        """Its name in the file of kept ratios: one value may be compared with several peers."""
        return f"{self.name} / {self.peer}"

    @property
    def judged(self) -> float | None:
        return self.ratio if self.on_ratio else self.value

    @property
    def ok(self) -> bool | None:
        """None if there is no number to judge."""
        if self.budget is None or self.judged is None:
            return None
        return self.judged <= self.budget

    def fails(self, kept: Mapping[str, float]) -> bool:
        """Whether a ratio that was reached is lost; without a ratio, whether the goal is missed."""
        if self.ratio is None:
            return self.ok is False
        return self.row in kept and self.ratio > SLACK * kept[self.row]

    def shape(self) -> dict[str, object]:
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "peer": self.peer or None,
            "peer_value": self.peer_value,
            "ratio": self.ratio,
            "budget": self.budget,
            "ok": self.ok,
            "limit": self.limit,
            "note": self.note,
        }


Benchmark = Callable[[], list[Result]]
HEADS = ("benchmark", "ours", "peer", "ratio", "kept", "goal", "")
WIDTHS = (28, 16, 34, 6, 6, 8, 5)


def head() -> str:
    """The line over a report."""
    return _row(HEADS)


def kept_ratios() -> dict[str, float]:
    """The ratios that were reached before."""
    return json.loads(FIGURES.read_text())


def keep_ratios(results: Sequence[Result]) -> None:
    """Keep the ratios of these rows; those of other rows stay."""
    found = {one.row: round(one.ratio, 3) for one in results if one.ratio is not None}
    every = dict(sorted({**kept_ratios(), **found}.items()))
    FIGURES.write_text(json.dumps(every, indent=1) + "\n")


def show(results: Sequence[Result], kept: Mapping[str, float], *, as_json: bool) -> None:
    """Print the lines of a report."""
    for result in results:
        print(json.dumps(result.shape()) if as_json else _text(result, kept), flush=True)


def _text(result: Result, kept: Mapping[str, float]) -> str:
    ratio = "" if result.ratio is None else f"{result.ratio:.2f}"
    peer = "" if result.peer_value is None else f"{result.peer_value:.4g} ({result.peer})"
    goal = "" if result.budget is None else f"{result.budget:g}{'x' if result.on_ratio else ''}"
    before = f"{kept[result.row]:.2f}" if result.row in kept else ""
    ok = {True: "ok", False: "over", None: "-"}[result.ok]
    ok = "LOST" if result.fails(kept) else ok
    cells = (result.name, f"{result.value:.4g} {result.unit}", peer, ratio, before, goal, ok)
    limit = f"limit: {result.limit or 'none known'}"
    return "  ".join(filter(None, (_row(cells), limit, result.note)))


def _row(cells: tuple[str, ...]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True))
