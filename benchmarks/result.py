"""What a benchmark gives: one number, its peer's, and the budget they are held to."""

from collections.abc import Callable
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
        """None where there is nothing to judge by."""
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
