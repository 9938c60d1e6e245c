"""Processes on nodes, and commands run on many nodes: how each ended,
and which nodes had the same output.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import field

from rankdeck.model.cancel_report import RemainingProcess
from rankdeck.model.field_checks import is_integer, is_number, natural_or_zero
from rankdeck.model.job import Job, RankState
from rankdeck.model.json_tables import as_table
from rankdeck.model.rank import signal_name, signal_of
from rankdeck.model.safe_text import clean_line
from rankdeck.values import Value

_MOST_GPUS = 64
NO_STATE = "?"


class NodeProcess(Value, kw_only=True):
    """One process on a node."""

    node: str
    pid: int
    start: int
    """When it started, in clock ticks since boot: tells processes with a reused pid apart."""
    ppid: int = 0
    user: str = ""
    state: str = NO_STATE
    """As in /proc: R, S, D, T, t, Z; NO_STATE if unknown."""
    command: str = ""
    cpu: float = 0.0
    """Cores in use: 1.0 is one core."""
    rss: int = 0
    """Bytes."""
    read: float | None = None
    """Bytes a second that it reads (`write`: writes) through system
    calls; None if this may not be seen.
    """
    write: float | None = None
    gpus: Mapping[str, int] = field(default_factory=dict[str, int])
    """GPU -> bytes of GPU memory in use."""
    job: str = ""
    rank: int | None = None

    @property
    def gpu_memory(self) -> int:
        """Bytes of GPU memory in use, over all GPUs."""
        return sum(self.gpus.values())

    @property
    def traffic(self) -> float | None:
        """Bytes a second that it reads and writes; None if this may not be seen."""
        return None if self.read is None or self.write is None else self.read + self.write


def process_of(node: str, row: Mapping[str, Any]) -> NodeProcess | None:
    """The process in one row of the agent's answer; None if pid or start is invalid.

    Other invalid fields: defaults.
    """
    pid, start, rank, gpus = row.get("pid"), row.get("start"), row.get("rank"), row.get("gpus")
    if not is_integer(pid) or not is_integer(start) or pid <= 0:
        return None
    sizes = list(as_table(gpus).items())[:_MOST_GPUS]
    return NodeProcess(
        node=node,
        pid=pid,
        start=start,
        ppid=natural_or_zero(row.get("ppid")),
        user=clean_line(row.get("user"), 40),
        state=clean_line(row.get("state"), 1) or NO_STATE,
        command=clean_line(row.get("command")),
        cpu=_amount(row.get("cpu")) or 0.0,
        rss=natural_or_zero(row.get("rss")),
        read=_amount(row.get("read")),
        write=_amount(row.get("write")),
        gpus={clean_line(gpu, 40): natural_or_zero(size) for gpu, size in sizes},
        job=clean_line(row.get("job"), 120),
        rank=rank if is_integer(rank) and rank >= 0 else None,
    )


def _amount(value: object) -> float | None:
    return float(value) if is_number(value) and value >= 0 else None


class RankUse(Value, kw_only=True):
    """The resources that all processes of a rank use together."""

    rank: int
    node: str
    pid: int | None
    """The pid of the rank's program."""
    processes: tuple[NodeProcess, ...] = ()
    """The processes of the rank; () if none is known."""

    @property
    def state(self) -> str:
        """The state of the process that uses most CPU."""
        busiest = max(self.processes, key=lambda one: one.cpu, default=None)
        return busiest.state if busiest else NO_STATE

    @property
    def cpu(self) -> float | None:
        return sum(one.cpu for one in self.processes) if self.processes else None

    @property
    def rss(self) -> int | None:
        return sum(one.rss for one in self.processes) if self.processes else None

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(sorted({gpu for one in self.processes for gpu in one.gpus}))

    @property
    def gpu_memory(self) -> int | None:
        return sum(one.gpu_memory for one in self.processes) if self.gpus else None

    @property
    def traffic(self) -> float | None:
        rates = [one.traffic for one in self.processes if one.traffic is not None]
        return sum(rates) if rates else None


def rank_uses(job: Job, found: Iterable[NodeProcess]) -> dict[int, RankUse]:
    """Rank -> its resources: those of its program and all descendants, or
    of processes marked with the rank.
    """
    mine = [one for one in found if one.job == job.id]
    by_pid = {(one.node, one.pid): one for one in mine}
    roots = {(rank.node, rank.pid): rank.rank for rank in job.ranks if rank.pid is not None}
    belongs: dict[int, list[NodeProcess]] = {}
    for one in mine:
        rank = _rank_above(one, by_pid, roots)
        if rank is not None:
            belongs.setdefault(rank, []).append(one)
    return {rank.rank: _use(rank, belongs.get(rank.rank, ())) for rank in job.ranks}


def _use(rank: RankState, processes: Iterable[NodeProcess]) -> RankUse:
    return RankUse(rank=rank.rank, node=rank.node, pid=rank.pid, processes=tuple(processes))


def _rank_above(
    one: NodeProcess,
    by_pid: Mapping[tuple[str, int], NodeProcess],
    roots: Mapping[tuple[str, int], int],
) -> int | None:
    """The rank whose program is this process or its nearest ancestor; else the
    rank that the process is marked with.
    """
    seen: set[int] = set()
    above: NodeProcess | None = one
    while above is not None and above.pid not in seen:
        seen.add(above.pid)
        if (rank := roots.get((above.node, above.pid))) is not None:
            return rank
        above = by_pid.get((one.node, above.ppid))
    return one.rank


LIMIT, CANCELLED = "limit", "cancelled"
"""Why the agent ended a command."""


class CommandEnd(Value):
    """How the command ended on one node."""

    code: int | None = None
    """Exit status; 128 + N if signal N ended the command; None: not known."""
    why: str = ""
    """LIMIT or CANCELLED if the agent ended it; a sentence if its end is
    not known; "" if it ended by itself.
    """
    left: tuple[RemainingProcess, ...] = ()
    """Processes that could not be ended."""
    behind: int = 0
    """Number of processes that it left running in the background."""
    cut: int = 0
    """Bytes of output that were left out."""
    seconds: float = 0.0

    @property
    def known(self) -> bool:
        """Whether the agent on the node saw its end; if not, it is not
        known whether processes remain.
        """
        return self.code is not None or self.why in (LIMIT, CANCELLED)

    @property
    def well(self) -> bool:
        """Whether it ended by itself with exit status 0."""
        return self.code == 0 and not self.why

    @property
    def status(self) -> int:
        """This node's value for the exit status of `rankdeck sh`: 124 at the
        time limit, 255 if its end is unknown.
        """
        if self.why == LIMIT:
            return 124
        if not self.known:
            return 255
        return self.code or 0

    @property
    def words(self) -> str:
        """How it ended, in a few words; without seconds, so that nodes with
        the same end have the same words.
        """
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
        by = signal_of(self.code, None)
        return f"exit {self.code or 0}" + (f": {signal_name(by)}" if by else "")


class OutputGroup(Value):
    """Nodes with the same output and the same progress."""

    nodes: tuple[str, ...]
    lines: tuple[tuple[str, str], ...]
    """(stream, text) of each line in order of arrival; the stream is `out` or `err`."""
    end: CommandEnd | None
    """None: the command still runs on these nodes, or has not begun."""
    begun: bool = True

    @property
    def words(self) -> str:
        """How far the command is on these nodes."""
        if self.end is not None:
            return self.end.words
        return "runs" if self.begun else "waits for its turn"

    @property
    def text(self) -> tuple[str, ...]:
        return tuple(line for _, line in self.lines)


def _processes(number: int) -> str:
    return "1 process" if number == 1 else f"{number} processes"
