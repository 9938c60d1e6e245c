"""Parts of the output of ranks, and places in it."""

from rankdeck.model.job_events import NodeEvent
from rankdeck.values import Value


class Chunk(Value):
    """Bytes that a rank wrote, exactly as on the node's disk;
    `offset` is that of the first byte.
    """

    job: str
    node: str
    rank: int
    stream: str
    offset: int
    at: float
    data: bytes


class Tail(Value):
    """For a rank that is not watched: how many bytes (`end`) and lines
    it has written, and the last line.
    """

    job: str
    node: str
    rank: int
    stream: str
    end: int
    lines: int
    last: str
    at: float


class LogPlace(Value):
    """A position in the output of a rank, in bytes; an offset below 0 counts from the end."""

    rank: int
    stream: str
    offset: int


class LogPart(Value):
    """Whole lines from somewhere in one stream of a rank."""

    stream: str
    chunks: tuple[Chunk, ...]
    end: int
    """Size of the stream in bytes."""

    @property
    def start(self) -> int:
        """The offset of the first byte of the part."""
        return self.chunks[0].offset if self.chunks else self.end

    @property
    def stop(self) -> int:
        """The offset after the last byte of the part."""
        last = self.chunks[-1] if self.chunks else None
        return last.offset + len(last.data) if last else self.end


class FoundLine(Value):
    """The result so far of searching a whole stream for a text: the
    next matching line in one direction.
    """

    at: int | None
    """Byte offset of the line; None if there is none in that
    direction, or the search still runs.
    """
    before: int | None
    """Number of matching lines before it; None: not counted yet."""
    count: int
    """Number of matching lines, as far as counted."""
    share: float
    """Share of the stream that has been counted, from 0 to 1."""
    looking: bool
    """Whether the line may still be found."""

    @property
    def whole(self) -> bool:
        """Whether this result is final."""
        return self.share >= 1 and not self.looking


Followed = NodeEvent | Chunk | Tail
