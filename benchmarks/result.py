"""The result of a benchmark: our number, the other tool's, and the budget."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass


class MissingError(Exception):
    """A peer or program that is not installed; the text says how to get it."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One line of the report. `budget` limits `judged`: the ratio, or the value itself."""

    name: str
    value: float
    unit: str
    peer: str = ""
    peer_value: float | None = None
    budget: float | None = None
    on_ratio: bool = True
    note: str = ""

    @property
    def ratio(self) -> float | None:
        if self.peer_value is None or self.peer_value <= 0:
            return None
        return self.value / self.peer_value

    @property
    def judged(self) -> float | None:
        return self.ratio if self.on_ratio else self.value

    @property
    def ok(self) -> bool | None:
        """None if there is no number to judge."""
        if self.budget is None or self.judged is None:
            return None
        return self.judged <= self.budget

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
            "note": self.note,
        }


Benchmark = Callable[[], list[Result]]
HEADS = ("benchmark", "ours", "peer", "ratio", "budget", "ok")


def head() -> str:
    """The line over a report."""
    return _row(HEADS)


def show(results: Sequence[Result], *, as_json: bool) -> int:
    """Print the lines of a report; returns how many are over their budget."""
    for result in results:
        print(json.dumps(result.shape()) if as_json else _text(result), flush=True)
    return sum(result.ok is False for result in results)


def _text(result: Result) -> str:
    ratio = "" if result.ratio is None else f"{result.ratio:.2f}"
    peer = "" if result.peer_value is None else f"{result.peer_value:.4g} ({result.peer})"
    budget = "" if result.budget is None else f"{result.budget:g}{'x' if result.on_ratio else ''}"
    ok = {True: "ok", False: "OVER", None: "-"}[result.ok]
    line = _row((result.name, f"{result.value:.4g} {result.unit}", peer, ratio, budget, ok))
    return line + (f"  {result.note}" if result.note else "")


def _row(cells: tuple[str, ...]) -> str:
    return "  ".join(
        cell.ljust(width) for cell, width in zip(cells, (28, 16, 34, 7, 7, 4), strict=True)
    )
