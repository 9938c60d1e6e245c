"""The supervisor's table of what runs of a job on its node."""

from collections.abc import Iterable, Sequence
from typing import Optional

from rankdeck_agent.job import processes
from rankdeck_agent.values import Record, field

_LINGER = 1.0
_DAEMON_LINGER = 10.0


class RankRecord(Record):
    """One rank as its shim reports it; `pid` of the program and of the
    `shim` are 0 if not usable here.
    """

    pid: int = 0
    shim: int = 0
    running: bool = False
    exited: bool = False


class RankTable(Record):
    """What runs of the job on this node. Only the supervisor writes to it."""

    expected: Sequence[int]
    ranks: dict[int, RankRecord] = field(default_factory=dict[int, RankRecord])
    processes: dict[int, str] = field(default_factory=dict[int, str])
    """pid -> name of the planned processes that run."""
    daemons: dict[int, str] = field(default_factory=dict[int, str])
    """pid -> name of the MPI daemons that run."""
    had_processes: bool = False
    had_daemons: bool = False
    cancelled: bool = False
    linger: float = _LINGER
    """Seconds to wait for orphans once everything else has ended."""
    _quiet_since: Optional[float] = None

    def started(self, rank: int, pid: int, shim: int) -> None:
        """Note the start of a rank: pid of its program and of its shim, 0 if not usable here."""
        self.ranks[rank] = RankRecord(pid, shim, running=True)

    def exited(self, rank: int) -> bool:
        """Note the end of a rank; False if it was noted before."""
        record = self.ranks.setdefault(rank, RankRecord())
        was = record.running or not record.exited
        record.running, record.exited = False, True
        return was

    def visible(self) -> dict[int, RankRecord]:
        """The running ranks whose pids we can use; not those in another
        pid namespace, whose `shim` is 0.
        """
        return {rank: one for rank, one in self.ranks.items() if one.running and one.shim}

    def pids(self) -> dict[int, int]:
        """pid -> rank, for programs and shims of visible ranks."""
        return {pid: rank for rank, one in self.visible().items() for pid in (one.shim, one.pid)}

    def running(self) -> dict[int, int]:
        """Rank -> pid of the program, for visible ranks."""
        return {rank: one.pid for rank, one in self.visible().items()}

    @property
    def all_exited(self) -> bool:
        """Whether every expected rank has ended."""
        return all(rank in self.ranks and self.ranks[rank].exited for rank in self.expected)

    @property
    def busy(self) -> bool:
        """Whether a planned process, a daemon or a rank runs."""
        running = any(record.running for record in self.ranks.values())
        return bool(self.processes or self.daemons or running)

    @property
    def complete(self) -> bool:
        """Whether something has been started here (or all ranks ended, or a cancel):
        if not `busy`, nothing more will begin.
        """
        return self.had_processes or self.had_daemons or self.cancelled or self.all_exited

    def may_close(self, now: float, others: int) -> bool:
        """Whether to close now (monotonic seconds); `others`: the number
        of orphans that became our children.

        A daemon that put itself into the background is such an orphan: wait for it while ranks may
        still start. For any others wait `linger` seconds, then close although they run.
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
    """Finds ranks whose shim was killed: their program becomes a child of the supervisor."""

    def __init__(self, table: RankTable) -> None:
        self._table = table
        self._missed: set[int] = set()

    def rank_of(self, pid: int) -> Optional[int]:
        """The rank whose program was this child that has just
        ended; None if it was not a rank's.
        """
        for rank, record in self._table.visible().items():
            if record.pid == pid and not processes.is_alive(record.shim):
                return rank
        return None

    def lost(self) -> list[int]:
        """The ranks that are gone without a report of their end; each is returned once."""
        ranks = self._table.visible().items()
        gone = {n for n, one in ranks if not any(map(processes.is_alive, (one.shim, one.pid)))}
        # Seen in two calls, a second apart: the report may still be in the control FIFO.
        lost, self._missed = sorted(gone & self._missed), gone - self._missed
        return lost


def describe_lost_ranks(ranks: Iterable[int]) -> str:
    """The sentence for ranks that are lost."""
    names = ", ".join(map(str, ranks))
    if "," in names:
        return f"the shims of ranks {names} were killed: how these ranks ended is not known"
    return f"the shim of rank {names} was killed: how this rank ended is not known"
