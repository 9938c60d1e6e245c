"""Ranks whose shim was killed: nobody writes their exit record."""

from collections.abc import Iterable, Iterator
from typing import Optional

from rankdeck_agent.job import processes
from rankdeck_agent.job.tally import RankRecord, Tally


class Orphans:
    """Tells what can be known of them: their programs become children of the supervisor."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._missed: set[int] = set()

    def rank_of(self, pid: int) -> Optional[int]:
        """The rank whose program this child was that just ended; None where it was none."""
        for rank, record in self._running():
            if record.pid == pid and not processes.is_alive(record.shim):
                return rank
        return None

    def lost(self) -> list[int]:
        """The ranks of which nothing is left and nothing was heard; each is told once."""
        gone = {rank for rank, record in self._running() if not _is_there(record)}
        # Seen twice a second apart: the record may still be in the control FIFO.
        lost, self._missed = sorted(gone & self._missed), gone - self._missed
        return lost

    def _running(self) -> Iterator[tuple[int, RankRecord]]:
        # A shim of 0 counts in another pid namespace: only its record says something.
        for rank, record in self._tally.ranks.items():
            if record.running and record.shim:
                yield rank, record


def _is_there(record: RankRecord) -> bool:
    return any(map(processes.is_alive, (record.shim, record.pid)))


def not_known(ranks: Iterable[int]) -> str:
    """The sentence for ranks that are lost."""
    names = ", ".join(map(str, ranks))
    if "," in names:
        return f"the shims of ranks {names} were killed: how these ranks ended is not known"
    return f"the shim of rank {names} was killed: how this rank ended is not known"
