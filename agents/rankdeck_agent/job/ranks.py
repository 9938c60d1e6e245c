"""The supervisor's table of its ranks and processes, and whether all have ended. No I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Optional

from rankdeck_agent.job import processes

_LINGER = 1.0
_DAEMON_LINGER = 10.0


@dataclass
class RankRecord:
    """One rank as its shim reports it."""

    pid: int = 0
    shim: int = 0
    running: bool = False
    exited: bool = False


@dataclass
class RankTable:
    """Counts what runs; one writer, the supervisor."""

    expected: Sequence[int]
    ranks: dict[int, RankRecord] = field(default_factory=dict[int, RankRecord])
    processes: dict[int, str] = field(default_factory=dict[int, str])
    """pid -> name of what was planned and runs."""
    daemons: dict[int, str] = field(default_factory=dict[int, str])
    had_processes: bool = False
    had_daemons: bool = False
    cancelled: bool = False
    linger: float = _LINGER
    """Seconds to wait, once all ranks have ended, for what else is there."""
    _quiet_since: Optional[float] = None

    def started(self, rank: int, pid: int, shim: int) -> None:
        self.ranks[rank] = RankRecord(pid, shim, running=True)

    def exited(self, rank: int) -> bool:
        """Note the end of a rank; False if it was not running."""
        record = self.ranks.setdefault(rank, RankRecord())
        was = record.running or not record.exited
        record.running, record.exited = False, True
        return was

    def visible(self) -> dict[int, RankRecord]:
        """The ranks that run and whose pids are ours: a shim of 0 is in another pid namespace."""
        return {rank: one for rank, one in self.ranks.items() if one.running and one.shim}

    def pids(self) -> dict[int, int]:
        """pid -> rank of the programs and shims of visible ranks."""
        return {pid: rank for rank, one in self.visible().items() for pid in (one.shim, one.pid)}

    def running(self) -> dict[int, int]:
        """Rank -> pid of the programs of visible ranks."""
        return {rank: one.pid for rank, one in self.visible().items()}

    @property
    def all_exited(self) -> bool:
        return all(rank in self.ranks and self.ranks[rank].exited for rank in self.expected)

    @property
    def busy(self) -> bool:
        """Whether something of ours is known to run."""
        running = any(record.running for record in self.ranks.values())
        return bool(self.processes or self.daemons or running)

    @property
    def complete(self) -> bool:
        """Whether nothing more can begin: all that was planned here has started and ended."""
        return self.had_processes or self.had_daemons or self.cancelled or self.all_exited

    def may_close(self, now: float, others: int) -> bool:
        """Whether to close: `others` are orphaned processes that became our children.

        A daemon that put itself into the background is one of those: wait for it while ranks
        may still come. Anything else gets a moment, then closes without us.
        """
        if self.busy or not self.complete:
            self._quiet_since = None
            return False
        if not others:
            return True
        if self.had_daemons and not (self.all_exited or self.cancelled):
            self._quiet_since = None
            return False
        if self._quiet_since is None:
            self._quiet_since = now
        least = _DAEMON_LINGER if self.had_daemons else 0.0
        return now - self._quiet_since >= max(self.linger, least)


class Orphans:
    """Finds ranks whose shim was killed: their programs become children of the supervisor."""

    def __init__(self, table: RankTable) -> None:
        self._table = table
        self._missed: set[int] = set()

    def rank_of(self, pid: int) -> Optional[int]:
        """The rank whose program this child was that just ended; None if it was none."""
        for rank, record in self._table.visible().items():
            if record.pid == pid and not processes.is_alive(record.shim):
                return rank
        return None

    def lost(self) -> list[int]:
        """The ranks that are gone without a report; each is returned once."""
        gone = {rank for rank, one in self._table.visible().items() if not _is_there(one)}
        # Seen twice a second apart: the record may still be in the control FIFO.
        lost, self._missed = sorted(gone & self._missed), gone - self._missed
        return lost


def _is_there(record: RankRecord) -> bool:
    return any(map(processes.is_alive, (record.shim, record.pid)))


def not_known(ranks: Iterable[int]) -> str:
    """The sentence for ranks that are lost."""
    names = ", ".join(map(str, ranks))
    if "," in names:
        return f"the shims of ranks {names} were killed: how these ranks ended is not known"
    return f"the shim of rank {names} was killed: how this rank ended is not known"
