"""What every log that can be shown has: that of a rank, a merged and a filtered one."""

from collections.abc import Sequence
from typing import Protocol

from rankdeck.state.lines import Gap, Line

SLICE = 1_000
"""Lines processed in one step: some milliseconds."""


class Source(Protocol):
    """A log that can be shown: that of one rank, or a merged or filtered one."""

    @property
    def lines(self) -> Sequence[Line]: ...
    @property
    def total(self) -> int:
        """The number of the newest line plus 1."""
        ...

    @property
    def first(self) -> int:
        """The number of `lines[0]`."""
        ...

    @property
    def begun(self) -> Sequence[Line]:
        """What stands below the lines: progress bars, or the newest line without an end yet."""
        ...

    @property
    def gaps(self) -> Sequence[Gap]:
        """Gaps: output that is missing here and that the node still has."""
        ...
