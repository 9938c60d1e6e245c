"""One command on many nodes: how it ended on each, and who wrote the same."""

from dataclasses import dataclass
from signal import Signals

from rankdeck.model.job import RemainingProcess

LIMIT, CANCELLED = "limit", "cancelled"
"""Why the agent ended a command."""


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How the command ended on one node."""

    code: int | None = None
    """Its exit status, 128 + N where signal N ended it; None: not known."""
    why: str = ""
    """LIMIT or CANCELLED where it was ended, a sentence where the node could not tell; "" it ended by itself."""
    left: tuple[RemainingProcess, ...] = ()
    """What would not end."""
    behind: int = 0
    """Processes that it left running in the background."""
    cut: int = 0
    """Bytes of its output that were left out."""
    seconds: float = 0.0

    @property
    def told(self) -> bool:
        """Whether the agent there saw its end; else what it left is not known."""
        return self.code is not None or self.why in (LIMIT, CANCELLED)

    @property
    def well(self) -> bool:
        return self.code == 0 and not self.why

    @property
    def status(self) -> int:
        """Its share in the exit status of `rankdeck sh`: 124 for the time limit, 255 for a node not reached."""
        if self.why == LIMIT:
            return 124
        if not self.told:
            return 255
        return self.code or 0

    @property
    def words(self) -> str:
        """How it ended, in a few words; seconds are left out: they differ."""
        parts = [self._verdict()]
        if self.left:
            parts.append(f"{_processes(len(self.left))} would not end")
        if self.behind:
            parts.append(f"{_processes(self.behind)} left running in the background")
        if self.cut:
            parts.append("the rest of its output is left out")
        return ", ".join(parts)

    def _verdict(self) -> str:
        if self.why == LIMIT:
            return "ended at the time limit"
        if self.why == CANCELLED:
            return "cancelled"
        if self.why:
            return self.why
        code = self.code or 0
        if code > 128 and code - 128 in {one.value for one in Signals}:
            return f"exit {code}: {Signals(code - 128).name}"
        return f"exit {code}"


@dataclass(frozen=True, slots=True)
class OutputGroup:
    """Nodes that wrote the same and are equally far."""

    nodes: tuple[str, ...]
    lines: tuple[tuple[str, str], ...]
    """Stream (`out` or `err`) and text, in the order in which they came."""
    end: CommandEnd | None
    """None: it still runs there, or has not begun."""
    begun: bool = True

    @property
    def words(self) -> str:
        """How far it is there."""
        if self.end is not None:
            return self.end.words
        return "runs" if self.begun else "waits for its turn"

    @property
    def text(self) -> tuple[str, ...]:
        return tuple(line for _, line in self.lines)


def _processes(number: int) -> str:
    return "1 process" if number == 1 else f"{number} processes"
