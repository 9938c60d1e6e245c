"""A part of a log that lies on its node: fetched where it is looked at, however long the log is."""

from dataclasses import dataclass

from rankdeck.model.job import LogPart, LogPlace
from rankdeck.state.lines import RankLog
from rankdeck.ui import words
from rankdeck.ui.port import OutputPort

PART = 1 << 18
"""Bytes that are fetched at once: some 10 ms to make lines of."""
_ALL = 1 << 40


@dataclass(frozen=True, slots=True)
class Deep:
    """What was fetched of one stream, as a log."""

    log: RankLog
    part: LogPart

    @property
    def said(self) -> str:
        """Where in the log it is: `out, 12% of 1.0G`."""
        share = 100 * self.part.start / max(self.part.end, 1)
        return f"{self.part.stream}, {share:.0f}% of {words.size(self.part.end)}"


async def fetch(output: OutputPort, place: LogPlace, size: int = PART) -> Deep:
    """Whole lines from about that place on; raises NodeError."""
    part = await output.read(place, size)
    log = RankLog(place.rank, keep=_ALL, keep_bytes=_ALL)
    for chunk in part.chunks:
        log.add(chunk)
    return Deep(log, part)


def before(rank: int, stream: str, offset: int) -> tuple[LogPlace, int]:
    """The place and size of the part that ends at this offset."""
    begin = max(offset - PART, 0)
    return LogPlace(rank, stream, begin), offset - begin
