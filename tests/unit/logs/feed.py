"""Logs of ranks filled by hand, as the follower would fill them."""

from collections.abc import Iterable, Mapping

from rankdeck.model.rank_output import Chunk
from rankdeck.state.lines import RankLog


def log_of(rank: int, lines: Iterable[tuple[float, str]], stream: str = "out") -> RankLog:
    """A log with these lines, each read at its time."""
    log = RankLog(rank)
    write(log, lines, stream)
    return log


def write(log: RankLog, lines: Iterable[tuple[float, str]], stream: str = "out") -> None:
    """Further lines."""
    for at, text in lines:
        data = text.encode() + b"\n"
        offset = log.read.at()[stream]
        log.add(Chunk("j", "n1", log.rank, stream, offset, at, data))


def logs_of(texts: Mapping[int, Iterable[str]]) -> dict[int, RankLog]:
    """A log per rank; line n was read at second n."""
    return {
        rank: log_of(rank, [(float(at), text) for at, text in enumerate(lines)])
        for rank, lines in texts.items()
    }
